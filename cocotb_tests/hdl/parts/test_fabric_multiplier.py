# amaranth: UnusedElaboratable=no
"""The multiplier of look-up tables: products, and as late as a block's."""

from __future__ import annotations

import itertools
import os

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from lutterfly.hdl.parts.device import MULTIPLIER_LATENCY, Multiplier
from lutterfly.hdl.parts.fabric_multiplier import FabricMultiplier

WIDTHS = {
    "array": (8, 8),
    "odd": (9, 7),
    "least": (3, 3),
    "four rows": (8, 4),
    "six rows": (18, 5),
    "winograd": (9, 10),
    "nine": (4, 9),
}


@pytest.mark.parametrize("name", WIDTHS)
def test_multiplies_as_a_block_does(simulate, name: str) -> None:
    a_width, b_width = WIDTHS[name]
    dut = FabricMultiplier(a_width=a_width, b_width=b_width)
    assert dut.signature == Multiplier(a_width=a_width, b_width=b_width).signature
    simulate(dut, env={"WIDTHS": name})


@pytest.mark.parametrize("b_width", [2, 11])
def test_three_levels_of_sums_are_for_so_many_rows(b_width: int) -> None:
    with pytest.raises(ValueError, match=rf"^b_width must be between 3 and 10, not {b_width}$"):
        FabricMultiplier(a_width=8, b_width=b_width)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def products(dut) -> None:
    widths = WIDTHS[os.environ["WIDTHS"]]
    limits = [(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in widths]
    rng = np.random.default_rng(5)
    edges = ((low, low + 1, -1, 0, 1, high) for low, high in limits)
    drawn = zip(*(rng.integers(low, high + 1, 3000) for low, high in limits), strict=True)
    pairs = [
        *itertools.product(*edges),
        *((a, b) for a in limits[0] for b in range(limits[1][0], limits[1][1] + 1)),
        *((int(a), int(b)) for a, b in drawn),
    ]
    Clock(dut.clk, 10, unit="ns").start()
    found = []
    for a, b in [*pairs, *[(0, 0)] * MULTIPLIER_LATENCY]:
        dut.a.value, dut.b.value = (value & (1 << bits) - 1 for value, bits in zip((a, b), widths, strict=True))
        await FallingEdge(dut.clk)
        found.append(dut.product.value)
        await RisingEdge(dut.clk)
    assert [value.to_signed() for value in found[MULTIPLIER_LATENCY:]] == [a * b for a, b in pairs]
