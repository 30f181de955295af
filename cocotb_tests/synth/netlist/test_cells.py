"""What no model describes is refused, by the cell's name."""

from __future__ import annotations

from typing import Any

import pytest

from lutterfly.synth.netlist import NetlistError, netlist_verilog
from lutterfly.synth.netlist.translate import CELLS, check, setting

RAM_PINS: dict[str, list[int | str]] = {"CLKA": [2], "CLKB": [2], "WEB": ["0"], "RSTA": ["0"], "CSA0": ["0"]}


def cell(kind: str, parameters: dict[str, str], pins: dict[str, list[int | str]] | None = None) -> dict[str, Any]:
    return {"type": kind, "parameters": parameters, "connections": pins or {}}


@pytest.mark.parametrize(
    ("kind", "parameters", "pins", "wrong"),
    [
        ("TRELLIS_FF", {"CLKMUX": "INV"}, {}, "CLKMUX must be CLK, not INV"),
        ("TRELLIS_FF", {"CEMUX": "0 "}, {}, "CEMUX must be 1 or CE or INV, not 0"),
        ("TRELLIS_FF", {"GSR": "ENABLED"}, {}, "GSR must be DISABLED, not ENABLED"),
        ("TRELLIS_FF", {"SRMODE": "CE_OVER_LSR"}, {}, "SRMODE must be ASYNC or LSR_OVER_CE, not CE_OVER_LSR"),
        ("TRELLIS_FF", {"LSRMODE": "PRLD"}, {}, "LSRMODE must be left out, not PRLD"),
        ("CCU2C", {"INJECT1_0": "MAYBE"}, {}, "INJECT1_0 must be NO or YES, not MAYBE"),
        ("MULT18X18D", {"REG_OUTPUT_CLK": "CLK1"}, {}, "REG_OUTPUT_CLK must be CLK0 or NONE, not CLK1"),
        ("MULT18X18D", {"CLK0_DIV": "DISABLED"}, {}, "CLK0_DIV must be ENABLED, not DISABLED"),
        ("MULT18X18D", {"MULT_BYPASS": "ENABLED"}, {}, "MULT_BYPASS must be left out, not ENABLED"),
        ("MULT18X18D", {}, {"SOURCEA": ["1"]}, "SOURCEA must be tied to 0"),
        ("DP16KD", {"DATA_WIDTH_A": f"{12:b}"}, RAM_PINS, "DATA_WIDTH_A must be 1 or 18 or 2 or 36 or 4 or 9, not 12"),
        ("DP16KD", {"CSDECODE_A": "0b001"}, RAM_PINS, "CSDECODE_A must be 0b000, not 0b001"),
        ("DP16KD", {"REGMODE_B": "LATCH"}, RAM_PINS, "REGMODE_B must be NOREG or OUTREG, not LATCH"),
        ("DP16KD", {}, RAM_PINS | {"RSTA": [7]}, "RSTA must be tied to 0"),
        ("DP16KD", {}, RAM_PINS | {"CLKB": [3]}, "CLKB must be CLKA's net"),
        ("DP16KD", {"DATA_WIDTH_A": f"{36:b}"}, RAM_PINS | {"WEB": [9]}, "WEB must be tied to 0 where port A writes"),
        ("DP16KD", {"DATA_WIDTH_B": f"{36:b}"}, RAM_PINS, "DATA_WIDTH_A must be 36 where DATA_WIDTH_B is, not 18"),
        (
            "DP16KD",
            {"DATA_WIDTH_A": f"{36:b}", "DATA_WIDTH_B": f"{36:b}", "REGMODE_B": "OUTREG"},
            RAM_PINS,
            "REGMODE_A must be REGMODE_B where DATA_WIDTH_B is 36, not NOREG",
        ),
        ("EHXPLLL", {"FEEDBK_PATH": "INT_OP"}, {}, "FEEDBK_PATH must be CLKOP, not INT_OP"),
    ],
)
def test_settings_that_are_not_described(kind: str, parameters: dict[str, str], pins: dict, wrong: str) -> None:
    with pytest.raises(NetlistError, match=rf"^one: {wrong}.*: the model of {kind} describes nothing else$"):
        check("one", cell(kind, parameters, pins))


@pytest.mark.parametrize("kind", CELLS)
def test_defaults_are_described(kind: str) -> None:
    check("one", cell(kind, {}, RAM_PINS if kind == "DP16KD" else {}))


def test_other_cells_are_refused() -> None:
    netlist = {"modules": {"top": {"ports": {}, "cells": {"sum": cell("ALU54B", {})}}}}
    with pytest.raises(NetlistError, match=r"^sum: type must be one of LUT4, .*, not ALU54B; add a model of it$"):
        netlist_verilog(netlist)


def test_words_that_look_like_bits() -> None:
    assert setting(cell("TRELLIS_FF", {"CEMUX": "1 "}), "CEMUX") == "1"
