# amaranth: UnusedElaboratable=no
"""Both simulators do the same with a test: when values are seen and edges told, limits, and what the design asserts."""

from __future__ import annotations

import random

import cocotb
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Event, FallingEdge, First, ReadOnly, RisingEdge, Timer, gather
from cocotb.utils import get_sim_time

from lutterfly.hdl.parts.pipeline import Assertions

WIDE = 70


class Adder(wiring.Component):
    """Registers behind a sum and beside it; ``wrong`` must never be."""

    def __init__(self):
        super().__init__(
            {
                "value": In(signed(8)),
                "wide": In(WIDE),
                "wrong": In(1),
                "sum": Out(signed(8)),
                "total": Out(signed(8)),
                "last": Out(WIDE),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        total = Signal(signed(8))
        m.d.comb += [self.sum.eq(self.value + total), self.total.eq(total)]
        m.d.sync += [total.eq(self.sum), self.last.eq(self.wide)]
        Assertions(m, platform).never(self.wrong, "something wrong")
        return m


IN_BOTH = pytest.mark.parametrize(
    "simulator", ["chosen", pytest.param("Verilator", marks=[pytest.mark.verilator, pytest.mark.regress])]
)
PASSING = (
    "an_edge_is_told_before_registers_take_it",
    "what_is_written_with_the_clock_is_taken_by_its_edge",
    "what_is_read_only_has_settled",
    "tasks_wait_for_the_first_and_for_all",
    "values_have_the_types_of_their_widths",
    "seeds_are_those_of_the_test",
)


@IN_BOTH
@pytest.mark.parametrize("testcase", PASSING)
def test_order_and_values(simulate, simulator: str, testcase: str) -> None:
    simulate(Adder(), testcase=testcase)


@IN_BOTH
@pytest.mark.parametrize(
    ("testcase", "message"),
    [
        ("a_hang", "SimTimeoutError"),
        ("a_wrong_value", "assert .*== 4"),
        ("a_task_that_fails", "of a task"),
        ("what_must_never_be", "(?i)assert|something wrong"),
    ],
)
def test_what_fails_is_said_and_the_next_run_is_whole(simulate, simulator: str, testcase: str, message: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=message):
        simulate(Adder(), testcase=testcase)
    simulate(Adder(), testcase=PASSING[0])


def test_a_test_that_is_not_there_is_no_success(simulate) -> None:
    with pytest.raises((pytest.fail.Exception, AssertionError)):
        simulate(Adder(), testcase="nothing")


async def begin(dut) -> None:
    """A clock of 10 ns and a reset; the next edge is 10 ns away."""
    dut.value.value = dut.wide.value = dut.wrong.value = 0
    Clock(dut.clk, 10, unit="ns").start()
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


@cocotb.test(timeout_time=1, timeout_unit="us")
async def an_edge_is_told_before_registers_take_it(dut) -> None:
    await begin(dut)
    dut.value.value = 5
    assert int(dut.value.value) == 0, "what is written is not there before the others have been told"
    await RisingEdge(dut.clk)
    assert dut.total.value.to_signed() == 0
    # Taken at the next edge, not at this one.
    dut.value.value = -7
    await FallingEdge(dut.clk)
    assert dut.total.value.to_signed() == 5
    assert dut.sum.value.to_signed() == -2
    await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    assert dut.total.value.to_signed() == -2


@cocotb.test(timeout_time=1, timeout_unit="us")
async def what_is_written_with_the_clock_is_taken_by_its_edge(dut) -> None:
    dut.value.value = dut.wide.value = dut.wrong.value = dut.rst.value = dut.clk.value = 0
    await Timer(5, unit="ns")
    before = dut.total.value.to_signed()
    dut.value.value, dut.clk.value = 3, 1
    await ReadOnly()
    assert dut.total.value.to_signed() == before + 3


@cocotb.test(timeout_time=1, timeout_unit="us")
async def what_is_read_only_has_settled(dut) -> None:
    await begin(dut)
    start = get_sim_time("ns")
    dut.value.value = 1
    await ReadOnly()
    assert (dut.sum.value.to_signed(), dut.total.value.to_signed()) == (1, 0)
    assert get_sim_time("ns") == start
    with pytest.raises(RuntimeError, match="ReadOnly"):
        dut.value.value = 2
    await RisingEdge(dut.clk)
    await ReadOnly()
    assert (dut.sum.value.to_signed(), dut.total.value.to_signed()) == (2, 1)
    await ClockCycles(dut.clk, 4)
    assert get_sim_time("ns") == start + 50


@cocotb.test(timeout_time=1, timeout_unit="us")
async def tasks_wait_for_the_first_and_for_all(dut) -> None:
    await begin(dut)
    start, order, heard = get_sim_time("ns"), [], Event()

    async def after(edges: int) -> int:
        for _ in range(edges):
            await RisingEdge(dut.clk)
        order.append(edges)
        return edges

    tasks = [cocotb.start_soon(after(edges)) for edges in (3, 1, 2, 9)]
    assert order == []
    tasks[3].cancel()
    falling = FallingEdge(dut.clk)
    assert await First(falling, RisingEdge(dut.clk)) is falling
    assert await gather(*tasks[:3]) == (3, 1, 2)
    assert (order, get_sim_time("ns")) == ([1, 2, 3], start + 30)
    cocotb.start_soon(_set_later(heard))
    await heard.wait()
    assert get_sim_time("ns") == start + 34


async def _set_later(event: Event) -> None:
    await Timer(4, unit="ns")
    event.set()


@cocotb.test(timeout_time=1, timeout_unit="us")
async def values_have_the_types_of_their_widths(dut) -> None:
    await begin(dut)
    dut.wide.value, dut.value.value = 1 << WIDE - 1 | 5, -128
    await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    last = dut.last.value
    assert last.is_resolvable
    assert (last.to_unsigned(), last.to_signed()) == (1 << WIDE - 1 | 5, -(1 << WIDE - 1) + 5)
    assert (last[WIDE - 1], last[3:0].to_unsigned()) == (1, 5)
    assert (dut.total.value.to_signed(), dut.total.value.to_unsigned()) == (-128, 128)
    assert int(dut.wrong.value) == 0
    with pytest.raises(ValueError, match="out of range"):
        dut.value.value = 256
    assert not hasattr(dut, "nothing")


@cocotb.test(timeout_time=1, timeout_unit="us")
async def seeds_are_those_of_the_test(dut) -> None:
    await Timer(1, unit="ns")
    assert random.random() == random.Random(cocotb.RANDOM_SEED).random()


@cocotb.test(timeout_time=200, timeout_unit="ns")
async def a_hang(dut) -> None:
    await begin(dut)
    await RisingEdge(dut.wrong)


@cocotb.test(timeout_time=1, timeout_unit="us")
async def a_wrong_value(dut) -> None:
    await begin(dut)
    # In the middle of an instant in which nothing may be written: the next run does not begin there.
    await ReadOnly()
    assert dut.total.value.to_signed() == 4


@cocotb.test(timeout_time=1, timeout_unit="us")
async def a_task_that_fails(dut) -> None:
    async def fail() -> None:
        await Timer(3, unit="ns")
        raise ValueError("of a task")

    await begin(dut)
    cocotb.start_soon(fail())
    await ClockCycles(dut.clk, 20)


@cocotb.test(timeout_time=1, timeout_unit="us")
async def what_must_never_be(dut) -> None:
    await begin(dut)
    dut.wrong.value = 1
    await ClockCycles(dut.clk, 5)
