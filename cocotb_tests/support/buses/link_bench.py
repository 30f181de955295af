"""The bridge between bytes, registers and an arena, each at its own pace, beside its golden twin."""

from __future__ import annotations

from collections.abc import Iterable

import cocotb
import numpy as np
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.clocking import start
from lutterfly.golden.link.bridge import BridgeModel

CLOCK_HZ = 25_000_000
ARENA_BYTES = 4096
REGISTER_BITS = 6
#: The register that there is not.
REFUSED = 60
#: Cycles between bytes, at least.
PACE = 4


class LinkBench:
    """The bridge ``dut`` with surroundings that stall at random.

    Attributes
    ----------
    twin : BridgeModel
        With an arena and registers of its own, and the same contents.
    arena : bytearray, registers : list of int
        Those behind ``dut``; ``writes`` and ``twin_writes`` are the accesses that came.
    answers : bytearray
        What ``dut`` has sent.
    """

    def __init__(self, dut: HierarchyObject, seed: int, p_stall: float):
        self.dut = dut
        self.rng = np.random.default_rng(seed)
        self.p_stall = p_stall
        self.arena = bytearray(self.rng.bytes(ARENA_BYTES))
        self.registers = [int(value) for value in self.rng.integers(0, 1 << 32, (1 << REGISTER_BITS) // 4)]
        self.writes: list[tuple[int, int]] = []
        self.twin_writes: list[tuple[int, int]] = []
        self.answers = bytearray()
        self.line = False
        self.host_requests = 0
        self.register_requests = 0
        self._twin_registers = list(self.registers)
        self.twin = BridgeModel(
            CLOCK_HZ,
            bytearray(self.arena),
            lambda address: (self._twin_registers[address // 4], address != REFUSED),
            self._write_twin,
            register_bytes=1 << REGISTER_BITS,
            interrupt=lambda cycles: self.line,
        )

    def _write_twin(self, address: int, value: int) -> bool:
        self.twin_writes.append((address, value))
        if address != REFUSED:
            self._twin_registers[address // 4] = value
        return address != REFUSED

    def stalls(self) -> bool:
        return bool(self.rng.random() < self.p_stall)

    async def begin(self) -> None:
        inputs = ("received__valid", "received__payload", "sent__ready", "interrupt")
        bus = ("awready", "wready", "bvalid", "bresp", "arready", "rvalid", "rresp", "rdata")
        names = (*inputs, *(f"control__{name}" for name in bus))
        host = ("request__ready", "answer__valid", "answer__payload")
        await start(self.dut, dict.fromkeys((*names, *(f"host__{name}" for name in host)), 0))
        for task in (self._take(), self._registers(), self._host()):
            cocotb.start_soon(task)

    def interrupt(self, line: bool) -> None:
        """Set the interrupt line."""
        self.line = line
        self.dut.interrupt.value = line

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def send(self, data: Iterable[int], errors: Iterable[int] = ()) -> None:
        """Give it bytes; those at the places ``errors`` come without a stop bit."""
        errors = set(errors)
        for place, byte in enumerate(data):
            self.dut.received__payload.value = byte | (place in errors) << 8
            self.dut.received__valid.value = 1
            await RisingEdge(self.dut.clk)
            self.dut.received__valid.value = 0
            await self.cycles(PACE - 1)

    async def answered(self, most_cycles: int = 60_000) -> bytes:
        """The next answer, with its delimiter."""
        for _ in range(most_cycles):
            if 0 in self.answers:
                end = self.answers.index(0) + 1
                answer, self.answers = bytes(self.answers[:end]), self.answers[end:]
                # It listens again a few cycles later.
                await self.cycles(6)
                return answer
            await RisingEdge(self.dut.clk)
        raise AssertionError(f"no answer within {most_cycles} cycles")

    async def _transfer(self, prefix: str, *, ready: bool) -> int:
        """Take a word, or give one: wait for the other side; what the payload is then."""
        own, other = (f"{prefix}ready", f"{prefix}valid") if ready else (f"{prefix}valid", f"{prefix}ready")
        while self.stalls():
            await RisingEdge(self.dut.clk)
        getattr(self.dut, own).value = 1
        while True:
            await FallingEdge(self.dut.clk)
            done = getattr(self.dut, other).value == 1
            payload = getattr(self.dut, f"{prefix}payload", None)
            value = int(payload.value) if done and payload is not None and payload.value.is_resolvable else 0
            await RisingEdge(self.dut.clk)
            if done:
                getattr(self.dut, own).value = 0
                return value

    async def _take(self) -> None:
        while True:
            byte = await self._transfer("sent__", ready=True)
            # Not before: meanwhile an answer may have been taken from here.
            self.answers.append(byte)

    async def _registers(self) -> None:
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            writes, reads = dut.control__awvalid.value == 1, dut.control__arvalid.value == 1
            await RisingEdge(dut.clk)
            if not writes and not reads:
                continue
            self.register_requests += 1
            address = int((dut.control__awaddr if writes else dut.control__araddr).value)
            response = 2 if address == REFUSED else 0
            if writes:
                value = int(dut.control__wdata.value)
                assert int(dut.control__wstrb.value) == 15
                channels = ["aw", "w"] if self.rng.random() < 0.5 else ["w", "aw"]
                for channel in channels:
                    await self._transfer(f"control__{channel}", ready=True)
                self.writes.append((address, value))
                if not response:
                    self.registers[address // 4] = value
                dut.control__bresp.value = response
                await self._transfer("control__b", ready=False)
            else:
                await self._transfer("control__ar", ready=True)
                dut.control__rresp.value, dut.control__rdata.value = response, self.registers[address // 4]
                await self._transfer("control__r", ready=False)

    async def _host(self) -> None:
        dut = self.dut
        bits = len(dut.host__request__payload) - 9
        while True:
            request = await self._transfer("host__request__", ready=True)
            self.host_requests += 1
            address = request & (1 << bits) - 1
            if request >> bits & 1:
                self.arena[address] = request >> bits + 1
                continue
            await self.cycles(int(self.rng.integers(1, 5)))
            dut.host__answer__valid.value, dut.host__answer__payload.value = 1, self.arena[address]
            await RisingEdge(dut.clk)
            dut.host__answer__valid.value = 0

    def check_same(self) -> None:
        """Nothing differs from the twin."""
        assert self.arena == self.twin.arena
        assert self.registers == self._twin_registers
        assert self.writes == self.twin_writes
        assert int(self.dut.bit_time.value) == self.twin.bit_time
