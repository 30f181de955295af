"""Which cells of an ECP5 the models beside this file describe, and in which settings; all others are refused.

Sources: Lattice FPGA-TN-02204 (memory usage guide) and FPGA-TN-02205 (sysDSP usage guide).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Cell = Mapping[str, Any]
#: Settings of a parameter; None is any.
Settings = Mapping[str, frozenset[str] | None]


class NetlistError(ValueError):
    """A netlist has a cell, or a setting of one, that no model describes; the message names both."""


@dataclass(frozen=True, slots=True)
class Description:
    """What is described of a type of cell.

    Attributes
    ----------
    settings : mapping of str to frozenset of str, or None
        The values of each parameter by its pattern; None for any.
    tied : mapping of str to str
        Pins, by their pattern, that must be at a level.
    """

    settings: Settings
    tied: Mapping[str, str] = field(default_factory=dict)


def _only(*values: str) -> frozenset[str]:
    return frozenset(values)


_WIDTHS = _only("1", "2", "4", "9", "18", "36")
CELLS: Mapping[str, Description] = {
    "LUT4": Description({"INIT": None}),
    "PFUMX": Description({}),
    "L6MUX21": Description({}),
    "CCU2C": Description({"INIT[01]": None, "INJECT1_[01]": _only("YES", "NO")}),
    "TRELLIS_FF": Description(
        {
            "CEMUX": _only("1", "CE", "INV"),
            "CLKMUX": _only("CLK"),
            "LSRMUX": _only("LSR"),
            "GSR": _only("DISABLED"),
            "REGSET": _only("SET", "RESET"),
            "SRMODE": _only("LSR_OVER_CE", "ASYNC"),
        }
    ),
    "TRELLIS_DPR16X4": Description({"INITVAL": None, "WCKMUX": _only("WCK"), "WREMUX": _only("WRE")}),
    "DP16KD": Description(
        {
            "DATA_WIDTH_[AB]": _WIDTHS,
            "REGMODE_[AB]": _only("NOREG", "OUTREG"),
            "WRITEMODE_[AB]": _only("NORMAL", "WRITETHROUGH", "READBEFOREWRITE"),
            "CSDECODE_[AB]": _only("0b000"),
            "CLKAMUX": _only("CLKA"),
            "CLKBMUX": _only("CLKB"),
            # Of resets, which are tied.
            "RESETMODE|ASYNC_RESET_RELEASE": None,
            "GSR": _only("DISABLED"),
            "INITVAL_[0-3][0-9A-F]": None,
        },
        {"RST[AB]|CS[AB][012]": "0"},
    ),
    "MULT18X18D": Description(
        {
            "REG_(INPUT[AB]|PIPELINE|OUTPUT)_CLK": _only("NONE", "CLK0"),
            "REG_(INPUT[AB]|PIPELINE|OUTPUT)_CE": _only("CE0"),
            "REG_(INPUT[AB]|PIPELINE|OUTPUT)_RST": _only("RST0"),
            # Of the clock at its full rate: disabled, registers take their inputs at both edges.
            "CLK0_DIV": _only("ENABLED"),
            "GSR": _only("DISABLED"),
        },
        {"SOURCE[AB]|C[0-9]+": "0"},
    ),
    "EHXPLLL": Description(
        {
            "CLK(I|FB|OP|OS|OS2)_DIV|CLKO(P|S|S2)_[CF]PHASE|CLKO(P|S|S2)_ENABLE|OUTDIVIDER_MUX[ABCD]": None,
            "FEEDBK_PATH": _only("CLKOP"),
            "PLLRST_ENA|INTFB_WAKE|STDBY_ENABLE|DPHASE_SOURCE": _only("DISABLED"),
        },
        {"RST|STDBY": "0"},
    ),
}
#: Yosys' notes of where cells come from.
NOTES = ("$scopeinfo",)
_BINARY = re.compile(r"[01xz]+")


def setting(cell: Cell, name: str, default: str = "") -> str:
    """A parameter's value: a word, or the bits of a number. Yosys puts a space after words that look like bits."""
    return str(cell["parameters"].get(name, default)).removesuffix(" ")


def check(name: str, cell: Cell) -> None:
    """Refuse a cell that no model describes.

    Raises
    ------
    NetlistError
        Names the cell, and what is not described.
    """
    kind = cell["type"]
    if kind not in CELLS:
        raise NetlistError(f"{name}: type must be one of {', '.join(CELLS)}, not {kind}; add a model of it")
    wrong = next(_wrong(kind, cell), None)
    if wrong:
        raise NetlistError(f"{name}: {wrong}: the model of {kind} describes nothing else")


def _wrong(kind: str, cell: Cell) -> Iterator[str]:
    description = CELLS[kind]
    for parameter in cell["parameters"]:
        found = [values for pattern, values in description.settings.items() if re.fullmatch(pattern, parameter)]
        value = _shown(setting(cell, parameter), is_width=parameter.startswith("DATA_WIDTH"))
        if not found:
            yield f"{parameter} must be left out, not {value}"
        elif found[0] is not None and value not in found[0]:
            yield f"{parameter} must be {' or '.join(sorted(found[0]))}, not {value}"
    for port, bits in cell["connections"].items():
        for pattern, level in description.tied.items():
            if re.fullmatch(pattern, port) and bits != [level]:
                yield f"{port} must be tied to {level}"
    if kind == "DP16KD":
        yield from _wrong_ram(cell)


def _wrong_ram(cell: Cell) -> Iterator[str]:
    pins = cell["connections"]
    if pins["CLKA"] != pins["CLKB"] and pins.get("CEB") != ["0"]:
        yield "CLKB must be CLKA's net where CEB is not tied to 0"
    widths = {side: int(setting(cell, f"DATA_WIDTH_{side}", f"{18:b}"), 2) for side in "AB"}
    if widths["A"] == 36 and pins.get("WEB", ["0"]) != ["0"]:
        yield "WEB must be tied to 0 where port A writes both halves"
    if widths["B"] == 36 and widths["A"] != 36:
        yield f"DATA_WIDTH_A must be 36 where DATA_WIDTH_B is, not {widths['A']}"
    modes = {side: setting(cell, f"REGMODE_{side}", "NOREG") for side in "AB"}
    if widths["B"] == 36 and modes["A"] != modes["B"]:
        yield f"REGMODE_A must be REGMODE_B where DATA_WIDTH_B is 36, not {modes['A']}"


def _shown(value: str, *, is_width: bool) -> str:
    return str(int(value, 2)) if is_width and _BINARY.fullmatch(value) else value
