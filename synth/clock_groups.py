"""Sites by clock: multipliers of a group have wires for clocks in common, and nextpnr takes every path through one of
them for one of the first of these clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .critical import CLOCKS

__all__ = ["Pool", "Site", "by_clock"]


class Site(NamedTuple):
    """A place for a block: nextpnr's name of it, column and row; and with what it has clocks in common, if there is
    anything."""

    bel: str
    x: int
    y: int
    group: str = ""


class Pool(NamedTuple):
    """Blocks that may exchange their sites, and all sites that they may have."""

    blocks: list[int]
    sites: Sequence[Site]


def by_clock(pools: Sequence[Pool], cells: Sequence[Mapping[str, Any]], plan: Sequence[Site]) -> list[Pool]:
    """Divide pools of which blocks have several clocks, whole groups of sites to each clock.

    Parameters
    ----------
    pools : sequence of Pool
    cells : sequence
        The blocks, as ``write_json`` of Yosys writes them.
    plan : sequence of Site
        Of each block: a clock gets those groups in which most is its.

    Raises
    ------
    ValueError
        If there are too few groups.
    """
    return [part for pool in pools for part in _divided(pool, cells, plan)]


def _divided(pool: Pool, cells: Sequence[Mapping[str, Any]], plan: Sequence[Site]) -> Iterator[Pool]:
    clocks = {block: _clocks(cells[block]) for block in pool.blocks}
    # From the fewest blocks to the most, which take the rest. Blocks without a clock are anywhere.
    ordered = [own for own, _ in reversed(Counter(filter(None, clocks.values())).most_common())]
    if len(ordered) < 2 or not all(site.group for site in pool.sites):
        yield pool
        return
    groups: dict[str, list[Site]] = {}
    for site in pool.sites:
        groups.setdefault(site.group, []).append(site)
    for clock in ordered[:-1]:
        blocks = [block for block in pool.blocks if clocks[block] == clock]
        here = Counter(plan[block].group for block in blocks)
        others = Counter(plan[block].group for block in pool.blocks if clocks[block] != clock)
        sites: list[Site] = []
        for group in sorted(groups, key=lambda group: others[group] - here[group]):
            if len(sites) < len(blocks):
                sites += groups.pop(group)
        yield _checked(blocks, sites)
    rest = [block for block in pool.blocks if clocks[block] in ("", ordered[-1])]
    yield _checked(rest, [site for group in groups.values() for site in group])


def _checked(blocks: list[int], sites: list[Site]) -> Pool:
    if len(blocks) > len(sites):
        raise ValueError(
            f"multipliers of one clock must be at most {len(sites)}, not {len(blocks)}: others of their groups have "
            "another clock; choose fewer lanes of the requantiser, or a larger device"
        )
    return Pool(blocks, sites)


def _clocks(cell: Mapping[str, Any]) -> str:
    """The nets of a block's clocks."""
    return " ".join(
        sorted(
            {
                str(bit)
                for port, bits in cell["connections"].items()
                if port in CLOCKS
                for bit in bits
                if isinstance(bit, int)
            }
        )
    )
