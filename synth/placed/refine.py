"""Move registers that the placer has left far from what they connect.

nextpnr's placer brings a whole design close together, and leaves single registers far off: of 56,000 ends of paths of
16 x 16 multipliers 74 were estimated above 10 ns, and none after four moves. Each of them goes where its own paths are
shortest, to a slice that nothing else wants; all others stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .slices import REGISTER, Site, Slices, table_of
from .timing import Path, Place, Timing, net_of

__all__ = ["refine"]

#: Moves at most, and what one must gain, in ns. After each of them all paths are worked out anew, in some seconds.
_MOST_MOVES, _LEAST_GAIN = 100, 0.15
#: Tiles around all that a register connects in which places are looked for.
_AROUND = 2


class _Move(NamedTuple):
    gain: float
    #: The register, and its table if that goes with it: with their new sites.
    sites: tuple[tuple[str, Site], ...]


def refine(timing: Timing, *, mhz: float) -> int:
    """Move registers at the ends of paths that are estimated to miss a clock, those of the longest first. The longest
    path never becomes longer.

    Parameters
    ----------
    timing : Timing
        Of the placed netlist, whose cells are changed in place; it knows their new places afterwards.
    mhz : float
        The clock to reach; a faster clock is twice as fast.

    Returns
    -------
    int
        How many registers have moved, each as often as it has.
    """
    slices, limit_ns = Slices(timing.cells), 1000 / mhz
    paths, moved = timing.paths(limit_ns), 0
    # What has no better place, which is not asked again.
    settled: set[str] = set()
    while moved < _MOST_MOVES and (move := _first_move(timing, slices, paths, settled, limit_ns)) is not None:
        back = [(name, slices.site(name)) for name, _ in move.sites]
        _carry_out(move.sites, timing, slices)
        later = timing.paths(limit_ns)
        # A loop may lead back to the register through logic that stays where it is.
        if later and later[0].delay_ns > paths[0].delay_ns:
            _carry_out(back, timing, slices)
            settled.add(move.sites[0][0])
        else:
            paths, moved = later, moved + 1
    return moved


def _first_move(
    timing: Timing, slices: Slices, paths: Iterable[Path], settled: set[str], limit_ns: float
) -> _Move | None:
    """The better move of the two registers of the longest path that can be made shorter."""
    for path in paths:
        moves = []
        for name in {path.start, path.end} - settled:
            move = _best_move(timing, slices, name, limit_ns)
            if move is None:
                settled.add(name)
            else:
                moves.append(move)
        if moves:
            return max(moves)
    return None


def _best_move(timing: Timing, slices: Slices, name: str, limit_ns: float) -> _Move | None:
    """Where a register that can move has the shortest paths, if that is better than where it is."""
    cell, now = timing.cells[name], timing.places[name]
    if cell["type"] != REGISTER or net_of(cell, "CE") is not None or now is None:
        return None
    table = table_of(name, timing.cells, timing.drivers, timing.sinks)
    if table is None and net_of(cell, "DI") is not None:
        return None
    longest = _longest(timing, name, table, now)
    if longest <= limit_ns:
        return None
    better = []
    for place in _around(timing, slices, name, table):
        gain = longest - _longest(timing, name, table, place)
        if gain >= _LEAST_GAIN:
            better.append((gain, place))
    for gain, place in sorted(better, reverse=True):
        letter = slices.free(place, name, needs_table=table is not None)
        if letter is not None:
            sites = [(name, "FF0"), *([(table, "K0")] if table is not None else [])]
            return _Move(gain, tuple((moving, Site(place, letter, position)) for moving, position in sites))
    return None


def _carry_out(sites: Iterable[tuple[str, Site]], timing: Timing, slices: Slices) -> None:
    for name, site in sites:
        slices.move(name, site)
        timing.places[name] = site.place
    timing.update()


def _inputs(timing: Timing, name: str, table: str | None) -> Iterator[tuple[int, str, str]]:
    """Nets, cells and ports at which paths come in."""
    pins = [(name, "M"), (name, "LSR"), *((table, port) for port in "ABCD" if table is not None)]
    for cell, port in pins:
        net = net_of(timing.cells[cell], port)
        if net is not None and net in timing.arrivals:
            yield net, cell, port


def _longest(timing: Timing, name: str, table: str | None, place: Place) -> float:
    """The longest path to or from a register if it stands at ``place``, with its table."""
    longest = 0.0
    for net, cell, port in _inputs(timing, name, table):
        # A register that feeds itself moves with itself.
        moving = name if timing.drivers[net][0] == name else cell
        latest = timing.latest(net, timing.wire_to(net, moving, port, place) + timing.setup(cell, port))
        longest = max(longest, latest[0] if latest else 0.0)
    output = net_of(timing.cells[name], "Q")
    latest = timing.latest(output, timing.left_from(output, place)) if output is not None else None
    return max(longest, latest[0] if latest else 0.0)


def _around(timing: Timing, slices: Slices, name: str, table: str | None) -> Iterator[Place]:
    """The tiles between all that a register connects, and a few more."""
    near = [timing.places[timing.drivers[net][0]] for net, _, _ in _inputs(timing, name, table)]
    output = net_of(timing.cells[name], "Q")
    near += [timing.places[cell] for cell, _ in timing.sinks.get(output, ())] if output is not None else []
    known = [place for place in near if place is not None]
    if not known:
        return
    least, most = ([pick(axis) for axis in zip(*known, strict=True)] for pick in (min, max))
    for place in slices.tiles:
        if all(low - _AROUND <= at <= high + _AROUND for low, at, high in zip(least, place, most, strict=True)):
            yield place
