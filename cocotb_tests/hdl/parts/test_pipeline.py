# amaranth: UnusedElaboratable=no
"""Delay lines and trees of registers: each lane sees the value of so many cycles ago, from a register of its own."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cocotb_tests.support.benches.clocking import cycle, start
from lutterfly.hdl.parts.pipeline import copy_of, delay, parts, spread

LANES, WIDTH = 5, 3


class Delayed(wiring.Component):
    """A value, delayed and spread by as many cycles."""

    def __init__(self, cycles: int):
        self.cycles = cycles
        super().__init__({"value": In(WIDTH), "late": Out(WIDTH), "lanes": Out(LANES * WIDTH)})

    def elaborate(self, platform) -> Module:
        m = Module()
        copies = spread(m, self.value, LANES, cycles=self.cycles, name="copy")
        m.d.comb += [
            self.late.eq(delay(m, self.value, self.cycles, name="late")),
            self.lanes.eq(Cat(copies)),
        ]
        return m


@pytest.mark.parametrize("cycles", [1, 2, 3])
def test_delays(simulate, cycles: int) -> None:
    simulate(Delayed(cycles), env={"CYCLES": str(cycles)})


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_lane_is_as_late(dut) -> None:
    cycles = int(os.environ["CYCLES"])
    values = np.random.default_rng(7).integers(0, 1 << WIDTH, 60).tolist()
    await start(dut, {"value": 0})
    found = [await cycle(dut, {"value": value}, "late", "lanes") for value in values]
    everywhere = sum(1 << WIDTH * lane for lane in range(LANES))
    assert found[cycles:] == [[value, value * everywhere] for value in values[:-cycles]]


def test_nothing_is_delayed_by_no_cycle() -> None:
    value = Signal(WIDTH)
    assert delay(Module(), value, 0, name="late") is value
    assert all(copy is value for copy in spread(Module(), value, LANES, cycles=0, name="copy"))


@pytest.mark.parametrize("shape", [unsigned(1), unsigned(4)])
def test_copies_differ_in_every_bit_at_first(shape) -> None:
    first, second = (copy_of(Signal(shape), number, name=f"copy_{number}") for number in range(2))
    assert first.init ^ second.init == (1 << shape.width) - 1


def test_lanes_take_the_copy_beside_them() -> None:
    lanes = spread(Module(), Signal(), 8, cycles=2, name="copy")
    places = list(map(id, lanes))
    assert [places.index(place) for place in places] == [0, 0, 2, 2, 4, 4, 6, 6]


@pytest.mark.parametrize(("width", "sizes"), [(1, [1]), (127, [127]), (128, [64, 64]), (200, [66, 67, 67])])
def test_parts_are_all_bits_of_a_word(width: int, sizes: list[int]) -> None:
    found = parts(width)
    assert [part.stop - part.start for part in found] == sizes
    assert [bit for part in found for bit in range(width)[part]] == list(range(width))
