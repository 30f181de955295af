"""Slices of a placed netlist of an ECP5, and their free sites."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .delays import WITHIN, Cell, Place, net_of
from .timing import Timing

__all__ = ["REGISTER", "Mover", "SliceSite", "Slices", "movers_of"]

#: Types of cells.
REGISTER, _TABLE = "TRELLIS_FF", "TRELLIS_COMB"

_SITE = re.compile(r"X(\d+)/Y(\d+)/SLICE([A-D])\.(\w+)")
#: Ports and parameters that all registers of a tile share, for nextpnr.
_SHARED_NETS, _SHARED = ("CLK", "LSR"), ("CLKMUX", "LSRMUX", "SRMODE")

#: Tiles around a cell's connections in which places are searched.
_AROUND = 2


class Mover(NamedTuple):
    """Cells that move together: a register, with the table before it if that is in its slice; or a table, with its
    upper half if it has five inputs, and with the register after it if that is its only reader."""

    register: str | None
    table: str | None
    upper: str | None = None


def movers_of(name: str, timing: Timing) -> list[Mover]:
    """Return a register or a table with the cells that have to move with it, and that may; empty if it has to stay."""
    movers = [] if (mover := _mover_of(name, timing)) is None else [mover]
    # A move of one of both alone would shorten one wire and lengthen the other by as much.
    front = name
    if timing.cells[name]["type"] == REGISTER and (net := net_of(timing.cells[name], "M")) in timing.drivers:
        front, _ = timing.drivers[net]
    if (halves := _halves(front, timing)) is not None:
        readers = timing.sinks.get(net_of(timing.cells[halves[0]], "OFX"), [])
        if [(timing.cells[sink]["type"], port) for sink, port in readers] == [(REGISTER, "M")]:
            movers.append(Mover(readers[0][0], *halves))
    return movers


def _mover_of(name: str, timing: Timing) -> Mover | None:
    cell = timing.cells[name]
    if (halves := _halves(name, timing)) is not None:
        return Mover(None, *halves)
    net = net_of(cell, "DI" if cell["type"] == REGISTER else "F")
    if net is None:
        return Mover(name, None) if cell["type"] == REGISTER else None
    table, _ = timing.drivers[net]
    beside = [sink for sink, port in timing.sinks.get(net, ()) if port in WITHIN]
    register = next((sink for sink in beside if timing.cells[sink]["type"] == REGISTER), None)
    is_alone = beside == ([] if register is None else [register])
    return Mover(register, table) if is_alone and _is_plain(timing.cells[table]) else None


def _halves(name: str, timing: Timing) -> tuple[str, str] | None:
    """Return the lower and the upper half of a table of five inputs, of which this cell is one; None if it is not, or
    if the table is part of a wider one."""
    output = net_of(timing.cells[name], "F")
    lower = next((sink for sink, port in timing.sinks.get(output, ()) if port == "F1"), name) if output else name
    cell = timing.cells[lower]
    if (middle := net_of(cell, "F1")) is None or not _is_logic(cell):
        return None
    upper, _ = timing.drivers[middle]
    wider = any(net_of(cell, port) is not None for port in ("FXA", "FXB", "FCI", "FCO"))
    # The lower half has an output of its own without a reader.
    wanted = {port for _, port in timing.sinks.get(net_of(cell, "OFX"), ())}
    is_one = not wider and WITHIN.isdisjoint(wanted) and not timing.sinks.get(net_of(cell, "F"))
    is_one &= _is_plain(timing.cells[upper]) and len(timing.sinks[middle]) == 1
    return (lower, upper) if is_one else None


def _is_logic(cell: Cell) -> bool:
    return cell["type"] == _TABLE and cell.get("parameters", {}).get("MODE", "LOGIC") == "LOGIC"


def _is_plain(cell: Cell) -> bool:
    """Return whether a cell is an independent table."""
    return _is_logic(cell) and not _is_joined(cell)


def _is_joined(table: Cell) -> bool:
    """Return whether a table is part of a wider one, or takes the slice's other input."""
    return any(net_of(table, port) is not None for port in ("M", "FXA", "FXB", "FCI", "OFX", "FCO"))


class SliceSite(NamedTuple):
    """A register's or a table's site: ``FF0``, ``FF1``, ``K0`` or ``K1`` of slice A, B, C or D of a tile."""

    place: Place
    slice: str
    position: str


class Slices:
    """The slices of all used tiles.

    Parameters
    ----------
    cells : dict
        Cells of the placed netlist, whose attributes :meth:`move` changes.
    """

    def __init__(self, cells: dict[str, Cell]):
        self.cells = cells
        self.tiles: dict[Place, dict[tuple[str, str], str]] = defaultdict(dict)
        for name, cell in cells.items():
            if site := _site_of(cell):
                self.tiles[site.place][site.slice, site.position] = name

    def free(self, place: Place, mover: Mover) -> dict[str, SliceSite] | None:
        """Return sites of a tile for a mover; None if there are none."""
        tile = self.tiles[place]
        here = [self.cells[name] for name in tile.values()]
        if any(cell["type"] not in (REGISTER, _TABLE) or _is_memory(cell) for cell in here):
            return None
        if mover.register is not None:
            shared = _shared(self.cells[mover.register])
            if any(cell["type"] == REGISTER and _shared(cell) != shared for cell in here):
                return None
        for letter, number in itertools.product("ABCD", "01"):
            tables, registers = (
                {site: self.cells[tile[letter, site]] for site in sites if (letter, site) in tile}
                for sites in (("K0", "K1"), ("FF0", "FF1"))
            )
            if self._has_room(mover, number, tables, registers):
                # The select of a table of five inputs takes the input of the lower half's register.
                half = number if mover.upper is None else "1"
                named = ((mover.register, f"FF{half}"), (mover.table, f"K{number}"), (mover.upper, "K1"))
                return {name: SliceSite(place, letter, position) for name, position in named if name is not None}
        return None

    def around(self, places: Iterable[Place | None]) -> Iterator[Place]:
        """Return the tiles between some places, and a few more; none where no place is known."""
        known = [place for place in places if place is not None]
        if not known:
            return
        least, most = ([pick(axis) for axis in zip(*known, strict=True)] for pick in (min, max))
        for place in self.tiles:
            if all(low - _AROUND <= at <= high + _AROUND for low, at, high in zip(least, place, most, strict=True)):
                yield place

    def _has_room(self, mover: Mover, number: str, tables: Mapping[str, Cell], registers: Mapping[str, Cell]) -> bool:
        """Return whether a half of a slice, which has these tables and registers, takes the mover."""
        if mover.upper is not None:
            # It takes both halves, and an input of a register.
            return not (registers or tables)
        if mover.register is not None:
            enable = _enable(self.cells[mover.register])
            if f"FF{number}" in registers or any(_enable(cell) != enable for cell in registers.values()):
                return False
        if mover.table is not None:
            return f"K{number}" not in tables and not any(_is_joined(table) for table in tables.values())
        # A register without a table takes the select input of a wider table.
        beside = tables.get(f"K{number}")
        return beside is None or net_of(beside, "M") is None

    def site(self, name: str) -> SliceSite:
        """Return the site of a register or a table."""
        found = _site_of(self.cells[name])
        assert found is not None
        return found

    def move(self, name: str, site: SliceSite) -> None:
        """Move a cell to a site that is free."""
        old = self.site(name)
        del self.tiles[old.place][old.slice, old.position]
        self.add(name, site)

    def add(self, name: str, site: SliceSite) -> None:
        """Place a new cell on a free site."""
        self.tiles[site.place][site.slice, site.position] = name
        column, row = site.place
        self.cells[name]["attributes"]["NEXTPNR_BEL"] = f"X{column}/Y{row}/SLICE{site.slice}.{site.position}"


def _site_of(cell: Cell) -> SliceSite | None:
    found = _SITE.match(cell.get("attributes", {}).get("NEXTPNR_BEL", ""))
    return SliceSite((int(found[1]), int(found[2])), found[3], found[4]) if found else None


def _is_memory(cell: Cell) -> bool:
    return cell.get("parameters", {}).get("MODE", "LOGIC") not in ("LOGIC", "CCU2") and cell["type"] == _TABLE


def _enable(register: Cell) -> tuple[Any, ...]:
    """Return the settings that both registers of a slice share, for nextpnr."""
    parameters = register.get("parameters", {})
    return net_of(register, "CE"), *(parameters.get(name) for name in ("CEMUX", "GSR"))


def _shared(register: Cell) -> tuple[Any, ...]:
    parameters = register.get("parameters", {})
    return (*(net_of(register, port) for port in _SHARED_NETS), *(parameters.get(name) for name in _SHARED))
