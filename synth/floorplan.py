"""Sites for block RAMs and multipliers, chosen before nextpnr places the rest.

Nextpnr solves for a placement that knows no sites and then moves each block to one of the few rows that have some,
often far from what belongs to it. With nearly all blocks of a device in use, that decides over the length of all wires.

Here wires are springs, as in that placer, and stiffer where a path through them is long. Everything but the blocks is
where the springs pull it and can be eliminated: the Schur complement of the netlist's Laplacian is a set of springs
between blocks alone. Their energy is what simulated annealing makes small, by exchanging sites. Springs alone pull all
cells onto one another. So there are two plans: after the first one cells are spread over the device, and for the
second one each is pulled a little to where it has room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .clock_groups import Pool, Site, by_clock
from .critical import CLOCKS, path_delays
from .spreading import AREAS, spread

__all__ = ["floorplan"]

#: Nets with more cells than this tie nothing together.
_MOST_CELLS = 400
#: All springs of a net together pull like those of a net of so many cells at most.
_MOST_PULL = 16
#: How much stiffer springs are where a path takes so many nanoseconds, or more, and that with a power of what it takes:
#: few nets shall be short at the cost of all others.
_CRITICAL_NS = 9.5
_CRITICAL_PULL, _CRITICAL_POWER = 10.0, 3
#: A cell is pulled to where it has room with so much of the stiffness of all its springs.
_ROOM_PULL = 0.02
#: Anneals: proposals for each block, the first temperature in mean changes of energy, and the last one in first ones.
_PROPOSALS = 25_000
_FIRST_TEMPERATURE, _LAST_TEMPERATURE = 1.0, 1e-4
_SAMPLES = 2_000

Array = NDArray[np.float64]


def floorplan(
    netlist: dict[str, Any],
    sites: Mapping[str, Sequence[Site]],
    *,
    tiles: tuple[int, int],
    top: str = "top",
    seed: int = 1,
) -> int:
    """Give every cell of the types in ``sites`` a site, by an attribute that nextpnr obeys.

    Parameters
    ----------
    netlist : dict
        As ``write_json`` of Yosys writes it, flat; changed in place.
    sites : mapping of str to sequence of Site
        The device's, by type of cell.
    tiles : tuple of int
        Columns and rows of the device.
    top : str
        The module.
    seed : int
        The same seed gives the same plan.

    Returns
    -------
    int
        How many cells have got a site.

    Raises
    ------
    ValueError
        If there are more cells of a type than sites.
    """
    cells = netlist["modules"][top]["cells"]
    blocks = [name for name, cell in cells.items() if cell["type"] in sites]
    pools = []
    for kind, of_kind in sites.items():
        members = [number for number, name in enumerate(blocks) if cells[name]["type"] == kind]
        if len(members) > len(of_kind):
            raise ValueError(f"the design has {len(members)} {kind}, the device {len(of_kind)}")
        pools.append(Pool(members, of_kind))
    if len(blocks) < 2:
        return 0
    others = [name for name, cell in cells.items() if cell["type"] not in sites]
    areas = np.array([AREAS.get(cells[name]["type"], 0.0) for name in others])
    laplacian = _laplacian(_nets(cells, [*blocks, *others]), path_delays(cells), len(cells))

    def plan(springs: _Springs, pools: Sequence[Pool]) -> list[Site]:
        return _Annealing(springs, pools, np.random.default_rng(seed)).run()

    crowded = _eliminated(laplacian, len(blocks))
    first = plan(crowded, pools)
    places = np.array([(site.x, site.y) for site in first], dtype=float)
    room = spread((crowded.follows @ places)[: len(others)], areas, tiles)
    pulled = np.flatnonzero(areas)
    pools = by_clock(pools, [cells[name] for name in blocks], first)
    chosen = plan(_eliminated(laplacian, len(blocks), pulled, room[pulled]), pools)
    for name, site in zip(blocks, chosen, strict=True):
        cells[name].setdefault("attributes", {})["BEL"] = site.bel
    return len(blocks)


def _nets(cells: dict[str, Any], ordered: list[str]) -> dict[int, list[int]]:
    """Which cells each net connects, by their numbers in ``ordered``; clocks have wires of their own."""
    position = {name: number for number, name in enumerate(ordered)}
    nets: dict[int, set[int]] = defaultdict(set)
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if port not in CLOCKS:
                for bit in bits:
                    if isinstance(bit, int):
                        nets[bit].add(position[name])
    return {net: sorted(connected) for net, connected in nets.items()}


def _laplacian(nets: Mapping[int, list[int]], delays: Mapping[int, float], cells: int) -> Any:
    """The springs between cells, and nodes in the middle of nets after them; SciPy's sparse array."""
    # Of the `synth` extra: running networks does not need it.
    from scipy import sparse  # noqa: PLC0415

    ends: list[tuple[int, int, float]] = []
    nodes = cells
    for net, connected in nets.items():
        size = len(connected)
        critical = min(delays.get(net, 0.0) / _CRITICAL_NS, 1.0)
        stiffness = 1.0 + _CRITICAL_PULL * critical**_CRITICAL_POWER
        if size == 2:
            ends.append((*connected, stiffness))
        elif 2 < size <= _MOST_CELLS:
            # A node in the middle, which stands for springs between all pairs.
            pull = stiffness * min(size, _MOST_PULL) / (size - 1)
            ends += [(cell, nodes, pull) for cell in connected]
            nodes += 1
    rows, columns, pulls = (np.array(part) for part in zip(*ends, strict=True))
    springs = sparse.coo_array((pulls, (rows, columns)), shape=(nodes, nodes)).tocsr()
    springs = springs + springs.T
    return (sparse.diags_array(springs.sum(axis=1)) - springs).tocsc()


class _Springs(NamedTuple):
    """The springs of blocks, with everything else where the springs pull it.

    Attributes
    ----------
    between : float64[blocks, blocks]
        The Laplacian.
    pull : float64[blocks, 2]
        What pulls each block besides, less what its position does.
    follows : float64[nodes, blocks]
        The part that each block has in each other node's position.
    """

    between: Array
    pull: Array
    follows: Array


def _eliminated(
    laplacian: Any, blocks: int, pulled: NDArray[np.int_] | None = None, room: Array | None = None
) -> _Springs:
    """Leave springs between the first ``blocks`` nodes alone; of the others, ``pulled`` are pulled to ``room``."""
    from scipy import sparse  # noqa: PLC0415
    from scipy.sparse import linalg  # noqa: PLC0415

    inner, outer = laplacian[:blocks], laplacian[blocks:]
    nodes = outer.shape[0]
    # What hangs on no block at all is held by next to nothing, so that the matrix can be inverted.
    held, anchors = np.full(nodes, 1e-6), np.zeros((nodes, 2))
    if pulled is not None:
        held[pulled] += _ROOM_PULL * outer[:, blocks:].diagonal()[pulled]
        anchors[pulled] = held[pulled, None] * room
    rest = linalg.splu((outer[:, blocks:] + sparse.diags_array(held)).tocsc(), permc_spec="MMD_AT_PLUS_A")
    solved = rest.solve(np.hstack([-outer[:, :blocks].toarray(), anchors]))
    follows, others = solved[:, :blocks], solved[:, blocks:]
    between: Array = inner[:, :blocks].toarray() + inner[:, blocks:] @ follows
    return _Springs((between + between.T) / 2, inner[:, blocks:] @ others, follows)


class _Annealing:
    """Exchanges sites of blocks, fewer and fewer that make wires longer."""

    def __init__(
        self,
        springs: _Springs,
        pools: Sequence[Pool],
        rng: np.random.Generator,
    ):
        self.springs, self.pull, self.rng = springs.between, springs.pull, rng
        self.sites = [site for pool in pools for site in pool.sites]
        self.positions = np.array([(site.x, site.y) for site in self.sites], dtype=float)
        self.choice = [0] * len(self.springs)
        # The sites that a block may go to: from the first one of its pool on, so many.
        self.first, self.count = np.zeros(len(self.springs), dtype=int), np.zeros(len(self.springs), dtype=int)
        self.tenant: list[int | None] = [None] * len(self.sites)
        first = 0
        for blocks, sites in pools:
            self.first[blocks], self.count[blocks] = first, len(sites)
            for block, site in zip(blocks, (first + rng.permutation(len(sites))).tolist(), strict=False):
                self.choice[block], self.tenant[site] = site, block
            first += len(sites)

    def run(self) -> list[Site]:
        """Anneal; returns each block's site."""
        total = _PROPOSALS * len(self.springs)
        self.force = self.springs @ self.positions[self.choice] + self.pull
        changes = [abs(change) for _, _, change in self._proposals(_SAMPLES)]
        first = _FIRST_TEMPERATURE * float(np.mean(changes)) if changes else 1.0
        luck = (-np.log(1 - self.rng.random(total))).tolist()
        for number, (block, site, change) in enumerate(self._proposals(total)):
            if change <= 0 or change < luck[number] * first * _LAST_TEMPERATURE ** (number / total):
                self._move(block, site)
        return [self.sites[site] for site in self.choice]

    def _proposals(self, count: int):
        """Blocks, the sites that they might go to, and how that would change the energy."""
        springs, diagonal = self.springs, self.springs.diagonal().tolist()
        blocks = self.rng.integers(len(springs), size=count)
        sites = self.first[blocks] + (self.rng.random(count) * self.count[blocks]).astype(int)
        for block, site in zip(blocks.tolist(), sites.tolist(), strict=True):
            old = self.choice[block]
            if site == old:
                continue
            # In plain numbers: for two of them an array's overhead is most of the time.
            x, y = self.sites[site].x - self.sites[old].x, self.sites[site].y - self.sites[old].y
            other = self.tenant[site]
            (force_x, force_y), stiffness = self.force[block].tolist(), diagonal[block]
            if other is not None:
                other_x, other_y = self.force[other].tolist()
                force_x, force_y = force_x - other_x, force_y - other_y
                stiffness += diagonal[other] - 2 * springs.item(block, other)
            yield block, site, 2 * (x * force_x + y * force_y) + stiffness * (x * x + y * y)

    def _move(self, block: int, site: int) -> None:
        """Let ``block`` and the tenant of ``site``, if there is one, change places."""
        old, other = self.choice[block], self.tenant[site]
        stiffness = self.springs[block] if other is None else self.springs[block] - self.springs[other]
        self.force += np.outer(stiffness, self.positions[site] - self.positions[old])
        self.choice[block], self.tenant[site], self.tenant[old] = site, block, other
        if other is not None:
            self.choice[other] = old
