"""A bench around AxiGuard: what its masters send, and a slave that answers when it is told to."""

from __future__ import annotations

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge

from cocotb_tests.support.benches.axi_monitor import AxiMonitor
from cocotb_tests.support.benches.streams import send
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.bus.axi import read_beat_layout, request_layout, write_beat_layout

CONFIG = PRESETS["tiny"]
DATA_BYTES = CONFIG.axi.data_bytes
BASE = 0xF00D_0000
STROBES = (1 << DATA_BYTES) - 1
EPOCHS = 8


class GuardBench:
    """The guard with a slave that answers when it is told to.

    Attributes
    ----------
    received : dict of str to list
        What came back to "load", "program" (data words) and "store" (responses).
    writes : list of tuple
        Taken write beats as (data, strobe, last).
    accept : dict of str to float
        How often the slave takes what is offered on "ar", "aw" and "w".
    epoch : int
    """

    def __init__(self, dut, seed: int = 0):
        self.dut = dut
        self.rng = np.random.default_rng(seed)
        self.received: dict[str, list[int]] = {"load": [], "program": [], "store": []}
        self.writes: list[tuple[int, int, int]] = []
        self.epoch = 0
        self.accept = {"ar": 1.0, "aw": 1.0, "w": 1.0}

    async def start(self) -> None:
        dut = self.dut
        for name in (
            "load__ar__valid",
            "program__ar__valid",
            "store__aw__valid",
            "store__w__valid",
            "soft_reset",
            "memory__arready",
            "memory__awready",
            "memory__wready",
            "memory__rvalid",
            "memory__bvalid",
        ):
            getattr(dut, name).value = 0
        dut.base.value = BASE
        dut.rst.value = 1
        Clock(dut.clk, 10, unit="ns").start()
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        self.monitor = AxiMonitor(dut, "memory__", data_bytes=DATA_BYTES)
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._accept())

    async def _accept(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            for channel, probability in self.accept.items():
                getattr(self.dut, f"memory__{channel}ready").value = int(self.rng.random() < probability)

    async def _watch(self) -> None:
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            await ReadOnly()
            for name in ("load", "program"):
                if getattr(dut, f"{name}__r__valid").value == 1:
                    payload = getattr(dut, f"{name}__r__payload").value.to_unsigned()
                    self.received[name].append(read_beat_layout(CONFIG.axi.data_bits).from_bits(payload).data)
            if dut.store__b__valid.value == 1:
                self.received["store"].append(int(dut.store__b__payload.value))
            if dut.memory__wvalid.value == 1 and dut.memory__wready.value == 1:
                self.writes.append(
                    tuple(int(getattr(dut, f"memory__{name}").value) for name in ("wdata", "wstrb", "wlast"))
                )

    def request(self, name: str, addresses: list[int], beats: int, p_stall: float = 0.0):
        """Send bursts on "load__ar", "program__ar" or "store__aw"."""
        words = [{"address": address, "beats_minus_one": beats - 1} for address in addresses]
        return cocotb.start_soon(send(self.dut.clk, self.dut, name, words, self.rng, p_stall, shape=request_layout()))

    def write(self, words: list[int], p_stall: float = 0.0):
        beats = [{"data": word, "strobe": STROBES} for word in words]
        return cocotb.start_soon(
            send(
                self.dut.clk,
                self.dut,
                "store__w",
                beats,
                self.rng,
                p_stall,
                shape=write_beat_layout(CONFIG.axi.data_bits),
            )
        )

    async def answer_read(self, identifier: int, words: list[int]) -> None:
        """Return one read burst."""
        dut = self.dut
        for position, word in enumerate(words):
            dut.memory__rvalid.value, dut.memory__rid.value, dut.memory__rresp.value = 1, identifier, 0
            dut.memory__rdata.value, dut.memory__rlast.value = word, int(position == len(words) - 1)
            await RisingEdge(dut.clk)
            assert dut.memory__rready.value == 1
        dut.memory__rvalid.value = 0

    async def answer_write(self, identifier: int, response: int) -> None:
        """Return one write response."""
        dut = self.dut
        dut.memory__bvalid.value, dut.memory__bid.value, dut.memory__bresp.value = 1, identifier, response
        await RisingEdge(dut.clk)
        assert dut.memory__bready.value == 1
        dut.memory__bvalid.value = 0

    async def reset(self) -> None:
        """A soft reset, which lasts four cycles whatever the slave does."""
        self.dut.soft_reset.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.soft_reset.value = 0
        for _ in range(4):
            assert await self.is_resetting()
        assert not await self.is_resetting()
        self.epoch = (self.epoch + 1) % EPOCHS

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def is_resetting(self) -> bool:
        await ReadOnly()
        resetting = self.dut.resetting.value == 1
        await RisingEdge(self.dut.clk)
        return resetting
