"""Splits of layers: the part of a layer's output that each core computes, and the regions of inputs that it needs."""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
from collections.abc import Iterable, Sequence

from ....golden.isa import Load, Store
from ....golden.memories import LocalMemory
from ...graph import Graph, Layer, Tensor, ViewPlace, Views, own_name
from ..network import Excerpt, Exchange, Region
from ..operation import SyncedCommand
from ..plan import Plan, Scheduled


class Split(enum.Enum):
    """The axis of a layer's output that is divided among cores."""

    #: One core computes all of it.
    ONE = enum.auto()
    ROWS = enum.auto()
    CHANNELS = enum.auto()


#: The region of an output that each core computes; None for a core without a part.
Parts = tuple[Region | None, ...]


def parts_of(graph: Graph, layer: Layer, split: Split, cores: int, unit: int) -> Parts | None:
    """Return the region of a layer's output that each core computes; None where the layer cannot be split so.

    Parameters
    ----------
    graph : Graph
    layer : Layer
    split : Split
    cores : int
    unit : int
        Number of channels that are not divided.
    """
    if split is Split.ONE:
        return whole_on_one(graph, layer, cores)
    whole = Excerpt.all_of(graph.tensors[layer.output]).region
    if split is Split.ROWS:
        # Rows with the same window are not divided.
        shares = evenly(len(whole.rows), cores, layer.window.up[0])
        parts = [Region(rows, whole.channels) if rows else None for rows in shares]
    else:
        parts = [
            Region(whole.rows, channels) if channels else None for channels in evenly(len(whole.channels), cores, unit)
        ]
    possible = all(part is None or part_of(graph, layer, part) is not None for part in parts)
    return tuple(parts) if possible and parts[1] is not None else None


def whole_on_one(graph: Graph, layer: Layer, cores: int) -> Parts:
    """Return parts that compute a layer's whole output on the first core."""
    return (Excerpt.all_of(graph.tensors[layer.output]).region, *(None,) * (cores - 1))


def split_of(parts: Parts) -> Split:
    """Return the split that has these parts."""
    first, second, *_ = parts
    if first is None or second is None:
        return Split.ONE
    return Split.CHANNELS if first.rows == second.rows else Split.ROWS


def evenly(count: int, cores: int, unit: int = 1) -> list[range]:
    """Return ``range(count)`` in a part for each core, as even as whole units allow, the larger ones first."""
    units = -(-count // unit)
    sizes = [units // cores + (core < units % cores) for core in range(cores)]
    edges = [min(edge * unit, count) for edge in itertools.accumulate(sizes, initial=0)]
    return [range(start, stop) for start, stop in itertools.pairwise(edges)]


def part_of(graph: Graph, layer: Layer, region: Region) -> tuple[Layer, list[Region]] | None:
    """Return the layer that computes a region of a layer's output, and the region that it needs of each input.

    None where the layer cannot be divided so, or where the region is computed from padding only.
    """
    target, sources = graph.tensors[layer.output], [graph.tensors[name] for name in layer.inputs]
    rows = [range(source.shape[0]) for source in sources]
    if region.rows != range(target.shape[0]):
        rows = [layer.window_of(place).rows_read(region.rows, len(every)) for place, every in enumerate(rows)]
        part = layer.of_rows(region.rows, sources[0].shape[0])
        if part is None:
            return None
        layer = part
    channels = None
    if region.channels != range(target.shape[2]):
        found = layer.of_channels(region.channels, sources[0])
        if found is None:
            return None
        layer, channels = found
    needed = [Region(own, channels or range(source.shape[2])) for own, source in zip(rows, sources, strict=True)]
    edges = [(source, edge) for source, part in zip(sources, needed, strict=True) for edge in _edges(part, source)]
    edges += [(target, edge) for edge in _edges(region, target)]
    if not all(rows) or any(edge * tensor.bits % 8 for tensor, edge in edges):
        return None
    return layer, needed


def _edges(region: Region, tensor: Tensor) -> list[int]:
    """Return the channels at which a region begins, or ends before the tensor does."""
    return [edge for edge in (region.channels.start, region.channels.stop) if edge < tensor.shape[2]]


# Local graphs: each core's part of a network as a graph of its own, with the exchanges of regions between cores.


@dataclasses.dataclass(frozen=True)
class Local:
    """A core's part of a network, see :class:`.network.Network`."""

    graph: Graph
    views: Views
    excerpts: dict[str, Excerpt]
    exchanges: dict[str, Exchange]


def local_graphs(graph: Graph, parts: Sequence[Parts], alike: Iterable[Layer]) -> list[Local]:
    """Return the part of each core.

    A layer's inputs in it have exactly the rows and channels that the layer needs. All regions of a tensor that a core
    computes or needs are views of one tensor that spans them.

    Parameters
    ----------
    graph : Graph
        The network's graph.
    parts : sequence of Parts
        Parts of the output of each layer.
    alike : iterable of Layer
        Layers whose inputs must have equal distances of pixels.
    """
    cores = range(len(parts[0]))
    computed = {layer.output: of_layer for layer, of_layer in zip(graph.layers, parts, strict=True)}
    names = _Names(graph)
    builds = [_Core(graph, core, computed, alike, names) for core in cores]
    exchanges: list[dict[str, Exchange]] = [{} for _ in cores]
    for name, own in computed.items():
        needed = [build.needed(name) for build in builds]
        given = [[_meet(needed[taker], own[giver]) if taker != giver else None for taker in cores] for giver in cores]
        if any(region for of_core in given for region in of_core):
            for core in cores:
                arrives = [given[giver][core] for giver in cores]
                exchanges[core][name] = Exchange(
                    own[core], _distinct(arrives), _distinct(given[core]), builds[core].earlier(name)
                )
    return [build.local(of_core) for build, of_core in zip(builds, exchanges, strict=True)]


def _meet(one: Region | None, other: Region | None) -> Region | None:
    return one.meet(other) if one and other else None


def _distinct(regions: Iterable[Region | None]) -> tuple[Region, ...]:
    """Return each region once, without those within others."""
    found = [*dict.fromkeys(region for region in regions if region)]
    return tuple(one for one in found if not any(other != one and other.holds(one) for other in found))


class _Names:
    """Names of parts of tensors: the same on every core, and different from those of the network's tensors."""

    def __init__(self, graph: Graph):
        self._taken = {*graph.tensors}
        self._names: dict[tuple[str, Region], str] = {}

    def of(self, name: str, region: Region) -> str:
        if (name, region) not in self._names:
            rows, channels = region.rows, region.channels
            wanted = f"{name}[{rows.start}:{rows.stop}, {channels.start}:{channels.stop}]"
            self._names[name, region] = own_name(wanted, self._taken)
            self._taken.add(self._names[name, region])
        return self._names[name, region]


class _Core:
    """The graph of one core."""

    def __init__(self, graph: Graph, core: int, computed: dict[str, Parts], alike: Iterable[Layer], names: _Names):
        self.graph, self.names = graph, names
        self.own = {name: own for name, parts in computed.items() if (own := parts[core])}
        #: The core's parts of layers, each with the region of each input.
        self.layers: list[tuple[Layer, list[Region]]] = []
        self.reads: dict[str, list[Region]] = {}
        for layer in graph.layers:
            if layer.output in self.own:
                found = part_of(graph, layer, self.own[layer.output])
                assert found is not None, "a part that a layer cannot be split into"
                part, needed = found
                self.layers.append((part, needed))
                for name, region in zip(layer.inputs, needed, strict=True):
                    self.reads.setdefault(name, []).append(region)
        self.whole = {name: functools.reduce(Region.join, self._regions(name)) for name in {**self.reads, **self.own}}
        self.tensors: dict[str, Tensor] = {}
        self.excerpts: dict[str, Excerpt] = {}
        self.views: dict[str, ViewPlace] = {}
        self._level([layer.inputs for layer in alike if layer.output in self.own])

    def _regions(self, name: str) -> list[Region]:
        """Return the regions of a tensor that the core reads and computes."""
        return [*self.reads.get(name, ()), *([self.own[name]] if name in self.own else ())]

    def _level(self, operands: list[tuple[str, ...]]) -> None:
        """Give tensors whose pixels must be equally far apart the same channels."""
        changed = True
        while changed:
            changed = False
            for names in operands:
                channels = functools.reduce(Region.join, (self.whole[name] for name in names)).channels
                for name in names:
                    changed |= self.whole[name].channels != channels
                    self.whole[name] = Region(self.whole[name].rows, channels)

    def needed(self, name: str) -> Region | None:
        """Return the region of a tensor that its layers read."""
        regions = self.reads.get(name)
        return functools.reduce(Region.join, regions) if regions else None

    def earlier(self, name: str) -> frozenset[str]:
        """Return the tensors that the core computes before a tensor."""
        outputs = [layer.output for layer in self.graph.layers]
        return frozenset(outputs[: outputs.index(name)]) & self.own.keys()

    def local(self, exchanges: dict[str, Exchange]) -> Local:
        """Return the core's part of the network."""
        graph = self.graph
        for name, whole in self.whole.items():
            root = self._add(name, whole)
            for region in self._regions(name):
                if region != whole:
                    place = region.within(whole)
                    self.views[self._add(name, region)] = ViewPlace(root, place.channels.start, place.rows.start)
        layers = []
        for layer, needed in self.layers:
            if layer.inner != layer.output:
                self._put(layer.inner, graph.tensors[layer.inner], self.own[layer.output])
            names = tuple(self._name(name, region) for name, region in zip(layer.inputs, needed, strict=True))
            layers.append(dataclasses.replace(layer, inputs=names))
        inputs = [self._name(name, self.whole[name]) for name in graph.inputs if name in self.whole]
        outputs = [name for name in graph.outputs if name in self.own]
        local = dataclasses.replace(graph, tensors=self.tensors, layers=layers, inputs=inputs, outputs=outputs)
        return Local(local, self.views, self.excerpts, exchanges)

    def _name(self, name: str, region: Region) -> str:
        """Return the name of a region: the tensor's own for the region that the core computes, else one with its
        bounds."""
        if region == self.own.get(name, Excerpt.all_of(self.graph.tensors[name]).region):
            return name
        return self.names.of(name, region)

    def _add(self, name: str, region: Region) -> str:
        local = self._name(name, region)
        is_verified = local == name and (name in self.own or name in self.graph.inputs)
        self._put(local, self.graph.tensors[name], region, is_verified=is_verified)
        return local

    def _put(self, local: str, tensor: Tensor, region: Region, *, is_verified: bool = True) -> None:
        shape = len(region.rows), tensor.shape[1], len(region.channels)
        # A core's results are verified; regions that other cores compute are verified there.
        views = tensor.views if is_verified else ()
        self.tensors[local] = dataclasses.replace(tensor, name=local, shape=shape, views=views)
        self.excerpts[local] = Excerpt(tensor, region)


# By sample, every core has samples of its own, and all weights.


def of_samples(plan: Plan) -> list[Scheduled]:
    """Return the plan for every core, with tensors at addresses of its own in the arena; constants are there once.

    Parameters
    ----------
    plan : Plan
        The plan of one core.
    """
    cores = plan.config.cores
    return [_moved(plan, number, cores) for number in range(cores)]


def _moved(plan: Plan, number: int, cores: int) -> Scheduled:
    """Return the plan of one of the cores: the arena holds the tensors of all cores, and then the streamed
    constants."""
    tensors, streamed = number * plan.external_bytes, (cores - 1) * plan.external_bytes
    return Scheduled.of_commands(
        plan,
        [_moved_command(command, tensors, streamed, plan.external_bytes) for command in plan.commands],
        external={name: address + tensors for name, address in plan.external.items()},
        external_bytes=cores * plan.external_bytes,
        streamed_address=plan.streamed_address + streamed,
        arrivals=tuple(
            dataclasses.replace(arrival, external=arrival.external + (tensors if arrival.tensor else streamed))
            for arrival in plan.arrivals
        ),
    )


def _moved_command(command: SyncedCommand, tensors: int, streamed: int, external_bytes: int) -> SyncedCommand:
    fields = command.fields
    if not isinstance(fields, Load | Store):
        return command
    is_tensor = fields.external < external_bytes
    moves_tensors = isinstance(fields, Store) or fields.memory == LocalMemory.FEATURE
    assert is_tensor or not moves_tensors, "a tensor among the constants of the arena"
    return command.with_fields(external=fields.external + (tensors if is_tensor else streamed))
