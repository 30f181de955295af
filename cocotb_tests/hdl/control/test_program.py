# amaranth: UnusedElaboratable=no
"""Program memory: every command of both queues in order, legal bursts only, and no fetch of what is resident."""

from __future__ import annotations

import dataclasses
import os
from collections import deque

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge

from cocotb_tests.support.benches.streams import StreamMonitor, unpack
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.config import Config
from lutterfly.golden.isa import COMMAND_BYTES
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.bus.axi import Response, read_beat_layout, request_layout
from lutterfly.hdl.control.program import ProgramMemory, program_layout
from lutterfly.hdl.parts.isa import ErrorReport

RING = 8
QUEUES = ("dma", "compute")
DMA, COMPUTE = 0x1F80, 0x5FC0


def _config(preset: str) -> Config:
    return dataclasses.replace(PRESETS[preset], resident_commands=RING)


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize("preset", sweep(PRESETS, kept=("tiny",)))
def test_program(simulate, preset: str) -> None:
    simulate(ProgramMemory(_config(preset)), env={"PRESET": preset})


class Bench:
    """The program memory between a memory that answers in order and two readers of words."""

    def __init__(self, dut, *, seed: int = 0, p_stall: float = 0.0, latency: int = 20):
        self.dut = dut
        self.rng = np.random.default_rng(seed)
        self.p_stall = p_stall
        self.latency = latency
        self.config = _config(os.environ["PRESET"])
        self.memory = self.rng.bytes(1 << 16)
        self.bursts: list[tuple[int, int]] = []
        self.waiting: deque[tuple[int, int, int]] = deque()
        self.most_waiting = 0
        #: Addresses that answer with trouble, and which.
        self.bad: dict[int, Response] = {}
        self.words: dict[str, list[int]] = {name: [] for name in QUEUES}
        self.take = dict.fromkeys(QUEUES, True)
        #: Whether requests are taken.
        self.accept = True
        self.errors: list[dict[str, int]] = []
        self.cycle = 0

    async def reset(self) -> None:
        dut = self.dut
        Clock(dut.clk, 10, unit="ns").start()
        for name in ("start", "halt", "read__ar__ready", "read__r__valid"):
            getattr(dut, name).value = 0
        for name in QUEUES:
            for port in ("changed", "stop", "words__ready"):
                getattr(dut, f"{name}_{port}").value = 0
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        self.monitors = [StreamMonitor(dut.clk, dut, name) for name in ("read__ar", "dma_words", "compute_words")]
        for task in (self._requests(), self._answers(), *map(self._read, QUEUES)):
            cocotb.start_soon(task)

    def _stalls(self) -> bool:
        return bool(self.p_stall and self.rng.random() < self.p_stall)

    async def _requests(self) -> None:
        dut = self.dut
        while True:
            dut.read__ar__ready.value = ready = self.accept and not self._stalls()
            await ReadOnly()
            if ready and dut.read__ar__valid.value:
                request = unpack(int(dut.read__ar__payload.value), request_layout())
                address, beats = request["address"], request["beats_minus_one"] + 1
                self.bursts.append((address, beats * self.config.axi.data_bytes))
                self.waiting.append((address, beats, self.cycle + self.latency))
                self.most_waiting = max(self.most_waiting, len(self.waiting))
            error = ErrorReport.from_bits(int(dut.error.value))
            if error.valid:
                self.errors.append({name: int(error[name]) for name in ("code", "unit", "index", "address")})
            await RisingEdge(dut.clk)
            self.cycle += 1

    async def _answers(self) -> None:
        dut, layout, size = self.dut, read_beat_layout(self.config.axi.data_bits), self.config.axi.data_bytes
        while True:
            if not self.waiting or self.waiting[0][2] > self.cycle:
                await RisingEdge(dut.clk)
                continue
            address, beats, _ = self.waiting[0]
            for beat in range(beats):
                while self._stalls():
                    await RisingEdge(dut.clk)
                at = address + beat * size
                word = {
                    "data": int.from_bytes(self.memory[at : at + size], "little"),
                    "last": beat == beats - 1,
                    "response": self.bad.get(at // COMMAND_BYTES * COMMAND_BYTES, Response.OKAY),
                }
                dut.read__r__payload.value, dut.read__r__valid.value = layout.const(word).as_bits(), 1
                await RisingEdge(dut.clk)
                dut.read__r__valid.value = 0
            self.waiting.popleft()

    async def _read(self, name: str) -> None:
        dut = self.dut
        valid, ready, payload = (getattr(dut, f"{name}_words__{wire}") for wire in ("valid", "ready", "payload"))
        while True:
            ready.value = taking = self.take[name] and not self._stalls()
            await ReadOnly()
            if taking and valid.value:
                self.words[name].append(int(payload.value))
            await RisingEdge(dut.clk)

    async def start(self, dma: tuple[int, int], compute: tuple[int, int], *, changed: bool = False) -> None:
        """Start programs of (address, commands); ``changed`` tells of both that they may be others."""
        dut = self.dut
        self.words = {name: [] for name in QUEUES}
        self.bursts = []
        for name, (address, commands) in zip(QUEUES, (dma, compute), strict=True):
            getattr(dut, f"{name}_program").value = (
                program_layout().const({"address": address, "commands": commands}).as_bits()
            )
            getattr(dut, f"{name}_changed").value = changed
        await RisingEdge(dut.clk)
        for name in QUEUES:
            getattr(dut, f"{name}_changed").value = 0
        dut.start.value = 1
        await RisingEdge(dut.clk)
        dut.start.value = 0
        # A queue that was done is so in the cycle of the start too.
        for name in QUEUES:
            getattr(dut, f"{name}_stop").value = 0

    async def settle(self) -> None:
        """Wait until everything has been handed out."""
        await RisingEdge(self.dut.clk)
        await FallingEdge(self.dut.clk)
        while self.dut.busy.value:
            await FallingEdge(self.dut.clk)
        await RisingEdge(self.dut.clk)

    async def run(self, dma: tuple[int, int], compute: tuple[int, int], *, changed: bool = False) -> None:
        """Start, wait, and compare all words."""
        await self.start(dma, compute, changed=changed)
        await self.settle()
        for name, program in zip(QUEUES, (dma, compute), strict=True):
            assert self.words[name] == self.expected(*program), name
            assert getattr(self.dut, f"{name}_exhausted").value == 1
            # The last command was the END.
            getattr(self.dut, f"{name}_stop").value = 1
        self.check_bursts()

    def expected(self, address: int, commands: int) -> list[int]:
        size = self.config.axi.data_bytes
        return [
            int.from_bytes(self.memory[at : at + size], "little")
            for at in range(address, address + commands * COMMAND_BYTES, size)
        ]

    def check_bursts(self) -> None:
        for address, size in self.bursts:
            assert address % COMMAND_BYTES == 0
            assert size in (COMMAND_BYTES, 2 * COMMAND_BYTES)
            assert size <= 16 * self.config.axi.data_bytes
            assert address // 4096 == (address + size - 1) // 4096

    @property
    def fetched(self) -> int:
        """Commands asked for since the start."""
        return sum(size for _, size in self.bursts) // COMMAND_BYTES


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4], seed=[1, 2])
async def programs_of_any_length(dut, p_stall: float, seed: int) -> None:
    bench = Bench(dut, seed=seed, p_stall=p_stall)
    await bench.reset()
    lengths = [
        (1, 1),
        (RING, RING),
        (RING + 1, 2),
        (3, 5 * RING + 1),
        (0, 2),
        *map(tuple, bench.rng.integers(1, 40, (4, 2)).tolist()),
    ]
    for lengths_pair in lengths:
        places = [
            (base + int(bench.rng.integers(4)) * COMMAND_BYTES, length)
            for base, length in zip((DMA, COMPUTE), lengths_pair, strict=True)
        ]
        await bench.run(*places, changed=True)
        assert bench.fetched == sum(lengths_pair)
    assert not bench.errors


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def resident_programs_are_not_fetched_again(dut) -> None:
    bench = Bench(dut)
    await bench.reset()
    await bench.run((DMA, RING), (COMPUTE, RING + 1), changed=True)
    # The compute program did not fit.
    await bench.run((DMA, RING), (COMPUTE, RING + 1))
    assert {address for address, _ in bench.bursts} <= {COMPUTE + 64 * index for index in range(RING + 1)}
    assert bench.fetched == RING + 1
    await bench.run((DMA, 2), (COMPUTE, 3), changed=True)
    for _ in range(3):
        await bench.run((DMA, 2), (COMPUTE, 3))
        assert bench.bursts == []
    await bench.run((DMA, 2), (COMPUTE, 3), changed=True)
    assert bench.fetched == 5


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def change_during_a_run_counts(dut) -> None:
    bench = Bench(dut)
    await bench.reset()
    await bench.start((DMA, 3), (COMPUTE, 3), changed=True)
    for _ in range(5):
        await RisingEdge(dut.clk)
    dut.dma_changed.value = 1
    await RisingEdge(dut.clk)
    dut.dma_changed.value = 0
    await bench.settle()
    await bench.run((DMA, 3), (COMPUTE, 3))
    assert bench.fetched == 3


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def prefetch_goes_ahead_as_far_as_there_is_room(dut) -> None:
    bench = Bench(dut, latency=100)
    await bench.reset()
    bench.take = dict.fromkeys(QUEUES, False)
    await bench.start((DMA, 5 * RING), (COMPUTE, 5 * RING), changed=True)
    for _ in range(1000):
        await RisingEdge(dut.clk)
    # A ring each, and what has been read ahead of the queue has left room only if it is a whole command.
    assert bench.fetched == 2 * RING + (2 if 4 * bench.config.axi.data_bytes >= COMMAND_BYTES else 0)
    assert bench.most_waiting >= 4
    bench.take = dict.fromkeys(QUEUES, True)
    await bench.settle()
    assert [bench.words[name] for name in QUEUES] == [bench.expected(DMA, 5 * RING), bench.expected(COMPUTE, 5 * RING)]
    bench.check_bursts()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def words_come_one_a_cycle(dut) -> None:
    bench = Bench(dut)
    await bench.reset()
    await bench.run((DMA, RING), (COMPUTE, 1), changed=True)
    monitor = StreamMonitor(dut.clk, dut, "dma_words")
    await bench.run((DMA, RING), (COMPUTE, 1))
    first, last = monitor.cycles[0], monitor.cycles[-1]
    assert last - first == len(monitor.cycles) - 1
    assert first <= 8


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(response=[Response.SLVERR, Response.DECERR])
async def failed_burst(dut, response: Response) -> None:
    bench = Bench(dut)
    await bench.reset()
    bench.bad = {COMPUTE + 64 * 5: response}
    await bench.start((DMA, 6), (COMPUTE, 7), changed=True)
    for _ in range(400):
        await RisingEdge(dut.clk)
    assert bench.words["dma"] == bench.expected(DMA, 6)
    # Commands before the failed burst may have been handed out; nothing of it is, or after it.
    assert bench.words["compute"] == bench.expected(COMPUTE, 5)
    code = ErrorCode.AXI_SLAVE if response is Response.SLVERR else ErrorCode.AXI_DECODE
    assert {(error["code"], error["unit"], error["index"], error["address"]) for error in bench.errors} == {
        (code, Unit.PREFETCH, 5, COMPUTE + 64 * 5)
    }
    assert dut.compute_exhausted.value == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(delay=[10, 40, 90])
async def early_end(dut, delay: int) -> None:
    """A queue that has ended before the last command leaves no trace in the next run."""
    bench = Bench(dut)
    await bench.reset()
    for monitor in bench.monitors[1:]:
        # The words that nobody wants any more go without being taken.
        monitor.stop()
    for commands in (3, RING, 4 * RING):
        bench.take = dict.fromkeys(QUEUES, False)
        await bench.start((DMA, commands), (COMPUTE, commands), changed=True)
        for _ in range(delay):
            await RisingEdge(dut.clk)
        for name in QUEUES:
            getattr(dut, f"{name}_stop").value = 1
        await bench.settle()
        bench.take = dict.fromkeys(QUEUES, True)
        await bench.run((DMA, commands), (COMPUTE, commands))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(commands=[2, RING + 1, 4 * RING], accepted_after=[0, 9])
async def early_end_at_any_time(dut, commands: int, accepted_after: int) -> None:
    """In the cycle in which a burst is measured, decided on, asked for or counted too."""
    bench = Bench(dut)
    await bench.reset()
    for monitor in bench.monitors[1:]:
        monitor.stop()
    for delay in range(14):
        bench.take = dict.fromkeys(QUEUES, False)
        bench.accept = not accepted_after
        await bench.start((DMA, commands), (COMPUTE, commands), changed=True)
        for _ in range(delay):
            await RisingEdge(dut.clk)
        for name in QUEUES:
            getattr(dut, f"{name}_stop").value = 1
        for _ in range(accepted_after):
            await RisingEdge(dut.clk)
        bench.accept = True
        await bench.settle()
        asked = bench.fetched
        # What was being asked for when the queues ended; nothing afterwards.
        assert asked <= delay + 4
        for _ in range(30):
            await RisingEdge(dut.clk)
        assert bench.fetched == asked
        bench.take = dict.fromkeys(QUEUES, True)
        await bench.run((DMA, commands), (COMPUTE, commands))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def halt_begins_no_burst(dut) -> None:
    bench = Bench(dut)
    await bench.reset()
    dut.halt.value = 1
    await bench.start((DMA, 3), (COMPUTE, 3), changed=True)
    for _ in range(50):
        await RisingEdge(dut.clk)
    assert bench.bursts == []
    assert dut.read__ar__valid.value == 0
