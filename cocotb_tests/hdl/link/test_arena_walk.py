"""Byte after byte of the arena, at the arena's pace."""

from __future__ import annotations

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import StreamMonitor
from lutterfly.hdl.link.bridge import ArenaWalk

BITS = 12


def test_walk(simulate) -> None:
    simulate(ArenaWalk(BITS))


class Walk:
    """An arena that takes a request at random, and a frame's bytes."""

    def __init__(self, dut, seed: int, p_stall: float):
        self.dut = dut
        self.rng = np.random.default_rng(seed)
        self.p_stall = p_stall
        self.arena = bytearray(self.rng.bytes(1 << BITS))
        self.frame = self.rng.bytes(1024)

    async def begin(self) -> None:
        names = ("load", "address", "length", "ask", "write", "buffered")
        host = ("host__request__ready", "host__answer__valid", "host__answer__payload")
        await start(self.dut, dict.fromkeys((*names, *host), 0))
        self.watch = StreamMonitor(self.dut.clk, self.dut, "host__request")
        cocotb.start_soon(self._arena())
        cocotb.start_soon(self._frame())

    async def _arena(self) -> None:
        dut = self.dut
        while True:
            dut.host__request__ready.value = bool(self.rng.random() >= self.p_stall)
            await FallingEdge(dut.clk)
            taken = dut.host__request__ready.value == 1 and dut.host__request__valid.value == 1
            request = int(dut.host__request__payload.value) if taken else 0
            await RisingEdge(dut.clk)
            if not taken:
                continue
            dut.host__request__ready.value = 0
            address = request & (1 << BITS) - 1
            if request >> BITS & 1:
                self.arena[address] = request >> BITS + 1
                continue
            for _ in range(int(self.rng.integers(1, 6))):
                await RisingEdge(dut.clk)
            dut.host__answer__valid.value, dut.host__answer__payload.value = 1, self.arena[address]
            await RisingEdge(dut.clk)
            dut.host__answer__valid.value = 0

    async def _frame(self) -> None:
        place = before = 0
        while True:
            await FallingEdge(self.dut.clk)
            place, before = int(self.dut.place.value), place
            await RisingEdge(self.dut.clk)
            self.dut.buffered.value = self.frame[before]

    async def load(self, address: int, length: int) -> None:
        self.dut.address.value, self.dut.length.value, self.dut.load.value = address, length, 1
        await RisingEdge(self.dut.clk)
        self.dut.load.value = 0

    async def until(self, name: str, *names: str) -> list[int]:
        for _ in range(1000):
            await FallingEdge(self.dut.clk)
            values = [int(getattr(self.dut, one).value) for one in (name, *names)]
            await RisingEdge(self.dut.clk)
            if values[0]:
                return values[1:]
        raise AssertionError(f"{name} stays low")


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.6])
async def ranges_are_read_and_written(dut, p_stall: float) -> None:
    walk = Walk(dut, 1, p_stall)
    await walk.begin()
    for address, length in ((0, 1), (5, 2), (100, 77), ((1 << BITS) - 30, 30), (0, 300)):
        await walk.load(address, length)
        dut.ask.value = 1
        found = [await walk.until("byte__valid", "byte__payload", "last") for _ in range(length)]
        dut.ask.value = 0
        assert bytes(byte for byte, _ in found) == walk.arena[address : address + length]
        assert [last for _, last in found] == [0] * (length - 1) + [1]
        expected = bytearray(walk.arena)
        expected[address : address + length] = walk.frame[:length]
        await walk.load(address, length)
        dut.write.value = 1
        for _ in range(length):
            requests = len(walk.watch.words)
            while len(walk.watch.words) == requests:
                await FallingEdge(dut.clk)
                written = dut.written.value == 1
                await RisingEdge(dut.clk)
                if written:
                    break
        dut.write.value = 0
        assert written
        for _ in range(10):
            await RisingEdge(dut.clk)
        assert walk.arena == expected


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def nothing_is_asked_for_without_being_told(dut) -> None:
    walk = Walk(dut, 1, 0.0)
    await walk.begin()
    await walk.load(3, 3)
    for _ in range(50):
        await RisingEdge(dut.clk)
    assert walk.watch.words == []
