"""Where in a placed netlist of an ECP5 another register may stand."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, NamedTuple

from .timing import Cell, Place, net_of

__all__ = ["REGISTER", "TABLE", "Site", "Slices", "table_of"]

#: Types of cells.
REGISTER, TABLE = "TRELLIS_FF", "TRELLIS_COMB"

_SITE = re.compile(r"X(\d+)/Y(\d+)/SLICE([A-D])\.(\w+)")
#: What all registers of a tile share, for nextpnr: ports and parameters.
_SHARED_NETS, _SHARED = ("CLK", "LSR"), ("CLKMUX", "LSRMUX", "SRMODE")


def table_of(name: str, cells: dict[str, Cell], drivers: dict, sinks: dict) -> str | None:
    """The table that drives a register and nothing else, from within its slice; None if it has none that could move
    with it."""
    net = net_of(cells[name], "DI")
    if net is None or len(sinks[net]) != 1:
        return None
    table, output = drivers[net]
    is_plain = cells[table]["type"] == TABLE and cells[table].get("parameters", {}).get("MODE", "LOGIC") == "LOGIC"
    return table if is_plain and output == "F" and not _is_joined(cells[table]) else None


def _is_joined(table: Cell) -> bool:
    """Whether a table is part of a wider one, or takes the slice's other input."""
    return any(net_of(table, port) is not None for port in ("M", "FXA", "FXB", "FCI", "OFX", "FCO"))


class Site(NamedTuple):
    """A register's or a table's site: ``FF0``, ``FF1``, ``K0`` or ``K1`` of slice A, B, C or D of a tile."""

    place: Place
    slice: str
    position: str


class Slices:
    """The slices of all tiles in which nextpnr has placed anything.

    Parameters
    ----------
    cells : dict
        Of the placed netlist. :meth:`move` changes their attributes.
    """

    def __init__(self, cells: dict[str, Cell]):
        self.cells = cells
        self.tiles: dict[Place, dict[tuple[str, str], str]] = defaultdict(dict)
        for name, cell in cells.items():
            if site := _site_of(cell):
                self.tiles[site.place][site.slice, site.position] = name

    def free(self, place: Place, register: str, *, needs_table: bool) -> str | None:
        """A slice of a tile without registers, with a free table if need be, that ``register`` may have; None if there
        is none. It must have no clock enable."""
        tile = self.tiles[place]
        here = [self.cells[name] for name in tile.values()]
        if any(cell["type"] not in (REGISTER, TABLE) or _is_memory(cell) for cell in here):
            return None
        shared = _shared(self.cells[register])
        if any(cell["type"] == REGISTER and _shared(cell) != shared for cell in here):
            return None
        for letter in "ABCD":
            tables = [self.cells[tile[letter, site]] for site in ("K0", "K1") if (letter, site) in tile]
            is_taken = (letter, "FF0") in tile or (letter, "FF1") in tile or any(_is_joined(table) for table in tables)
            if not is_taken and not (needs_table and (letter, "K0") in tile):
                return letter
        return None

    def site(self, name: str) -> Site:
        """Where a register or a table stands."""
        found = _site_of(self.cells[name])
        assert found is not None
        return found

    def move(self, name: str, site: Site) -> None:
        """Move a cell to a site that is free."""
        old = self.site(name)
        del self.tiles[old.place][old.slice, old.position]
        self.tiles[site.place][site.slice, site.position] = name
        column, row = site.place
        self.cells[name]["attributes"]["NEXTPNR_BEL"] = f"X{column}/Y{row}/SLICE{site.slice}.{site.position}"


def _site_of(cell: Cell) -> Site | None:
    found = _SITE.match(cell.get("attributes", {}).get("NEXTPNR_BEL", ""))
    return Site((int(found[1]), int(found[2])), found[3], found[4]) if found else None


def _is_memory(cell: Cell) -> bool:
    return cell.get("parameters", {}).get("MODE", "LOGIC") not in ("LOGIC", "CCU2") and cell["type"] == TABLE


def _shared(register: Cell) -> tuple[Any, ...]:
    parameters = register.get("parameters", {})
    return (*(net_of(register, port) for port in _SHARED_NETS), *(parameters.get(name) for name in _SHARED))
