"""Delays of cells and wires of a placed netlist, before it is routed.

They are approximately those of the slowest speed grade of an ECP5; those of wires are fitted to nextpnr's routing
(`docs/results-history.md`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["BLOCK_SETUP", "SETUP", "TABLE", "WITHIN", "Arc", "Cell", "Place", "arcs", "net_of", "place_of", "wire"]

#: Column and row.
Place = tuple[int, int]
Cell = dict[str, Any]

#: Delays in ns: of logic; of a wire, a constant, one for each tile, and an addition for each of the first few tiles.
TABLE, _CARRY_IN, _CARRY, _SUM = 0.24, 0.45, 0.07, 0.44
_LEAST, _TILE, _NEAR, _NEAR_TILES = 0.59, 0.067, 0.062, 5
#: Delays of registers, by their ports, and of blocks.
SETUP, BLOCK_SETUP = {"CE": 0.1, "LSR": 0.4, "M": 0.1}, 0.3
#: Ports with dedicated wires within a tile, as sinks or as sources.
WITHIN = frozenset({"DI", "F1", "FCI", "FXA", "FXB", "FCO"})
_TABLE_INPUTS = ("A", "B", "C", "D", "M", "F1", "FXA", "FXB", "FCI")
_TABLE_OUTPUTS = ("F", "OFX", "FCO")
_PLACE = re.compile(r"X(\d+)/Y(\d+)/")


class Arc(NamedTuple):
    """An arc from an input of a cell to an output."""

    net: int
    delay: float
    cell: str
    port: str


def place_of(cell: Cell) -> Place | None:
    """Return the place of a cell."""
    found = _PLACE.match(cell.get("attributes", {}).get("NEXTPNR_BEL", ""))
    return (int(found[1]), int(found[2])) if found else None


def net_of(cell: Cell, port: str) -> int | None:
    """Return the net at a port of one bit."""
    bits = cell["connections"].get(port) or [None]
    return bits[0] if isinstance(bits[0], int) else None


def wire(start: Place | None, output: str, end: Place | None, port: str) -> float:
    """Return the delay of a wire between two ports, in ns."""
    if output in WITHIN or port in WITHIN or start is None or end is None:
        return 0.0
    lengths = [abs(one - other) for one, other in zip(start, end, strict=True)]
    return _LEAST + sum(_TILE * length + _NEAR * min(length, _NEAR_TILES) for length in lengths)


def arcs(name: str, cell: Cell) -> Iterator[tuple[int, Arc]]:
    """Yield the arcs of a table, from an input to an output, with their delays."""
    if cell["type"] != "TRELLIS_COMB":
        return
    is_carry = cell.get("parameters", {}).get("MODE", "LOGIC").startswith("CCU2")
    for port in _TABLE_INPUTS:
        source = net_of(cell, port)
        if source is None or (is_carry and port == "M"):
            continue
        for output in _TABLE_OUTPUTS:
            target = net_of(cell, output)
            if target is not None:
                yield source, Arc(target, _delay(port, output) if is_carry else TABLE, name, port)


def _delay(port: str, output: str) -> float:
    """Return the delay of a table in a carry chain."""
    if output != "FCO":
        return _SUM if port == "FCI" else TABLE
    return _CARRY if port == "FCI" else _CARRY_IN
