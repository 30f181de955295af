"""A component's clock: started, and driven cycle by cycle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cocotb.clock import Clock
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, RisingEdge


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
