"""The two clocks of a component that works twice a cycle, driven so that edges of both are one event."""

from __future__ import annotations

from collections.abc import Callable

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import Timer

from lutterfly.hdl.parts.device import DOUBLE

__all__ = ["between", "rest", "rise", "start_clocks"]

#: Half a period of the faster clock, in ns.
_HALF_NS = 2


async def rise(dut) -> None:
    """An edge of both clocks, and what they need to take what stood before it."""
    await _rise(dut, is_both=True)


async def rest(dut, change: Callable[[], None] = lambda: None) -> None:
    """What is left of a period after :func:`rise`: an edge of the faster clock alone, and what changes with it."""
    await _fall(dut)
    await _rise(dut, is_both=False)
    change()
    await _fall(dut)


async def between(dut) -> None:
    """An edge of the faster clock alone."""
    await _rise(dut, is_both=False)
    await _fall(dut)


def start_clocks(dut) -> None:
    """Edges for ever, of both clocks if the component has both."""
    if hasattr(dut, f"{DOUBLE}_clk"):
        cocotb.start_soon(_run(dut))
    else:
        Clock(dut.clk, 4 * _HALF_NS, unit="ns").start()


async def _run(dut) -> None:
    while True:
        await rise(dut)
        await rest(dut)


async def _rise(dut, *, is_both: bool) -> None:
    getattr(dut, f"{DOUBLE}_clk").value = 1
    dut.clk.value = int(is_both)
    await Timer(_HALF_NS, unit="ns")


async def _fall(dut) -> None:
    getattr(dut, f"{DOUBLE}_clk").value = 0
    await Timer(_HALF_NS, unit="ns")
