# amaranth: UnusedElaboratable=no
"""Multipliers that work twice a cycle: the products of two columns, as late as those of blocks of their own."""

from __future__ import annotations

import itertools
import os

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from cocotb_tests.support.benches.clocking import between, rest, rise
from cocotb_tests.support.tiers import sweep
from lutterfly.hdl.engines.multipliers import connect_pumped
from lutterfly.hdl.parts.device import MULTIPLIER_LATENCY, MultiplierBank, PumpedMultipliers

LANES = 3
#: Bits of both factors, for each of the two columns.
WIDTHS = {
    "array": ((8, 8), (8, 8)),
    "borrowed": ((9, 9), (9, 8)),
    "first wider": ((9, 8), (8, 8)),
    "second wider": ((3, 4), (7, 10)),
    "winograd": ((9, 10), (9, 10)),
}


class TwoPairs(wiring.Component):
    """Two of them, one behind the other, and what tells them whose turn it is."""

    def __init__(self, banks: tuple[MultiplierBank, MultiplierBank]):
        super().__init__({f"pair_{pair}_{place}": In(banks[place]) for pair in range(2) for place in range(2)})

    def elaborate(self, platform) -> Module:
        m = Module()
        banks = [[wiring.flipped(getattr(self, f"pair_{pair}_{place}")) for place in range(2)] for pair in range(2)]
        connect_pumped(m, [tuple(pair) for pair in banks])
        return m


@pytest.mark.sampled(1)
@pytest.mark.parametrize("starts", sweep(["together", "late"], kept=["late"]))
@pytest.mark.parametrize("is_early", sweep([False, True], kept=[True]))
@pytest.mark.parametrize("name", WIDTHS)
def test_multiply_as_blocks_do(simulate, name: str, is_early: bool, starts: str) -> None:
    """For a whole cycle, also if the clock `double` has begun an edge earlier than `sync`."""
    banks = tuple(
        MultiplierBank(LANES, a_width=a, b_width=b, is_early=is_early and not place)
        for place, (a, b) in enumerate(WIDTHS[name])
    )
    simulate(TwoPairs(banks), env={"WIDTHS": name, "STARTS": starts, "EARLY": "1" * is_early})


def test_the_second_bank_is_not_early() -> None:
    early, late = (MultiplierBank(LANES, a_width=8, b_width=8, is_early=is_early) for is_early in (True, False))
    PumpedMultipliers((early, late))
    with pytest.raises(ValueError, match="only those of the first one can be early"):
        PumpedMultipliers((late, early))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def products(dut) -> None:
    widths, rng = WIDTHS[os.environ["WIDTHS"]], np.random.default_rng(3)
    limits = [[(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in of_bank] for of_bank in widths]
    ports = list(itertools.product(range(2), range(2), range(LANES)))

    def drawn(limit: tuple[int, int]) -> int:
        low, high = limit
        return int(rng.choice([low, low + 1, -1, 0, 1, high, *rng.integers(low, high + 1, 6)]))

    given = [[tuple(map(drawn, limits[place])) for _, place, _ in ports] for _ in range(600)]
    found = []
    if os.environ["STARTS"] == "late":
        await between(dut)
    # Until it has been heard everywhere whose turn it is.
    for _ in range(4 * LANES + 4):
        await rise(dut)
        await rest(dut)
    for factors in [*given, *[[(0, 0)] * len(ports)] * MULTIPLIER_LATENCY]:
        await rise(dut)
        found.append({port: read(dut, widths, *port) for port in ports})
        # As registers of the slower clock change: after its edge, and before the next one of the faster one.
        for place in range(2):
            give(dut, widths, place, dict(zip(ports, factors, strict=True)))
        # Those of the faster one have taken anything in the middle of a cycle.
        noise = {port: tuple(map(drawn, limits[port[1]])) for port in ports}
        await rest(dut, *([lambda values=noise: give(dut, widths, 0, values)] if os.environ["EARLY"] else []))
        assert {port: read(dut, widths, *port) for port in ports} == found[-1]
    for factors, products_ in zip(given, found[MULTIPLIER_LATENCY:], strict=True):
        assert products_ == {port: a * b for port, (a, b) in zip(ports, factors, strict=True)}


def give(dut, widths, place: int, values: dict[tuple[int, int, int], tuple[int, int]]) -> None:
    """Factors, by pair, place and lane, to the ports of all pairs at this place."""
    for pair, (index, name) in itertools.product(range(2), enumerate("ab")):
        bits, word = widths[place][index], 0
        for lane in range(LANES):
            word |= (values[pair, place, lane][index] & (1 << bits) - 1) << bits * lane
        getattr(dut, f"pair_{pair}_{place}__{name}").value = word


def read(dut, widths, pair: int, place: int, lane: int) -> int:
    """A product as it stands after an edge of both clocks."""
    bits = sum(widths[place])
    word = getattr(dut, f"pair_{pair}_{place}__products").value.to_unsigned()
    product = word >> bits * lane & (1 << bits) - 1
    return product - (1 << bits if product >> bits - 1 else 0)
