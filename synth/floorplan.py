"""Sites for block RAMs and multipliers, chosen before nextpnr places the rest.

Nextpnr solves for a placement that knows no sites and then moves each block to one of the few rows that have some,
often far from what belongs to it. With nearly all blocks of a device in use, that decides over the length of all wires.

Here wires are springs, as in that placer, and stiffer where a path through them is long. Everything but the blocks is
where the springs pull it and can be eliminated: the Schur complement of the netlist's Laplacian is a set of springs
between blocks alone. Their energy is what simulated annealing makes small, by exchanging sites.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .critical import CLOCKS, path_delays

__all__ = ["Site", "floorplan"]

#: Nets with more cells than this tie nothing together.
_MOST_CELLS = 400
#: All springs of a net together pull like those of a net of so many cells at most.
_MOST_PULL = 16
#: How much stiffer springs are where a path takes so many nanoseconds, or more, and that with a power of what it takes:
#: few nets shall be short at the cost of all others.
_CRITICAL_NS = 9.5
_CRITICAL_PULL, _CRITICAL_POWER = 10.0, 3
#: Anneals: proposals for each block, the first temperature in mean changes of energy, and the last one in first ones.
_PROPOSALS = 25_000
_FIRST_TEMPERATURE, _LAST_TEMPERATURE = 1.0, 1e-4
_SAMPLES = 2_000

Array = NDArray[np.float64]


class Site(NamedTuple):
    """A place for a block: nextpnr's name of it, column and row."""

    bel: str
    x: int
    y: int


def floorplan(netlist: dict[str, Any], sites: Mapping[str, Sequence[Site]], *, top: str = "top", seed: int = 1) -> int:
    """Give every cell of the types in ``sites`` a site, by an attribute that nextpnr obeys.

    Parameters
    ----------
    netlist : dict
        As ``write_json`` of Yosys writes it, flat; changed in place.
    sites : mapping of str to sequence of Site
        The device's, by type of cell.
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
    members = {kind: [number for number, name in enumerate(blocks) if cells[name]["type"] == kind] for kind in sites}
    for kind, numbers in members.items():
        if len(numbers) > len(sites[kind]):
            raise ValueError(f"the design has {len(numbers)} {kind}, the device {len(sites[kind])}")
    if len(blocks) < 2:
        return 0
    chosen = _Annealing(_springs(cells, blocks), members, sites, np.random.default_rng(seed)).run()
    for name, site in zip(blocks, chosen, strict=True):
        cells[name].setdefault("attributes", {})["BEL"] = site.bel
    return len(blocks)


def _springs(cells: dict[str, Any], blocks: list[str]) -> Array:
    """The Laplacian over ``blocks``, float64[blocks, blocks], with all other cells where the springs pull them."""
    # Of the `synth` extra: who only runs networks need not have it.
    from scipy import sparse  # noqa: PLC0415
    from scipy.sparse import linalg  # noqa: PLC0415

    others = cells.keys() - set(blocks)
    # In the order of the netlist: that of a set is another one in every process.
    ordered = [*blocks, *(name for name in cells if name in others)]
    position = {name: number for number, name in enumerate(ordered)}
    nets: dict[int, set[int]] = defaultdict(set)
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if port not in CLOCKS:
                for bit in bits:
                    if isinstance(bit, int):
                        nets[bit].add(position[name])
    ends: list[tuple[int, int, float]] = []
    nodes = len(cells)
    delays = path_delays(cells)
    for net, connected in nets.items():
        size = len(connected)
        critical = min(delays.get(net, 0.0) / _CRITICAL_NS, 1.0)
        stiffness = 1.0 + _CRITICAL_PULL * critical**_CRITICAL_POWER
        if size == 2:
            ends.append((*sorted(connected), stiffness))
        elif 2 < size <= _MOST_CELLS:
            # A node in the middle, which stands for springs between all pairs.
            pull = stiffness * min(size, _MOST_PULL) / (size - 1)
            ends += [(cell, nodes, pull) for cell in sorted(connected)]
            nodes += 1
    rows, columns, pulls = (np.array(part) for part in zip(*ends, strict=True))
    springs = sparse.coo_array((pulls, (rows, columns)), shape=(nodes, nodes)).tocsr()
    springs = springs + springs.T
    laplacian = (sparse.diags_array(springs.sum(axis=1)) - springs).tocsc()
    inner, outer = laplacian[: len(blocks)], laplacian[len(blocks) :]
    # What hangs on no block at all is held by next to nothing, so that the matrix can be inverted.
    rest = (outer[:, len(blocks) :] + 1e-6 * sparse.eye_array(nodes - len(blocks))).tocsc()
    reach = linalg.splu(rest, permc_spec="MMD_AT_PLUS_A").solve(outer[:, : len(blocks)].toarray())
    reduced: Array = inner[:, : len(blocks)].toarray() + inner[:, len(blocks) :] @ -reach
    return (reduced + reduced.T) / 2


class _Annealing:
    """Exchanges sites of blocks, fewer and fewer that make wires longer."""

    def __init__(
        self,
        springs: Array,
        members: Mapping[str, list[int]],
        sites: Mapping[str, Sequence[Site]],
        rng: np.random.Generator,
    ):
        self.springs, self.rng = springs, rng
        self.sites = [site for kind in sites for site in sites[kind]]
        self.positions = np.array([(site.x, site.y) for site in self.sites], dtype=float)
        self.choice = [0] * len(springs)
        # The sites that a block may go to: from the first one of its type on, so many.
        self.first, self.count = np.zeros(len(springs), dtype=int), np.zeros(len(springs), dtype=int)
        self.tenant: list[int | None] = [None] * len(self.sites)
        first = 0
        for kind, numbers in members.items():
            self.first[numbers], self.count[numbers] = first, len(sites[kind])
            for block, site in zip(numbers, (first + rng.permutation(len(sites[kind]))).tolist(), strict=False):
                self.choice[block], self.tenant[site] = site, block
            first += len(sites[kind])

    def run(self) -> list[Site]:
        """Anneal; returns each block's site."""
        total = _PROPOSALS * len(self.springs)
        self.force = self.springs @ self.positions[self.choice]
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
