"""Copy registers of a placed netlist whose sinks are on several sides.

A register between distant sinks is far from some of them at any place. Its copy takes the same value with the same
edges, and drives the late ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...hdl.parts.device import HALF_CYCLE
from .delays import Place, net_of
from .slices import REGISTER, Mover, Slices, SliceSite
from .timing import Sink, Timing

__all__ = ["replicate"]

#: The most copies, and the least gain of one, in ns.
_MOST_COPIES, _LEAST_GAIN = 300, 0.15
#: Copies after which all paths are computed again.
_AT_ONCE = 10
#: Prefixes of ports that share their net with neighbouring ports, which would have to change together.
_SHARED = ("CE", "CLK", "LSR", "RST", "W")


class _Copy(NamedTuple):
    gain: float
    site: SliceSite
    sinks: list[Sink]


def replicate(timing: Timing, *, mhz: float) -> int:
    """Copy registers at which paths begin that are estimated to miss a clock, those of the longest path first.

    No path becomes longer.

    Parameters
    ----------
    timing : Timing
        Timing of the placed netlist, whose cells and nets are changed in place.
    mhz : float
        The clock to reach; a faster clock is twice as fast.

    Returns
    -------
    int
        The number of copies.
    """
    slices, limit_ns = Slices(timing.cells), 1000 / mhz
    # The turn of double-pumped multipliers has half a cycle to one register, and is found by its name.
    halves = [bit for name, net in timing.nets.items() if name.endswith(HALF_CYCLE) for bit in net["bits"]]
    settled = {timing.drivers[bit][0] for bit in halves if bit in timing.drivers}
    copies = 0
    while copies < _MOST_COPIES:
        before = copies
        copied: set[str] = set()
        for name in (path.start for path in timing.paths(limit_ns)):
            if name in settled | copied:
                continue
            found = _best_copy(timing, slices, name, limit_ns)
            if found is None:
                settled.add(name)
                continue
            slices.add(timing.copy(name, found.site.place, found.sinks), found.site)
            copied.add(name)
            copies += 1
            if len(copied) == _AT_ONCE:
                break
        if copies == before:
            break
        timing.update()
    return copies


def _best_copy(timing: Timing, slices: Slices, name: str, limit_ns: float) -> _Copy | None:
    """Return the place where a copy of a register shortens its longest path, and the sinks of the copy."""
    now, net = timing.places[name], net_of(timing.cells[name], "Q")
    if timing.cells[name]["type"] != REGISTER or net is None or now is None:
        return None
    delays = {sink: timing.through(net, sink, now) for sink in timing.sinks[net]}
    longest = max(delays.values())
    late = [sink for sink, delay in delays.items() if delay > limit_ns]
    movable = {sink for sink in late if not sink[1].startswith(_SHARED)}
    found = []
    for place in _around(timing, slices, name, late):
        there = {sink: timing.through(net, sink, place) for sink in late}
        sinks = [sink for sink in late if sink in movable and there[sink] < delays[sink]]
        if not sinks or len(sinks) == len(delays):
            continue
        after = [there[sink] if sink in sinks else delays[sink] for sink in late]
        gain = longest - max(*after, timing.to_register(name, place))
        if gain >= _LEAST_GAIN:
            found.append((gain, place, sinks))
    for gain, place, sinks in sorted(found, reverse=True):
        if (sites := slices.free(place, Mover(name, None))) is not None:
            return _Copy(gain, sites[name], sinks)
    return None


def _around(timing: Timing, slices: Slices, name: str, sinks: list[Sink]) -> Iterator[Place]:
    """Return the tiles between a register's inputs and its sinks, and a few more."""
    near = [timing.places[timing.drivers[net][0]] for net in timing.inputs(name).values()]
    return slices.around([*near, *(timing.places[cell] for cell, _ in sinks)])
