# amaranth: UnusedElaboratable=no
"""From bursts to reads and beats: every first and last byte, runs of several bursts, a memory at any pace."""

from __future__ import annotations

import os
from collections import deque

import cocotb
import numpy as np
import pytest
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import StreamMonitor, receive, send
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden.config_parts import AxiConfig
from lutterfly.golden.isa import LOCAL_BITS
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.bus.axi import write_beat_layout
from lutterfly.hdl.dma.store import StoreBeats

BURST_FIELDS = ("source", "beats_minus_one", "first_byte", "last_byte", "first")


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_stores(simulate, preset: str) -> None:
    simulate(StoreBeats(PRESETS[preset]), env={"PRESET": preset})


def random_bursts(rng: np.random.Generator, data_bytes: int, count: int) -> list[dict[str, int]]:
    """Bursts of every length; about half of them go on with the run before."""
    bursts = []
    for number in range(count):
        beats = [1, 2, AxiConfig.BURST_BEATS][number % 3] if number < 6 else int(rng.integers(1, 9))
        first_byte, last_byte = (int(byte) for byte in rng.integers(data_bytes, size=2))
        if beats == 1:
            first_byte, last_byte = sorted((first_byte, last_byte))
        fields = (int(rng.integers(1 << LOCAL_BITS)), beats - 1, first_byte, last_byte)
        bursts.append(dict(zip(BURST_FIELDS, (*fields, int(number == 0 or rng.random() < 0.5)), strict=True)))
    return bursts


def expected(bursts: list[dict[str, int]], data_bytes: int) -> list[tuple[int, int]]:
    """(address, strobe) of every beat."""
    beats, address = [], 0
    for burst in bursts:
        address = burst["source"] if burst["first"] else address
        for beat in range(burst["beats_minus_one"] + 1):
            low = burst["first_byte"] if beat == 0 else 0
            high = burst["last_byte"] if beat == burst["beats_minus_one"] else data_bytes - 1
            beats.append((address % (1 << LOCAL_BITS), sum(1 << byte for byte in range(low, high + 1))))
            address += data_bytes
    return beats


class Memory:
    """Gives a word of its own for each address, in order, at least ``latency`` cycles later."""

    def __init__(self, dut, rng: np.random.Generator, word_bytes: int, p_stall: float, latency: int = 1):
        self.dut, self.rng, self.word_bytes, self.p_stall = dut, rng, word_bytes, p_stall
        self.words: dict[int, bytes] = {}
        self.waiting: list[int] = []
        self.on_their_way: deque[int | None] = deque([None] * (latency - 1))
        cocotb.start_soon(self._run())

    def word(self, address: int) -> bytes:
        """What is read there."""
        return self.words.setdefault(address, self.rng.bytes(self.word_bytes))

    async def _run(self) -> None:
        dut = self.dut
        while True:
            dut.read__ready.value = int(self.rng.random() >= self.p_stall)
            word = 0
            if self.waiting and self.rng.random() >= self.p_stall:
                word = int.from_bytes(self.word(self.waiting.pop(0)), "little") << 1 | 1
            dut.word.value = word
            await FallingEdge(dut.clk)
            is_read = dut.read__valid.value == 1 and dut.read__ready.value == 1
            self.on_their_way.append(int(dut.read__payload.value) if is_read else None)
            address = self.on_their_way.popleft()
            if address is not None:
                self.waiting.append(address)
            await RisingEdge(dut.clk)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_memory=[0.0, 0.5], p_bus=[0.0, 0.5])
async def every_beat(dut, p_memory: float, p_bus: float) -> None:
    config, rng = PRESETS[os.environ["PRESET"]], np.random.default_rng(3)
    data_bytes = config.axi.data_bytes
    bursts = random_bursts(rng, data_bytes, 60)
    beats = expected(bursts, data_bytes)
    await start(dut, {"bursts__valid": 0, "read__ready": 0, "word": 0, "beats__ready": 0})
    layout = write_beat_layout(config.axi.data_bits)
    reads, passed = StreamMonitor(dut.clk, dut, "read"), StreamMonitor(dut.clk, dut, "beats", shape=layout)
    memory = Memory(dut, np.random.default_rng(4), config.array.lanes, p_memory)
    starts = StoreBeats(config).bursts.payload.shape()
    cocotb.start_soon(send(dut.clk, dut, "bursts", bursts, np.random.default_rng(5), p_bus, shape=starts))
    await receive(dut.clk, dut, "beats", len(beats), np.random.default_rng(6), p_bus, shape=layout)
    assert reads.words == [address for address, _ in beats]
    for word, (address, strobe) in zip(passed.words, beats, strict=True):
        assert word["strobe"] == strobe
        assert word["data"].to_bytes(data_bytes, "little") == memory.word(address)[:data_bytes]
    if p_memory == p_bus == 0.0:
        assert passed.cycles[-1] - passed.cycles[0] == len(beats) - 1, "a gap between two beats"


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(latency=[1, 13])
async def a_beat_each_cycle(dut, latency: int) -> None:
    """However long words take to come, up to what there is room for."""
    config = PRESETS[os.environ["PRESET"]]
    beats = 4 * AxiConfig.BURST_BEATS
    burst = dict(zip(BURST_FIELDS, (0, AxiConfig.BURST_BEATS - 1, 0, config.axi.data_bytes - 1, 0), strict=True))
    await start(dut, {"bursts__valid": 0, "read__ready": 0, "word": 0, "beats__ready": 0})
    layout = write_beat_layout(config.axi.data_bits)
    passed = StreamMonitor(dut.clk, dut, "beats", shape=layout)
    Memory(dut, np.random.default_rng(4), config.array.lanes, 0.0, latency)
    starts, rng = StoreBeats(config).bursts.payload.shape(), np.random.default_rng(5)
    cocotb.start_soon(send(dut.clk, dut, "bursts", [burst] * 4, rng, 0.0, shape=starts))
    await receive(dut.clk, dut, "beats", beats, rng, 0.0, shape=layout)
    assert passed.cycles[-1] - passed.cycles[0] == beats - 1, "a gap between two beats"
