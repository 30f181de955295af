"""Move registers that the placer has left far from what they connect.

nextpnr's placer brings a whole design close together, and leaves single registers far off: of 57,000 ends of 16 x 16
multipliers 60 were estimated above 10 ns, behind five registers. Each of them goes where its own paths are shortest,
to a slice that nothing else wants; all others stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .slices import REGISTER, Site, Slices, table_of
from .timing import Place, Timing, net_of

__all__ = ["refine"]

#: Moves at most, and what one must gain, in ns. After each of them all paths are worked out anew, in some seconds.
_MOST_MOVES, _LEAST_GAIN = 100, 0.15
#: Tiles around all that a register connects in which places are looked for.
_AROUND = 2


class _Move(NamedTuple):
    gain: float
    #: The register, and its table if that goes with it: with their new sites.
    sites: tuple[tuple[str, Site], ...]


def refine(netlist: dict[str, Any], *, mhz: float, top: str = "top") -> int:
    """Move registers at the ends of paths that are estimated to miss a clock, those of the longest first. The longest
    path never becomes longer.

    Parameters
    ----------
    netlist : dict
        Placed, as nextpnr writes it; changed in place.
    mhz : float
        The clock to reach; a faster clock is twice as fast.
    top : str
        The module.

    Returns
    -------
    int
        How many registers have moved, each as often as it has.
    """
    module = netlist["modules"][top]
    timing, slices, limit_ns = Timing(module), Slices(module["cells"]), 1000 / mhz
    # What has no better place, which is not asked again.
    settled: set[str] = set()
    moved = 0
    while moved < _MOST_MOVES:
        move = _first_move(timing, slices, settled, limit_ns)
        if move is None:
            break
        longest = timing.paths(limit_ns)[0].delay_ns
        back = [(name, slices.site(name)) for name, _ in move.sites]
        _carry_out(move.sites, timing, slices)
        # A loop may lead back to the register through logic that stays where it is.
        if any(path.delay_ns > longest for path in timing.paths(limit_ns)[:1]):
            _carry_out(back, timing, slices)
            settled.add(move.sites[0][0])
        else:
            moved += 1
    return moved


def _first_move(timing: Timing, slices: Slices, settled: set[str], limit_ns: float) -> _Move | None:
    """The better move of the two registers of the longest path that can be made shorter."""
    for path in timing.paths(limit_ns):
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
            sites = [(name, Site(place, letter, "FF0"))]
            return _Move(gain, (*sites, *([(table, Site(place, letter, "K0"))] if table is not None else [])))
    return None


def _carry_out(sites: Iterable[tuple[str, Site]], timing: Timing, slices: Slices) -> None:
    for name, site in sites:
        slices.move(name, site)
        timing.places[name] = site.place
    timing.update()


def _inputs(timing: Timing, name: str, table: str | None) -> Iterator[tuple[int, str, str]]:
    """Nets, cells and ports at which paths come in."""
    moving, ports = (name, ("M", "LSR")) if table is None else (table, ("A", "B", "C", "D"))
    for port in ports:
        net = net_of(timing.cells[moving], port)
        if net is not None and net in timing.arrivals:
            yield net, moving, port
    if table is not None and (reset := net_of(timing.cells[name], "LSR")) in timing.arrivals:
        assert reset is not None
        yield reset, name, "LSR"


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
    for place in list(slices.tiles):
        if all(low - _AROUND <= at <= high + _AROUND for low, at, high in zip(least, place, most, strict=True)):
            yield place
