"""Move registers and tables that the placer has left far from the cells that they connect.

nextpnr's placer leaves single cells of a compact design far away: of 56,000 ends of paths of 16 x 16 multipliers 43
were estimated above 10 ns and 332 above 8.7, and none and 62 after 230 moves. Each moved cell goes to free sites where
its own paths are shortest; all others stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from .delays import Place, net_of, wire
from .runs import Run, best_place, runs_of
from .slices import Mover, Slices, SliceSite, movers_of
from .timing import Path, Timing

__all__ = ["refine"]

#: The most moves, and the least gain of one, in ns.
_MOST_MOVES, _LEAST_GAIN = 500, 0.15
#: Moves after which all paths are computed again, which takes some seconds.
_AT_ONCE = 10
#: The port at which paths end at a register without a table.
_ENDS = ("M", "LSR", "CE")


class _Move(NamedTuple):
    gain: float
    #: The cells that move, with their new sites and their old ones; each in an order in which sites are free.
    sites: dict[str, SliceSite]
    back: dict[str, SliceSite]
    #: The run to which they belong, if they move as one.
    run: Run = ()


def refine(timing: Timing, *, mhz: float) -> int:
    """Move cells of paths that are estimated to miss a clock, those of the longest path first.

    The longest path never becomes longer.

    Parameters
    ----------
    timing : Timing
        Timing of the placed netlist, whose cells are changed in place; it is updated for their new places.
    mhz : float
        The clock to reach; a faster clock is twice as fast.

    Returns
    -------
    int
        The number of moves.
    """
    slices, limit_ns = Slices(timing.cells), 1000 / mhz
    paths, moved, at_once = timing.paths(limit_ns), 0, _AT_ONCE
    # Movers without a better place, with the number of moves at that time: after other moves nearby they are tried
    # again.
    settled: set[str | Run] = set()
    known = 0
    while moved < _MOST_MOVES:
        moves = _moves(timing, slices, paths, settled, limit_ns, at_once)
        if not moves:
            if moved == known:
                break
            known = moved
            settled.clear()
            continue
        later = timing.paths(limit_ns)
        if later and later[0].delay_ns > paths[0].delay_ns:
            _carry_out([move.back for move in reversed(moves)], timing, slices)
            timing.update()
            # A loop may lead back to a register through logic that does not move; moves may collide.
            settled |= {*moves[0].back, moves[0].run} if len(moves) == 1 else set()
            at_once = 1
        else:
            paths, moved, at_once = later, moved + len(moves), _AT_ONCE
    return moved


def _moves(
    timing: Timing, slices: Slices, paths: Iterable[Path], settled: set[str | Run], limit_ns: float, most: int
) -> list[_Move]:
    """Carry out the best moves of cells of the longest paths that can be made shorter, each of another path."""
    moves: list[_Move] = []
    touched: set[str] = set()
    for path in paths:
        cells = {path.start, path.end, *timing.tables(path)}
        if touched & cells:
            continue
        # The order is fixed, so that of equal moves the same one is made in every process.
        names = sorted(cells - settled, reverse=True)
        found = {name: move for name in names if (move := _best_move(timing, slices, name, limit_ns))}
        settled.update(name for name in names if name not in found)
        if not found:
            runs = [run for run in runs_of(path, timing) if run not in settled]
            found = {run: move for run in runs if (move := _best_move_of_run(timing, slices, run, limit_ns))}
            settled.update(run for run in runs if run not in found)
        if found:
            move = max(found.values(), key=lambda move: move.gain)
            _carry_out([move.sites], timing, slices)
            moves.append(move)
            touched |= cells
        if len(moves) == most:
            break
    timing.update()
    return moves


def _best_move(timing: Timing, slices: Slices, name: str, limit_ns: float) -> _Move | None:
    """Return the place where a cell has the shortest paths, if it is better than the present one."""
    now = timing.places[name]
    better = []
    for number, mover in enumerate(movers_of(name, timing) if now is not None else []):
        longest = _longest(timing, mover, now)
        if longest <= limit_ns:
            continue
        for place in _around(timing, slices, mover):
            gain = longest - _longest(timing, mover, place)
            if gain >= _LEAST_GAIN:
                better.append((gain, -number, place, mover))
    for gain, _, place, mover in sorted(better, key=lambda found: found[:3], reverse=True):
        if (sites := slices.free(place, mover)) is not None:
            return _Move(gain, sites, {moving: slices.site(moving) for moving in sites})
    return None


def _best_move_of_run(timing: Timing, slices: Slices, run: Run, limit_ns: float) -> _Move | None:
    best = best_place(timing, slices, run, limit_ns, _LEAST_GAIN)
    return None if best is None else _Move(*best, {name: slices.site(name) for name in reversed(best[1])}, run)


def _carry_out(moves: Iterable[Mapping[str, SliceSite]], timing: Timing, slices: Slices) -> None:
    for sites in moves:
        for name, site in sites.items():
            slices.move(name, site)
            timing.places[name] = site.place


def _inputs(timing: Timing, mover: Mover) -> Iterator[tuple[int, str, str]]:
    """Return the nets, cells and ports at which paths enter."""
    ends = [port for port in _ENDS if port != "M" or mover.upper is None]
    ports_of = ((mover.register, ends), (mover.table, "ABCDM" if mover.upper else "ABCD"), (mover.upper, "ABCD"))
    for cell, port in ((name, port) for name, ports in ports_of if name for port in ports):
        net = net_of(timing.cells[cell], port)
        if net is not None and net in timing.arrivals:
            yield net, cell, port


def _outputs(timing: Timing, mover: Mover) -> dict[str, int]:
    """Return the nets of the moving cells that other cells read."""
    ports = ((mover.register, "Q"), (mover.table, "OFX" if mover.upper else "F"))
    nets = {name: net_of(timing.cells[name], port) for name, port in ports if name}
    return {name: net for name, net in nets.items() if net is not None}


def _longest(timing: Timing, mover: Mover, place: Place) -> float:
    """Return the longest path to, from or through the mover, if it is at ``place``."""
    outputs, paths = _outputs(timing, mover), []
    # A register's value that returns through its own table is one of the table's inputs.
    left = {name: timing.left_from(net, place, but_to=(mover.table,)) for name, net in outputs.items()}
    if mover.upper is not None and mover.table is not None:
        if mover.register is not None:
            left[mover.table] = wire(place, "OFX", place, "M") + timing.setup(mover.register, "M")
        left[mover.upper] = timing.setup(mover.table, "F1") + left.get(mover.table, 0.0)
    for net, cell, port in _inputs(timing, mover):
        # A cell that feeds itself moves with its source.
        moving = next((name for name in outputs if timing.drivers[net][0] == name), cell)
        after = timing.wire_to(net, moving, port, place) + timing.setup(cell, port)
        # A register ends paths; a table passes them on.
        paths.append(timing.latest(net, after + (0.0 if cell == mover.register else left.get(cell, 0.0))))
    if mover.register in outputs:
        paths.append(timing.latest(outputs[mover.register], left[mover.register]))
    return max((latest[0] for latest in paths if latest is not None), default=0.0)


def _around(timing: Timing, slices: Slices, mover: Mover) -> Iterator[Place]:
    """Return the tiles between all cells connected to the mover, and a few more."""
    near = [timing.places[timing.drivers[net][0]] for net, _, _ in _inputs(timing, mover)]
    near += [timing.places[cell] for net in _outputs(timing, mover).values() for cell, _ in timing.sinks.get(net, ())]
    return slices.around(near)
