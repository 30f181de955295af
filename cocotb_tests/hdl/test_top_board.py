"""The top of a board: its reset follows the PLL's lock, and its lights and held pins have the board's levels."""

from __future__ import annotations

import json
import os

import cocotb
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from lutterfly.hdl.parts.pll import Pll
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.hdl.top_board import RESET_CYCLES, TopBoard


class Counter(wiring.Component):
    """In place of the accelerator: counts clocks since the reset; is busy at even ones, in error from the third on."""

    def __init__(self) -> None:
        super().__init__({"rx": In(1), "tx": Out(1, init=1), "busy": Out(1), "error": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        clocks = Signal(8)
        m.d.sync += [clocks.eq(clocks + 1), self.tx.eq(self.rx)]
        m.d.comb += [self.busy.eq(~clocks[0]), self.error.eq(clocks >= 3)]
        return m


class Lockable(wiring.Component):
    """A PLL whose lock a pin says."""

    def __init__(self, locked: Signal) -> None:
        self.pin = locked
        super().__init__({"clock_in": In(1), "clock_out": Out(1), "locked": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += [self.clock_out.eq(self.clock_in), self.locked.eq(self.pin)]
        return m


class Bench(wiring.Component):
    """A board with a pin for its PLL's lock."""

    def __init__(self, **options) -> None:
        self.pin = Signal()
        self.board = TopBoard(Counter(), Lockable(self.pin), **options)
        super().__init__({"locked": In(1), **dict(self.board.signature.members)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.board = self.board
        m.d.comb += [self.pin.eq(self.locked), self.board.clock.eq(self.clock), self.board.rx.eq(self.rx)]
        for name, member in self.board.signature.members.items():
            if member.flow is Out:
                m.d.comb += getattr(self, name).eq(getattr(self.board, name))
        return m


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"held": [1, 0]},
        {"inverted": ["busy", "error"], "held": [1]},
        {"has_error": False, "inverted": ["busy"]},
    ],
    ids=["plain", "held", "inverted", "one light"],
)
def test_boards(simulate, options: dict) -> None:
    simulate(Bench(**options), env={"OPTIONS": json.dumps(options)})


async def clock(dut, times: int = 1) -> None:
    for _ in range(times):
        for level in (0, 1):
            dut.clock.value = level
            await Timer(1, unit="ns")


def assert_levels(dut, busy: int, error: int) -> None:
    options = json.loads(os.environ["OPTIONS"])
    inverted = options.get("inverted", ())
    assert dut.busy.value == busy ^ ("busy" in inverted)
    if options.get("has_error", True):
        assert dut.error.value == error ^ ("error" in inverted)
    for number, level in enumerate(options.get("held", ())):
        assert getattr(dut, f"held_{number}").value == level


@cocotb.test(timeout_time=10, timeout_unit="us")
async def reset_lasts_until_the_clock_is_steady(dut) -> None:
    dut.locked.value, dut.rx.value, dut.clock.value = 0, 0, 0
    await Timer(1, unit="ns")
    for _ in range(2):
        # The first clock takes the reset.
        await clock(dut)
        for _ in range(20):
            await clock(dut)
            assert_levels(dut, busy=1, error=0)
            assert dut.tx.value == 1
        dut.locked.value = 1
        for number in range(RESET_CYCLES):
            await clock(dut)
            assert_levels(dut, busy=1, error=0)
            assert dut.tx.value == 1, number
        for count in range(1, 20):
            await clock(dut)
            assert_levels(dut, busy=count % 2 == 0, error=count >= 3)
            assert dut.tx.value == 0
        # Lost, and found again: without an edge of the clock in between, too.
        dut.locked.value = 0
        await Timer(1, unit="ns")


@cocotb.test(timeout_time=10, timeout_unit="us")
async def a_short_loss_of_the_clock_is_a_whole_reset(dut) -> None:
    dut.locked.value, dut.rx.value = 1, 0
    await clock(dut, 20)
    assert dut.tx.value == 0
    dut.locked.value = 0
    await Timer(100, unit="ps")
    dut.locked.value = 1
    await Timer(100, unit="ps")
    for _ in range(RESET_CYCLES):
        await clock(dut)
        assert dut.tx.value == 1
    await clock(dut)
    assert dut.tx.value == 0


def test_there_is_no_pin_but_those_of_the_board() -> None:
    top = TopBoard(Counter(), Pll(25_000_000, 100_000_000), held=[1])
    text = to_verilog(top, name="top")
    head = text[text.rindex("module top(") :].partition(";")[0]
    assert sorted(head.removeprefix("module top(").rstrip(")").split(", ")) == sorted(top.signature.members)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"held": [2]}, r"^held must be levels of 0 and 1, not 2$"),
        ({"inverted": ["held_0"]}, r"^inverted must be some of tx, busy, error, not held_0$"),
        ({"inverted": ["error"], "has_error": False}, r"^inverted must be some of tx, busy, not error$"),
    ],
)
def test_refusals(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TopBoard(Counter(), Pll(25_000_000, 100_000_000), **options)
