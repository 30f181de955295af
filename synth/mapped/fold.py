"""Fold logic before a sum into the sum's carry cells.

Half a CCU2C of an ECP5 is a look-up table of four inputs with a carry (Lattice FPGA-TN-02203, "ripple mode"), and a sum
needs two of them. Yosys maps a sum to carry cells before it maps logic, so that `a & x` in `(a & x) + (b & y)` gets a
look-up table of its own. This pass moves it into the cell, which shortens every masked sum by one table.

With A and B as the inputs of one term and C and D as those of the other, the cell's table is the exclusive or of both:
the bit of the sum without its carry. Where both terms are equal, the carry is their value. The cell takes it from its
table where C and D are 0, so the second term has to be 0 there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from .netlist import OPEN, Bit, MappedNetlist

_CARRY, _TABLE = "CCU2C", "LUT4"
#: The greatest number of a term's inputs: the cell has two pins for each.
_TERM_INPUTS = 2
#: The table that Yosys writes for A + (B ^ C), with D at 1.
_SUM = f"{0x96AA:016b}"
_LEVELS = {"0": 0, "1": 1, OPEN: 0}


@dataclass(frozen=True, slots=True)
class _Term:
    """One of the two bits that half a carry cell adds.

    Attributes
    ----------
    inputs : tuple of bit
    values : tuple of int
        The term for each state of the inputs, of which the first is bit 0.
    cell : str
        The look-up table that computes it, which only carry cells use; empty where the bit itself is the term.
    """

    inputs: tuple[Bit, ...]
    values: tuple[int, ...]
    cell: str = ""

    def inverted(self) -> _Term:
        return _Term(self.inputs, tuple(1 - value for value in self.values), self.cell)

    def value(self, state: int) -> int:
        return self.values[state & (len(self.values) - 1)]


def fold_terms(netlist: dict[str, Any], top: str = "top") -> int:
    """Move look-up tables before sums into the sums' carry cells.

    Parameters
    ----------
    netlist : dict
        A netlist as ``write_json`` of Yosys writes it after ``synth_ecp5``; changed in place.
    top : str
        Name of the module.

    Returns
    -------
    int
        The number of removed look-up tables.
    """
    net = MappedNetlist(netlist, top)
    before = len(net.cells)
    for name in [name for name, cell in net.cells.items() if cell["type"] == _CARRY]:
        for half in "01":
            _fold_half(net, name, half)
    return before - len(net.cells)


def _fold_half(net: MappedNetlist, name: str, half: str) -> None:
    """Fold the tables before half a cell."""
    parameters = net.cells[name]["parameters"]
    inverts = net.bit(name, f"C{half}")
    if (
        parameters[f"INIT{half}"] != _SUM
        or parameters[f"INJECT1_{half}"].strip() != "NO"
        or net.bit(name, f"D{half}") != "1"
        or inverts not in ("0", "1")
    ):
        return
    second = [term.inverted() if inverts == "1" else term for term in _terms(net, net.bit(name, f"B{half}"))]
    pairs = sorted(product(_terms(net, net.bit(name, f"A{half}")), second), key=lambda pair: -_tables(pair))
    for pair in pairs:
        for first, last in (pair, pair[::-1]):
            if _tables(pair) and not last.value(0):
                _write(net, name, half, first, last)
                return


def _tables(terms: tuple[_Term, _Term]) -> int:
    return sum(bool(term.cell) for term in terms)


def _terms(net: MappedNetlist, bit: Bit) -> Iterator[_Term]:
    """Return the terms of a bit: the bit itself, and its look-up table."""
    if isinstance(bit, str):
        yield _Term((), (_LEVELS[bit],))
        return
    yield _Term((bit,), (0, 1))
    name = net.driver.get(bit, "")
    if not name or net.cells[name]["type"] != _TABLE or not all(_is_term(net, *user) for user in net.users[bit]):
        return
    table = int(net.cells[name]["parameters"]["INIT"], 2)
    pins = [net.bit(name, port) for port in "ABCD"]
    inputs = tuple(dict.fromkeys(pin for pin in pins if not isinstance(pin, str)))
    if len(inputs) <= _TERM_INPUTS:
        values = []
        for state in range(1 << len(inputs)):
            levels = _LEVELS | {pin: state >> index & 1 for index, pin in enumerate(inputs)}
            values.append(table >> sum(levels[pin] << index for index, pin in enumerate(pins)) & 1)
        yield _Term(inputs, tuple(values), name)


def _is_term(net: MappedNetlist, name: str, port: str) -> bool:
    """Return whether a pin belongs to a carry cell: a table with another reader has to stay."""
    return bool(name) and net.cells[name]["type"] == _CARRY and port[0] in "AB"


def _write(net: MappedNetlist, name: str, half: str, first: _Term, last: _Term) -> None:
    """Let half a cell add two terms."""
    for ports, term in (("AB", first), ("CD", last)):
        for index, port in enumerate(ports):
            net.connect(name, port + half, term.inputs[index] if index < len(term.inputs) else "0")
    states = range(1 << 2 * _TERM_INPUTS)
    values = [first.value(state) ^ last.value(state >> _TERM_INPUTS) for state in states]
    net.cells[name]["parameters"][f"INIT{half}"] = "".join(map(str, reversed(values)))
    # Both may come from one table.
    for cell in {first.cell, last.cell} - {""}:
        if not net.users[net.bit(cell, "Z")]:
            net.drop(cell)
