"""The cells of an ECP5 in a mapped netlist.

Sources: Lattice FPGA-TN-02204 (memory usage guide) and FPGA-TN-02205 (sysDSP usage guide).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from .translate import HIGH, LOW, Cell, Description, Library, Register, driven, look_up, one_bit, only, pin, setting

__all__ = ["ECP5"]

_WIDTHS = only("1", "2", "4", "9", "18", "36")
_CELLS: Mapping[str, Description] = {
    "LUT4": Description({"INIT": None}),
    "PFUMX": Description({}),
    "L6MUX21": Description({}),
    "CCU2C": Description({"INIT[01]": None, "INJECT1_[01]": only("YES", "NO")}),
    "TRELLIS_FF": Description(
        {
            "CEMUX": only("1", "CE", "INV"),
            "CLKMUX": only("CLK"),
            "LSRMUX": only("LSR"),
            "GSR": only("DISABLED"),
            "REGSET": only("SET", "RESET"),
            "SRMODE": only("LSR_OVER_CE", "ASYNC"),
        }
    ),
    "TRELLIS_DPR16X4": Description({"INITVAL": None, "WCKMUX": only("WCK"), "WREMUX": only("WRE")}),
    "DP16KD": Description(
        {
            "DATA_WIDTH_[AB]": _WIDTHS,
            "REGMODE_[AB]": only("NOREG", "OUTREG"),
            "WRITEMODE_[AB]": only("NORMAL", "WRITETHROUGH", "READBEFOREWRITE"),
            "CSDECODE_[AB]": only("0b000"),
            "CLKAMUX": only("CLKA"),
            "CLKBMUX": only("CLKB"),
            # These are settings of resets, which are tied.
            "RESETMODE|ASYNC_RESET_RELEASE": None,
            "GSR": only("DISABLED"),
            "INITVAL_[0-3][0-9A-F]": None,
        },
        {"RST[AB]|CS[AB][012]": "0"},
    ),
    "MULT18X18D": Description(
        {
            "REG_(INPUT[AB]|PIPELINE|OUTPUT)_CLK": only("NONE", "CLK0"),
            "REG_(INPUT[AB]|PIPELINE|OUTPUT)_CE": only("CE0"),
            "REG_(INPUT[AB]|PIPELINE|OUTPUT)_RST": only("RST0"),
            # This divides the clock by one: disabled, registers take their inputs at both edges.
            "CLK0_DIV": only("ENABLED"),
            "GSR": only("DISABLED"),
        },
        {"SOURCE[AB]|C[0-9]+": "0"},
    ),
    "EHXPLLL": Description(
        {
            "CLK(I|FB|OP|OS)_DIV|CLKO[PS]_[CF]PHASE|CLKO[PS]_ENABLE|OUTDIVIDER_MUX[ABCD]": None,
            "FEEDBK_PATH": only("CLKOP"),
            "PLLRST_ENA|INTFB_WAKE|STDBY_ENABLE|DPHASE_SOURCE": only("DISABLED"),
        },
        {"RST|STDBY": "0"},
    ),
}


def _wrong(cell: Cell) -> Iterator[str]:
    if cell["type"] == "DP16KD":
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


def _logic(cell: Cell, number: int) -> Iterator[str]:
    kind = cell["type"]
    if kind == "LUT4":
        table = look_up(int(setting(cell, "INIT", "0"), 2), [pin(cell, port) for port in "ABCD"])
        yield from driven(cell, "Z", table)
    elif kind == "PFUMX":
        yield from driven(cell, "Z", f"{pin(cell, 'C0')} ? {pin(cell, 'ALUT')} : {pin(cell, 'BLUT')}")
    elif kind == "L6MUX21":
        yield from driven(cell, "Z", f"{pin(cell, 'SD')} ? {pin(cell, 'D1')} : {pin(cell, 'D0')}")
    elif kind == "CCU2C":
        yield from _carry(cell, number)


def _carry(cell: Cell, number: int) -> Iterator[str]:
    """Translate two bits of a carry chain: the upper table passes the carry on or not, the lower one begins it."""
    carry = pin(cell, "CIN")
    for half in "01":
        table, pins = int(setting(cell, f"INIT{half}", "0"), 2), [pin(cell, f"{port}{half}") for port in "ABCD"]
        is_first = setting(cell, f"INJECT1_{half}", "YES") == "YES"
        passes, begins = f"p{number}_{half}", LOW if is_first else look_up(table & 0b1111, pins[:2])
        yield f"  wire {passes} = {look_up(table, pins)};"
        yield from driven(cell, f"S{half}", passes if is_first else f"{passes} ^ {carry}")
        yield f"  wire c{number}_{half} = {passes} ? {carry} : {one_bit(begins)};"
        carry = f"c{number}_{half}"
    yield from driven(cell, "COUT", carry)


def _register(cell: Cell) -> tuple[str, str, str, bool, Register] | None:
    if cell["type"] != "TRELLIS_FF":
        return None
    level = HIGH if setting(cell, "REGSET", "RESET") == "SET" else LOW
    enable = {"1": HIGH, "CE": pin(cell, "CE"), "INV": f"~{pin(cell, 'CE')}"}[setting(cell, "CEMUX", "1")]
    is_asynchronous = setting(cell, "SRMODE", "LSR_OVER_CE") == "ASYNC"
    return pin(cell, "CLK"), enable, pin(cell, "LSR"), is_asynchronous, (pin(cell, "Q"), pin(cell, "DI"), level)


ECP5 = Library(
    cells=_CELLS,
    wrong=_wrong,
    logic=_logic,
    register=_register,
    instantiated=("TRELLIS_DPR16X4", "DP16KD", "MULT18X18D", "EHXPLLL"),
    models=tuple(Path(__file__).with_name(f"{name}.vh") for name in ("dp16kd", "mult18x18d", "ehxplll")),
    yosys="ecp5/common_sim.vh",
    initial="INITVAL",
)
