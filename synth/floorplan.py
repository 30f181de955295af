"""Sites for block RAMs and multipliers, chosen before nextpnr places the rest.

Nextpnr solves for a placement that knows no sites and then moves each block to one of the few rows that have some,
often far from what belongs to it. With nearly all blocks of a device in use, that decides over the length of all wires.

Here wires are springs, as in that placer, and stiffer where a path through them is long. All other cells are where the
springs pull them and can be eliminated: the Schur complement of the netlist's Laplacian is a set of springs between
blocks only. Simulated annealing minimises their energy, by exchanging sites. Springs alone pull all
cells onto one another. So there are two plans: after the first one cells are spread over the device, and for the
second one each is pulled a little towards its place there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["AREAS", "BlockSite", "floorplan", "path_delays", "spread"]


# Spreading of cells, before anything is placed.
#
# Springs alone pull cells onto one another. Here they are spread over the device, rectangle by rectangle, as analytic
# placers do.

#: Look-up tables that a cell takes or blocks, by type. Registers share a slice with logic.
AREAS = {"LUT4": 1.0, "CCU2C": 2.0, "TRELLIS_DPR16X4": 6.0, "TRELLIS_FF": 0.5}
#: Look-up tables of a tile, and how many of them are filled where cells crowd.
_TILE, _DENSITY = 8, 0.75
#: Rectangles with sides of at most this many tiles are not divided.
_LEAST_SIDE = 6

Array = NDArray[np.float64]


def spread(positions: Array, areas: Array, tiles: tuple[int, int]) -> Array:
    """Move cells apart until no part of the device holds more than fits, in the order that they have.

    Parameters
    ----------
    positions : float64[cells, 2]
        Column and row.
    areas : float64[cells]
        Areas in look-up tables; see :data:`AREAS`.
    tiles : tuple of int
        Columns and rows of the device.

    Returns
    -------
    float64[cells, 2]
    """
    moved = positions.copy()
    rectangles = [(np.arange(len(positions)), np.zeros(2), np.array(tiles, dtype=float))]
    while rectangles:
        cells, low, high = rectangles.pop()
        axis = int(np.argmax(high - low))
        if high[axis] - low[axis] <= _LEAST_SIDE:
            moved[cells] = _stretched(moved[cells], low, high)
            continue
        middle = (low[axis] + high[axis]) / 2
        cells = cells[np.argsort(positions[cells, axis], kind="stable")]
        filled = np.cumsum(areas[cells])
        cut = int(np.searchsorted(positions[cells, axis], middle))
        if len(cells):
            room = max(_DENSITY * _TILE * float(np.prod(high - low)), float(filled[-1])) / 2
            left = float(filled[cut - 1]) if cut else 0.0
            if not filled[-1] - room <= left <= room:
                cut = int(np.searchsorted(filled, min(max(left, filled[-1] - room), room)))
        border = np.where(np.arange(2) == axis, middle, high), np.where(np.arange(2) == axis, middle, low)
        rectangles += [(cells[:cut], low, border[0]), (cells[cut:], border[1], high)]
    return moved


def _stretched(positions: Array, low: Array, high: Array) -> Array:
    """Keep cells that are in a rectangle, and spread the others over it in their order, along each axis."""
    result = positions.copy()
    for axis in (0, 1):
        line = positions[:, axis]
        if len(line) and (line.min() < low[axis] or line.max() > high[axis]):
            ranks = np.empty(len(line))
            ranks[np.argsort(line, kind="stable")] = np.arange(len(line))
            result[:, axis] = low[axis] + ranks / max(len(line) - 1, 1) * (high[axis] - low[axis])
    return result


# Nets of a mapped netlist on long paths, before anything is placed.
#
# Logic has about the delays of an ECP5. A wire that is not a carry has the same delay everywhere, as the places of its
# ends are not known yet.

#: Ports of clocks, whose nets have wires of their own.
_CLOCKS = frozenset({"CLK", "CLKA", "CLKB", "CLK0", "CLK1", "CLK2", "CLK3", "WCK"})

#: Delays in ns: of a wire, of the start of a path, and of logic, by type of cell.
_WIRE = 0.9
_REGISTER, _SLOW_RAM, _SLOW_MULTIPLIER = 0.6, 5.7, 3.5
_SETUP = {"CE": 0.4, "LSR": 0.4}
_LOGIC = {
    "LUT4": ("ABCD", "Z", 0.24),
    "PFUMX": (("ALUT", "BLUT", "C0"), "Z", 0.2),
    "L6MUX21": (("D0", "D1", "SD"), "Z", 0.2),
    "TRELLIS_DPR16X4": (("RAD",), ("DO",), 0.24),
}
_CARRY_IN, _CARRY, _SUM = 0.45, 0.07, 0.44

Cell = Mapping[str, Any]


def path_delays(cells: Mapping[str, Cell]) -> dict[int, float]:
    """Compute the delay of the longest path through each net, by the net's number, in ns.

    Parameters
    ----------
    cells : mapping
        Cells of a flat netlist, as ``write_json`` of Yosys writes it. Loops of logic have no delay.
    """
    after: dict[int, list[tuple[int, float]]] = defaultdict(list)
    before: Counter[int] = Counter()
    arrival: dict[int, float] = {}
    setup: dict[int, float] = {}
    carries = {bit for cell in cells.values() if cell["type"] == "CCU2C" for bit in _bits(cell, "COUT")}
    for cell in cells.values():
        arcs = list(_arcs(cell))
        for source, target, delay in arcs:
            after[source].append((target, delay))
            before[target] += 1
        driven = {target for _, target, _ in arcs}
        for port, direction in cell.get("port_directions", {}).items():
            for bit in _bits(cell, port):
                if direction == "output" and bit not in driven:
                    arrival[bit] = _start_of(cell)
                elif direction == "input" and port not in _CLOCKS:
                    setup[bit] = max(setup.get(bit, 0.0), _SETUP.get(port, 0.0))

    def wire(net: int) -> float:
        return 0.0 if net in carries else _WIRE

    ready = [net for net in arrival.keys() | after.keys() if not before[net]]
    order = []
    while ready:
        net = ready.pop()
        order.append(net)
        for target, delay in after.get(net, ()):
            arrival[target] = max(arrival.get(target, 0.0), arrival.get(net, 0.0) + wire(net) + delay)
            before[target] -= 1
            if not before[target]:
                ready.append(target)
    left: dict[int, float] = {}
    for net in reversed(order):
        later = [delay + left[target] for target, delay in after.get(net, ())]
        left[net] = wire(net) + max([setup.get(net, 0.0), *later])
    return {net: arrival.get(net, 0.0) + left[net] for net in order}


def _bits(cell: Cell, port: str) -> list[int]:
    return [bit for bit in cell["connections"].get(port, ()) if isinstance(bit, int)]


def _start_of(cell: Cell) -> float:
    """Return the delay at the output of a register, or of a block with or without one."""
    parameters = cell.get("parameters", {})
    if cell["type"] == "DP16KD":
        modes = (parameters.get("REGMODE_A"), parameters.get("REGMODE_B"))
        return _REGISTER if "OUTREG" in modes else _SLOW_RAM
    if cell["type"] == "MULT18X18D":
        return _SLOW_MULTIPLIER if parameters.get("REG_OUTPUT_CLK", "NONE") == "NONE" else _REGISTER
    return _REGISTER


def _arcs(cell: Cell) -> Iterator[tuple[int, int, float]]:
    """Yield the arcs of a cell, from an input to an output, with their delays."""
    if cell["type"] == "CCU2C":
        for port in ("A0", "B0", "C0", "D0", "A1", "B1", "C1", "D1", "CIN"):
            for output in ("S0", "S1", "COUT"):
                # Only the second sum depends on the second operands.
                if output == "S0" and port.endswith("1"):
                    continue
                delay = _CARRY_IN if port != "CIN" else _CARRY if output == "COUT" else _SUM
                yield from ((source, target, delay) for source in _bits(cell, port) for target in _bits(cell, output))
    elif cell["type"] in _LOGIC:
        inputs, outputs, delay = _LOGIC[cell["type"]]
        for port in inputs:
            for output in outputs:
                yield from ((source, target, delay) for source in _bits(cell, port) for target in _bits(cell, output))


# Plans: the sites of blocks.


class BlockSite(NamedTuple):
    """A place for a block: nextpnr's name, column and row."""

    bel: str
    x: int
    y: int


class _Pool(NamedTuple):
    """Blocks that may exchange their sites, and all their possible sites."""

    blocks: list[int]
    sites: Sequence[BlockSite]


#: Nets with more cells than this have no springs.
_MOST_CELLS = 400
#: The springs of a net together are limited to those of a net with this many cells.
_MOST_PULL = 16
#: The greatest stiffness of springs on long paths, the delay in ns for it, and the exponent of the delay below: only
#: few nets are to be short at the cost of all others.
_CRITICAL_NS = 9.5
_CRITICAL_PULL, _CRITICAL_POWER = 10.0, 3
#: The share of the stiffness of a cell's springs with which it is pulled to its place after spreading.
_ROOM_PULL = 0.02
#: Annealing: the first temperature in mean changes of energy, and the last one in first ones.
_FIRST_TEMPERATURE, _LAST_TEMPERATURE = 1.0, 1e-4
_SAMPLES = 2_000


def floorplan(
    netlist: dict[str, Any],
    sites: Mapping[str, Sequence[BlockSite]],
    *,
    tiles: tuple[int, int],
    top: str = "top",
    seed: int = 1,
    kinds: Mapping[str, str] | None = None,
    areas: Mapping[str, float] = AREAS,
    proposals: int = 25_000,
    merges: int = 0,
) -> int:
    """Give every cell of the types in ``sites`` a site, by an attribute that nextpnr obeys.

    Parameters
    ----------
    netlist : dict
        A flat netlist, as ``write_json`` of Yosys writes it; changed in place.
    sites : mapping of str to sequence of BlockSite
        The sites of the device, by type of cell, or by what ``kinds`` gives for types that share sites.
    tiles : tuple of int
        Columns and rows of the device.
    top : str
        Name of the module.
    seed : int
        The same seed gives the same plan.
    kinds : mapping of str to str or None
        For each type of cell that gets a site its key in ``sites``; by default the type itself.
    areas : mapping of str to float
        Look-up tables that a cell takes or blocks, by type.
    proposals : int
        Exchanges of sites that annealing tries for each block, in each of two plans.
    merges : int
        How often cells are merged with the neighbours to which they are tied most stiffly, before they are eliminated,
        whose time and memory grow much faster than the number of cells. Each time leaves about a sixth of them.

    Returns
    -------
    int
        The number of cells that got a site.

    Raises
    ------
    ValueError
        If there are more cells of a type than sites.
    """
    cells = netlist["modules"][top]["cells"]
    kinds = {kind: kind for kind in sites} if kinds is None else kinds
    blocks = [name for name, cell in cells.items() if cell["type"] in kinds]
    pools = []
    for kind, of_kind in sites.items():
        members = [number for number, name in enumerate(blocks) if kinds[cells[name]["type"]] == kind]
        if len(members) > len(of_kind):
            raise ValueError(f"the design has {len(members)} {kind}, the device {len(of_kind)}")
        pools.append(_Pool(members, of_kind))
    if len(blocks) < 2:
        return 0
    others = [name for name, cell in cells.items() if cell["type"] not in kinds]
    sizes = np.array([areas.get(cells[name]["type"], 0.0) for name in others])
    laplacian = _laplacian(_nets(cells, [*blocks, *others]), path_delays(cells), len(cells))
    groups = _merged(laplacian, len(blocks), merges)

    def plan(springs: _Springs) -> list[BlockSite]:
        return _Annealing(springs, pools, np.random.default_rng(seed)).run(proposals)

    crowded = _eliminated(laplacian, groups, len(blocks))
    first = plan(crowded)
    places = np.array([(site.x, site.y) for site in first], dtype=float)
    room = spread((crowded.follows @ places)[groups[len(blocks) : len(cells)] - len(blocks)], sizes, tiles)
    pulled = np.flatnonzero(sizes)
    chosen = plan(_eliminated(laplacian, groups, len(blocks), pulled, room[pulled]))
    for name, site in zip(blocks, chosen, strict=True):
        cells[name].setdefault("attributes", {})["BEL"] = site.bel
    return len(blocks)


def _nets(cells: dict[str, Any], ordered: list[str]) -> dict[int, list[int]]:
    """Return the cells that each net connects, by their numbers in ``ordered``; clocks have wires of their own."""
    position = {name: number for number, name in enumerate(ordered)}
    nets: dict[int, set[int]] = defaultdict(set)
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if port not in _CLOCKS:
                for bit in bits:
                    if isinstance(bit, int):
                        nets[bit].add(position[name])
    return {net: sorted(connected) for net, connected in nets.items()}


def _laplacian(nets: Mapping[int, list[int]], delays: Mapping[int, float], cells: int) -> Any:
    """Return the springs between cells, and the centres of nets after them, as SciPy's sparse array."""
    # SciPy is part of the `synth` extra: running networks does not need it.
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
            # A node in the centre is equivalent to springs between all pairs.
            pull = stiffness * min(size, _MOST_PULL) / (size - 1)
            ends += [(cell, nodes, pull) for cell in connected]
            nodes += 1
    rows, columns, pulls = (np.array(part) for part in zip(*ends, strict=True))
    springs = sparse.coo_array((pulls, (rows, columns)), shape=(nodes, nodes)).tocsr()
    springs = springs + springs.T
    return (sparse.diags_array(springs.sum(axis=1)) - springs).tocsc()


def _merged(laplacian: Any, blocks: int, merges: int) -> NDArray[np.int_]:
    """Return the group of each node, numbered from 0: each block is a group of its own and comes first.

    In each turn a node joins the neighbour to which its spring is the stiffest, and so do those that join it.
    """
    from scipy import sparse  # noqa: PLC0415
    from scipy.sparse import csgraph  # noqa: PLC0415

    groups = np.arange(laplacian.shape[0])
    for _ in range(merges):
        count = int(groups.max()) + 1
        joins = sparse.csr_array((np.ones(len(groups)), (np.arange(len(groups)), groups)), shape=(len(groups), count))
        springs = (joins.T @ (sparse.diags_array(laplacian.diagonal()) - laplacian) @ joins).tocoo()
        inner = (springs.row >= blocks) & (springs.col >= blocks) & (springs.row != springs.col)
        rows, columns, pulls = springs.row[inner], springs.col[inner], springs.data[inner]
        # The last entry of each row after sorting is its stiffest spring.
        order = np.lexsort((pulls, rows))
        last = np.flatnonzero(np.diff(rows[order], append=-1))
        own, best = rows[order][last], columns[order][last]
        pairs = sparse.coo_array((np.ones(len(own)), (own, best)), shape=(count, count))
        _, labels = csgraph.connected_components(pairs, directed=False)
        # Blocks, which no pair has, keep their numbers, as components are numbered in the order of their first nodes.
        groups = labels[groups]
    return groups


class _Springs(NamedTuple):
    """The springs of blocks, with all other cells where the springs pull them.

    Attributes
    ----------
    between : float64[blocks, blocks]
        The Laplacian.
    pull : float64[blocks, 2]
        Other forces on each block, apart from that of its position.
    follows : float64[groups, blocks]
        The weight of each block in the position of each group of other nodes.
    """

    between: Array
    pull: Array
    follows: Array


def _eliminated(
    laplacian: Any,
    groups: NDArray[np.int_],
    blocks: int,
    pulled: NDArray[np.int_] | None = None,
    room: Array | None = None,
) -> _Springs:
    """Eliminate all groups of nodes but the first ``blocks``; of the other nodes, ``pulled`` are pulled to ``room``."""
    from scipy import sparse  # noqa: PLC0415
    from scipy.sparse import linalg  # noqa: PLC0415

    count = int(groups.max()) + 1
    joins = sparse.csr_array((np.ones(len(groups)), (np.arange(len(groups)), groups)), shape=(len(groups), count))
    # Nodes that are not connected to any block get a very weak spring, so that the matrix can be inverted.
    held, anchors = np.full(len(groups) - blocks, 1e-6), np.zeros((len(groups) - blocks, 2))
    if pulled is not None:
        held[pulled] += _ROOM_PULL * laplacian.diagonal()[blocks:][pulled]
        anchors[pulled] = held[pulled, None] * room
    joined = (joins.T @ laplacian @ joins).tocsc()
    held, anchors = (joins[blocks:, blocks:].T @ each for each in (held, anchors))
    inner, outer = joined[:blocks], joined[blocks:]
    rest = linalg.splu((outer[:, blocks:] + sparse.diags_array(held)).tocsc(), permc_spec="MMD_AT_PLUS_A")
    solved = rest.solve(np.hstack([-outer[:, :blocks].toarray(), anchors]))
    follows, others = solved[:, :blocks], solved[:, blocks:]
    between: Array = inner[:, :blocks].toarray() + inner[:, blocks:] @ follows
    return _Springs((between + between.T) / 2, inner[:, blocks:] @ others, follows)


class _Annealing:
    """Exchanges of blocks' sites, of which fewer and fewer may lengthen wires."""

    def __init__(
        self,
        springs: _Springs,
        pools: Sequence[_Pool],
        rng: np.random.Generator,
    ):
        self.springs, self.pull, self.rng = springs.between, springs.pull, rng
        self.sites = [site for pool in pools for site in pool.sites]
        self.positions = np.array([(site.x, site.y) for site in self.sites], dtype=float)
        self.choice = [0] * len(self.springs)
        # The sites to which a block may go: the first site of its pool, and their number.
        self.first, self.count = np.zeros(len(self.springs), dtype=int), np.zeros(len(self.springs), dtype=int)
        self.tenant: list[int | None] = [None] * len(self.sites)
        first = 0
        for blocks, sites in pools:
            self.first[blocks], self.count[blocks] = first, len(sites)
            for block, site in zip(blocks, (first + rng.permutation(len(sites))).tolist(), strict=False):
                self.choice[block], self.tenant[site] = site, block
            first += len(sites)

    def run(self, proposals: int) -> list[BlockSite]:
        """Anneal with so many proposals for each block; return each block's site."""
        total = proposals * len(self.springs)
        self.force = self.springs @ self.positions[self.choice] + self.pull
        changes = [abs(change) for _, _, change in self._proposals(_SAMPLES)]
        first = _FIRST_TEMPERATURE * float(np.mean(changes)) if changes else 1.0
        luck = (-np.log(1 - self.rng.random(total))).tolist()
        for number, (block, site, change) in enumerate(self._proposals(total)):
            if change <= 0 or change < luck[number] * first * _LAST_TEMPERATURE ** (number / total):
                self._move(block, site)
        return [self.sites[site] for site in self.choice]

    def _proposals(self, count: int):
        """Propose moves: blocks, their new sites, and the changes of energy."""
        springs, diagonal = self.springs, self.springs.diagonal().tolist()
        blocks = self.rng.integers(len(springs), size=count)
        sites = self.first[blocks] + (self.rng.random(count) * self.count[blocks]).astype(int)
        for block, site in zip(blocks.tolist(), sites.tolist(), strict=True):
            old = self.choice[block]
            if site == old:
                continue
            # These are plain numbers: for two of them most of the time would be an array's overhead.
            x, y = self.sites[site].x - self.sites[old].x, self.sites[site].y - self.sites[old].y
            other = self.tenant[site]
            (force_x, force_y), stiffness = self.force[block].tolist(), diagonal[block]
            if other is not None:
                other_x, other_y = self.force[other].tolist()
                force_x, force_y = force_x - other_x, force_y - other_y
                stiffness += diagonal[other] - 2 * springs.item(block, other)
            yield block, site, 2 * (x * force_x + y * force_y) + stiffness * (x * x + y * y)

    def _move(self, block: int, site: int) -> None:
        """Exchange the places of ``block`` and of the block at ``site``, if there is one."""
        old, other = self.choice[block], self.tenant[site]
        stiffness = self.springs[block] if other is None else self.springs[block] - self.springs[other]
        self.force += np.outer(stiffness, self.positions[site] - self.positions[old])
        self.choice[block], self.tenant[site], self.tenant[old] = site, block, other
        if other is not None:
            self.choice[other] = old
