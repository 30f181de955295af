"""A component's clock, or both of one that works twice a cycle: started, and driven cycle by cycle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, RisingEdge, Timer

from lutterfly.hdl.parts.device import DOUBLE


async def start(dut: HierarchyObject, inputs: Mapping[str, int]) -> None:
    """Set ``inputs``, start the clock and reset for one cycle."""
    for name, value in inputs.items():
        getattr(dut, name).value = value
    Clock(dut.clk, 10, unit="ns").start()
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    dut.rst.value = 0


async def cycle(dut: HierarchyObject, inputs: Mapping[str, int], *outputs: str) -> list[Any]:
    """Set ``inputs`` for one cycle; the values of ``outputs`` late in it, None for one that is not resolved."""
    for name, value in inputs.items():
        getattr(dut, name).value = value
    await FallingEdge(dut.clk)
    values = [getattr(dut, name).value for name in outputs]
    await RisingEdge(dut.clk)
    return [int(value) if value.is_resolvable else None for value in values]


# The two clocks of a component that works twice a cycle, driven so that edges of both are one event.

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
