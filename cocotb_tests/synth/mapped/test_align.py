"""Factors at the upper pins of multipliers: the same products, with fewer wires."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lutterfly.synth.mapped.align import align_factors

FACTOR_BITS, PRODUCT_BITS = 18, 36
FIRST_OF_SIDE = {"A": 100, "B": 200}
PRODUCT = 300


def netlist(widths: dict[str, int], signed: dict[str, bool], ports: tuple[int, ...] = ()) -> dict[str, Any]:
    """A multiplier in the form of Yosys, with a table at each bit of its product; some bits are ports."""
    pins: dict[str, list[int | str]] = {}
    for side, first in FIRST_OF_SIDE.items():
        factor = [first + index for index in range(widths[side])]
        more = factor[-1] if signed[side] else "0"
        for index, bit in enumerate([*factor, *[more] * (FACTOR_BITS - widths[side])]):
            pins[f"{side}{index}"] = [bit]
        pins[f"SIGNED{side}"] = ["1" if signed[side] else "0"]
    products = {f"P{index}": [PRODUCT + index] for index in range(PRODUCT_BITS)}
    cells: dict[str, Any] = {
        "mult": {
            "type": "MULT18X18D",
            "parameters": {},
            "port_directions": dict.fromkeys(pins, "input") | dict.fromkeys(products, "output"),
            "connections": pins | products,
        }
    }
    for index in range(PRODUCT_BITS):
        cells[f"reads_{index}"] = {
            "type": "LUT4",
            "parameters": {},
            "port_directions": {"A": "input"},
            "connections": {"A": [PRODUCT + index]},
        }
    return {
        "modules": {
            "top": {
                "cells": cells,
                "ports": {"out": {"direction": "output", "bits": [PRODUCT + index for index in ports]}},
            }
        }
    }


def product_read(found: dict[str, Any], factors: dict[str, int]) -> int:
    """What the tables read, of the values of both factors' nets."""
    cells = found["modules"]["top"]["cells"]
    pins = {port: bits[0] for port, bits in cells["mult"]["connections"].items()}
    value = 1
    for side, first in FIRST_OF_SIDE.items():
        levels = [
            int(bit) if isinstance(bit, str) else factors[side] >> (bit - first) & 1
            for bit in (pins[f"{side}{index}"] for index in range(FACTOR_BITS))
        ]
        factor = sum(level << index for index, level in enumerate(levels))
        value *= factor - (levels[-1] << FACTOR_BITS if pins[f"SIGNED{side}"] == "1" else 0)
    driven = {pins[f"P{index}"]: value >> index & 1 for index in range(PRODUCT_BITS)}
    assert len(driven) == PRODUCT_BITS
    return sum(driven[cells[f"reads_{index}"]["connections"]["A"][0]] << index for index in range(PRODUCT_BITS))


@pytest.mark.regress
@given(st.data())
def test_products_stay_and_copies_of_signs_go(data: st.DataObject) -> None:
    widths = {side: data.draw(st.integers(1, FACTOR_BITS), f"bits of {side}") for side in FIRST_OF_SIDE}
    signed = {side: data.draw(st.booleans(), f"{side} is signed") for side in FIRST_OF_SIDE}
    before = netlist(widths, signed)
    after = copy.deepcopy(before)
    copies = sum(FACTOR_BITS - widths[side] for side in FIRST_OF_SIDE if signed[side])
    assert align_factors(after) == copies
    pins = after["modules"]["top"]["cells"]["mult"]["connections"]
    for side, width in widths.items():
        wires = [bit for index in range(FACTOR_BITS) if isinstance(bit := pins[f"{side}{index}"][0], int)]
        assert len(wires) == len(set(wires)) == width
    for _ in range(8):
        # Extremes among them: the least times the least is the one product that needs all bits.
        drawn = {
            side: data.draw(
                st.one_of(st.sampled_from([0, 1 << bits - 1, (1 << bits) - 1]), st.integers(0, 2**bits - 1))
            )
            for side, bits in widths.items()
        }
        assert product_read(after, drawn) == product_read(before, drawn)


def test_a_factor_of_one_net_alone_has_one_wire() -> None:
    # All pins are copies of the sign of a factor that is 0 or -1.
    after = netlist({"A": 1, "B": 18}, {"A": True, "B": True})
    assert align_factors(after) == FACTOR_BITS - 1
    pins = after["modules"]["top"]["cells"]["mult"]["connections"]
    assert [pins[f"A{index}"] for index in (0, 16, 17)] == [["0"], ["0"], [FIRST_OF_SIDE["A"]]]


@pytest.mark.parametrize(("port", "moves"), [(15, True), (16, False), (35, False)])
def test_a_copy_of_the_sign_that_is_a_port_keeps_all_in_place(port: int, moves: bool) -> None:
    before = netlist({"A": 8, "B": 8}, {"A": True, "B": True}, (port,))
    after = copy.deepcopy(before)
    assert align_factors(after) == (20 if moves else 0)
    assert (after != before) == moves
