"""Move runs of successive tables that are together far from their path.

A move of one of them alone would shorten one wire and lengthen the next one by as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .delays import TABLE, Place, net_of
from .slices import Mover, Slices, SliceSite, movers_of
from .timing import Path, Timing

__all__ = ["Run", "best_place", "runs_of"]

#: Tables of four inputs, in order, each with the register that moves with it.
Run = tuple[Mover, ...]

#: The most tiles between two tables that count as together.
_TOGETHER = 3
_INPUTS, _SHARED = "ABCD", ("LSR", "CE")


def runs_of(path: Path, timing: Timing) -> Iterator[Run]:
    """Yield runs of at least two successive tables of a path that are together and can move."""
    run: list[Mover] = []
    for name in reversed(timing.tables(path)):
        mover = next((mover for mover in movers_of(name, timing) if mover.table == name and mover.upper is None), None)
        if run and (mover is None or _distance(timing, run[-1], mover) > _TOGETHER):
            if len(run) > 1:
                yield tuple(run)
            run = []
        if mover is not None:
            run.append(mover)
    if len(run) > 1:
        yield tuple(run)


def best_place(
    timing: Timing, slices: Slices, run: Run, limit_ns: float, least_gain: float
) -> tuple[float, dict[str, SliceSite]] | None:
    """Return a run's gain in ns where its longest path is shortest, and its sites there, all in one tile.

    None if the gain is less than ``least_gain``, or the run meets the limit at its present place.
    """
    longest = _longest(timing, run, {})
    if longest <= limit_ns:
        return None
    cells = _cells(run)
    gains = ((longest - _longest(timing, run, dict.fromkeys(cells, at)), at) for at in _around(timing, slices, run))
    for gain, place in sorted((found for found in gains if found[0] >= least_gain), reverse=True):
        if (sites := _free(slices, place, run)) is not None:
            return gain, sites
    return None


def _cells(run: Run) -> list[str]:
    return [name for mover in run for name in mover if name is not None]


def _table(mover: Mover) -> str:
    assert mover.table is not None
    return mover.table


def _distance(timing: Timing, one: Mover, other: Mover) -> int:
    start, end = (timing.places[_table(mover)] for mover in (one, other))
    return sum(abs(here - there) for here, there in zip(start, end, strict=True))


def _around(timing: Timing, slices: Slices, run: Run) -> Iterator[Place]:
    """Return the tiles between all cells connected to a run's ends, and a few more."""
    first, last = (timing.cells[_table(mover)] for mover in (run[0], run[-1]))
    drivers = [timing.drivers[net][0] for port in _INPUTS if (net := net_of(first, port)) in timing.drivers]
    sinks = [name for name, _ in timing.sinks[net_of(last, "F")]]
    return slices.around(timing.places[name] for name in [*drivers, *sinks])


def _free(slices: Slices, place: Place, run: Run) -> dict[str, SliceSite] | None:
    """Return sites in a tile for all cells of a run; None if there are too few."""
    before = {name: slices.site(name) for name in _cells(run)}
    sites: dict[str, SliceSite] = {}
    for mover in run:
        found = slices.free(place, mover) or {}
        for name, site in found.items():
            slices.move(name, site)
        sites |= found
    # The last table is first: it may take the old site of one before it.
    for name in reversed(sites):
        slices.move(name, before[name])
    return sites if len(sites) == len(before) else None


def _longest(timing: Timing, run: Run, there: Mapping[str, Place]) -> float:
    """Return the longest path to, from or through a cell of a run, if its cells are ``there``."""
    nets = {_table(mover): net_of(timing.cells[_table(mover)], "F") for mover in run}
    places = {name: timing.places[name] for name in there}
    arrivals = {net: timing.arrivals[net] for net in nets.values()}
    timing.places.update(there)
    paths = []
    for mover, (table, net) in zip(run, nets.items(), strict=True):
        timing.arrivals[net] = _arrivals(timing, table)
        # Paths through the run arrive at its other tables.
        paths.append(timing.latest(net, timing.left_from(net, timing.places[table], but_to=nets)))
        if (register := mover.register) is not None:
            if (value := net_of(timing.cells[register], "Q")) in timing.drivers:
                paths.append(timing.latest(value, timing.left_from(value, timing.places[register], but_to=nets)))
            for port in _SHARED:
                if (enters := net_of(timing.cells[register], port)) in timing.arrivals:
                    after = timing.wire_to(enters, register, port, timing.places[register])
                    paths.append(timing.latest(enters, after + timing.setup(register, port)))
    timing.places.update(places)
    timing.arrivals.update(arrivals)
    return max((path[0] for path in paths if path is not None), default=0.0)


def _arrivals(timing: Timing, table: str) -> dict[float, tuple[float, str]]:
    """Return the arrival of a table's value, and the start of the longest path to it, as :attr:`Timing.arrivals`."""
    latest: dict[float, tuple[float, str]] = {}
    for port in _INPUTS:
        if (net := net_of(timing.cells[table], port)) in timing.arrivals:
            there = timing.wire_to(net, table, port, timing.places[table]) + TABLE
            for cycles, (when, start) in timing.arrivals[net].items():
                latest[cycles] = max(latest.get(cycles, (0.0, "")), (when + there, start))
    return latest
