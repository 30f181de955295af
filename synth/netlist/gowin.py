"""The cells of a GW5A in a mapped netlist.

Sources: Gowin UG300 (block RAM) and UG303 (DSP); Yosys' `gowin/cells_sim.v` for look-up tables, carries, flip-flops and
distributed RAM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from .translate import HIGH, LOW, Cell, Description, Library, Register, driven, look_up, only, pin, setting

__all__ = ["GW5A"]


def _numbers(*numbers: int) -> frozenset[str]:
    """Return numbers as Yosys writes them."""
    return only(*(f"{number:032b}" for number in numbers))


#: Settings of all block RAMs: contents are those of zero, and an output is not registered twice.
_RAM = {
    "BLK_SEL_[01]": only("000"),
    "READ_MODE[01]?": only("0"),
    # These are settings of resets, which are tied.
    "RESET_MODE": None,
    "INIT_RAM_[0-3][0-9A-F]": None,
}
_DUAL = _RAM | {"WRITE_MODE[01]": _numbers(0, 1)}
_TIED_RAM = {"BLKSEL[AB]": "0", "RESET[AB]?": "0"}
_REGISTERS = {f"{name}REG_CLK": only("CLK0") for name in "ABPO"}
_TIED_MULTIPLIER = {"CE": "1", "RESET": "0"}
_CELLS: Mapping[str, Description] = {
    **{f"LUT{inputs}": Description({"INIT": None}) for inputs in (1, 2, 3, 4)},
    # Addition, subtraction, and the one or the other.
    "ALU": Description({"ALU_MODE": _numbers(0, 1, 2)}),
    "DFFRE": Description({}),
    "DFFSE": Description({}),
    "RAM16SDP4": Description({"INIT_[0-3]": None}),
    "SDPB": Description(_RAM | {"BIT_WIDTH_[01]": _numbers(32)}, _TIED_RAM),
    "SDPX9B": Description(_RAM | {"BIT_WIDTH_[01]": _numbers(36)}, _TIED_RAM),
    "DPB": Description(_DUAL | {"BIT_WIDTH_[01]": _numbers(1, 2, 4, 8, 16)}, _TIED_RAM),
    "DPX9B": Description(_DUAL | {"BIT_WIDTH_[01]": _numbers(9, 18)}, _TIED_RAM),
    "MULT12X12": Description(_REGISTERS, _TIED_MULTIPLIER),
    "MULT27X36": Description(_REGISTERS, {**_TIED_MULTIPLIER, "D|PSEL|PADDSUB": "0"}),
    **{kind: Description({}) for kind in ("IBUF", "OBUF")},
}


def _wrong(cell: Cell) -> Iterator[str]:
    contents = [name for name in cell["parameters"] if name.startswith("INIT_RAM") and "1" in setting(cell, name)]
    if contents:
        yield f"{contents[0]} must be zero"
    if cell["type"].startswith("MULT"):
        yield from (f"{name} must be CLK0" for name in _REGISTERS if name not in cell["parameters"])
    pins = cell["connections"]
    if "CLKB" in pins and pins["CLKB"] != pins["CLKA"]:
        yield "CLKB must be CLKA's net"


def _logic(cell: Cell, number: int) -> Iterator[str]:
    kind = cell["type"]
    if kind.startswith("LUT"):
        inputs = [pin(cell, f"I{place}") for place in range(int(kind[3:]))]
        yield from driven(cell, "F", look_up(int(setting(cell, "INIT", "0"), 2), inputs))
    elif kind == "ALU":
        mode, own, other, carry = (int(setting(cell, "ALU_MODE", "0"), 2), *(pin(cell, n) for n in ("I0", "I1", "CIN")))
        adds = (HIGH, LOW, pin(cell, "I3"))[mode]
        yield f"  wire p{number} = {own} ^ {other} ^ ~{adds};"
        yield from driven(cell, "SUM", f"p{number} ^ {carry}")
        yield from driven(cell, "COUT", f"p{number} ? {carry} : {own}")
    elif kind in ("IBUF", "OBUF"):
        yield from driven(cell, "O", pin(cell, "I"))


def _register(cell: Cell) -> tuple[str, str, str, bool, Register] | None:
    if cell["type"] not in ("DFFRE", "DFFSE"):
        return None
    port, level = ("RESET", LOW) if cell["type"] == "DFFRE" else ("SET", HIGH)
    return pin(cell, "CLK"), pin(cell, "CE"), pin(cell, port), False, (pin(cell, "Q"), pin(cell, "D"), level)


GW5A = Library(
    cells=_CELLS,
    wrong=_wrong,
    logic=_logic,
    register=_register,
    instantiated=("RAM16SDP4", "SDPB", "SDPX9B", "DPB", "DPX9B", "MULT12X12", "MULT27X36"),
    models=(Path(__file__).with_name("gw5a.vh"),),
    constants={"VCC": ("V", "1"), "GND": ("G", "0")},
)
