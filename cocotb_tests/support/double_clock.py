"""The two clocks of a component that works twice a cycle, driven so that edges of both are one event."""

from __future__ import annotations

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import Timer

from lutterfly.hdl.parts.pumped_multipliers import DOUBLE

__all__ = ["edge", "start_clocks", "stop_between"]

#: Half a period of the faster clock, in ns.
_HALF_NS = 2


async def edge(dut) -> None:
    """A period from an edge of ``clk`` to just before the next one."""
    for is_both in (True, False):
        await _edge(dut, is_both=is_both)


async def stop_between(dut) -> None:
    """An edge of the faster clock alone."""
    await _edge(dut, is_both=False)


def start_clocks(dut) -> None:
    """Edges for ever, of both clocks if the component has both."""
    if hasattr(dut, f"{DOUBLE}_clk"):
        cocotb.start_soon(_run(dut))
    else:
        Clock(dut.clk, 4 * _HALF_NS, unit="ns").start()


async def _run(dut) -> None:
    while True:
        await edge(dut)


async def _edge(dut, *, is_both: bool) -> None:
    double = getattr(dut, f"{DOUBLE}_clk")
    double.value = 1
    dut.clk.value = int(is_both)
    await Timer(_HALF_NS, unit="ns")
    double.value = 0
    await Timer(_HALF_NS, unit="ns")
