"""The network that is compiled, with its accelerator, its views and its exchanges between cores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ...golden.config import Config
from ..graph import Graph, Layer, Tensor, ViewPlace, Views

#: First and last layer, both included.
Span = tuple[int, int]

# The compiler's exception.


class CompileError(ValueError):
    """The configuration cannot run a network; the message names the place and the remedy."""


# Exchanges: regions of a tensor that pass between the cores of an inference, through external memory.


@dataclass(frozen=True, slots=True)
class Region:
    """Some rows and channels of a tensor, with all columns.

    Attributes
    ----------
    rows, channels : range
        None of them empty.
    """

    rows: range
    channels: range

    def meet(self, other: Region) -> Region | None:
        """Return the intersection of two regions; None if it is empty."""
        rows, channels = _meet(self.rows, other.rows), _meet(self.channels, other.channels)
        return Region(rows, channels) if rows and channels else None

    def join(self, other: Region) -> Region:
        """Return the smallest region that contains both."""
        return Region(_join(self.rows, other.rows), _join(self.channels, other.channels))

    def holds(self, other: Region) -> bool:
        """Return whether this region contains another one."""
        return self.join(other) == self

    def within(self, other: Region) -> Region:
        """Return the region relative to the first row and channel of another one."""
        return Region(_moved(self.rows, other.rows.start), _moved(self.channels, other.channels.start))


def _meet(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _join(one: range, other: range) -> range:
    return range(min(one.start, other.start), max(one.stop, other.stop))


def _moved(one: range, start: int) -> range:
    return range(one.start - start, one.stop - start)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The part of the network's tensor that a tensor of a core's graph is.

    Attributes
    ----------
    tensor : Tensor
        The network's tensor.
    region : Region
        The region of that tensor.
    """

    tensor: Tensor
    region: Region

    @classmethod
    def all_of(cls, tensor: Tensor) -> Excerpt:
        """Return the whole tensor as an excerpt."""
        return cls(tensor, Region(range(tensor.shape[0]), range(tensor.shape[2])))


@dataclass(frozen=True, slots=True)
class Exchange:
    """A core's share in the exchange of a tensor of the network, parts of which several cores compute or read.

    Attributes
    ----------
    own : Region or None
        The region that the core computes.
    arrives : tuple of Region
        Regions that other cores compute and its layers read.
    leaves : tuple of Region
        Regions that it computes and layers of other cores read.
    earlier : frozenset of str
        Outputs of the core's layers before the tensor's.
    """

    own: Region | None
    arrives: tuple[Region, ...]
    leaves: tuple[Region, ...]
    earlier: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Network:
    """A graph and the configuration that it is compiled for.

    Rewritten and with its views, it is the first state of a plan, see :mod:`.plan`.

    Attributes
    ----------
    graph : Graph
    config : Config
    views : mapping of str to ViewPlace
        Tensors that are some rows and channels of another one.
    excerpts : mapping of str to Excerpt
        The part of the network's tensor that each tensor is, where the graph is one core's part of an inference.
    exchanges : mapping of str to Exchange
        The exchanges of the network's tensors, by their names. All cores take part in a barrier for each, in this
        order.
    has_wide_windows : bool
        Whether windows may compute several pixels where that is faster.
    given : Graph or None
        The graph before the passes, if it is to be reported; ``graph`` is their result.
    """

    graph: Graph
    config: Config
    views: Views = field(default_factory=dict)
    excerpts: Mapping[str, Excerpt] = field(default_factory=dict)
    exchanges: Mapping[str, Exchange] = field(default_factory=dict)
    has_wide_windows: bool = True
    given: Graph | None = None

    @classmethod
    def of(cls, before: Network, **decided: Any) -> Self:
        """Return a plan in this state: all fields of an earlier state, and those that have been decided since."""
        names = [field.name for field in dataclasses.fields(cls) if hasattr(before, field.name)]
        return cls(**{name: getattr(before, name) for name in names} | decided)

    def consumers(self, tensor: str) -> list[tuple[int, Layer]]:
        """Return the layers that read ``tensor``, with their indices."""
        return [(index, layer) for index, layer in enumerate(self.graph.layers) if tensor in layer.fetched]

    def place_of(self, name: str) -> ViewPlace:
        """Return the place of a tensor within its root, which is a tensor and no view."""
        place = ViewPlace(name)
        while place.tensor in self.views:
            place = self.views[place.tensor].of(place.channel, place.phase)
        return place

    def root(self, name: str) -> str:
        """Return the root of a tensor, which is no view; the tensor itself if it is none."""
        return self.place_of(name).tensor

    def region_of(self, name: str) -> Region:
        """Return the region of a tensor within its root; that of a phase includes the rows in between."""
        (height, _, channels), place = self.graph.tensors[name].shape, self.place_of(name)
        rows = place.phase.rows(range(height))
        return Region(range(rows.start, rows[-1] + 1), range(place.channel, place.channel + channels))

    @property
    def roots(self) -> list[str]:
        """All roots in the feature memory: inputs first, then in the order of use."""
        names = [*self.graph.inputs, *(name for layer in self.graph.layers for name in (*layer.fetched, layer.output))]
        return list(dict.fromkeys(map(self.root, names)))

    @property
    def readers(self) -> dict[str, list[int]]:
        """Return, for each root, the layers that read it or a view of it, in order."""
        return _by_root(
            (self.root(name), index) for index, layer in enumerate(self.graph.layers) for name in layer.fetched
        )

    @property
    def writers(self) -> dict[str, list[int]]:
        """Return, for each root, the layers that write it or a view of it, in order."""
        return _by_root((self.root(layer.output), index) for index, layer in enumerate(self.graph.layers))

    def partial_with(self, spans: Mapping[str, Span | None], index: int) -> frozenset[str]:
        """Return the inputs and outputs of a layer that are not whole in the feature memory while it runs, with live
        ranges ``spans`` of whole tensors."""
        layer = self.graph.layers[index]
        return frozenset(
            name
            for name in (*layer.fetched, layer.output)
            if not (span := spans.get(self.root(name))) or not span[0] <= index <= span[1]
        )

    def excerpt_of(self, name: str) -> Excerpt:
        """Return the part of the network's tensor that a tensor is."""
        return self.excerpts[name] if self.excerpts else Excerpt.all_of(self.graph.tensors[name])

    def exchange_of(self, name: str) -> Exchange | None:
        """Return the exchange of the network's tensor of which this tensor is a part; None if there is none."""
        return self.exchanges.get(self.excerpt_of(name).tensor.name)

    def arriving(self, root: str) -> list[Region]:
        """Return the regions of a root that other cores compute, relative to it."""
        exchange, region = self.exchange_of(root), self.excerpt_of(root).region
        return [arrived.within(region) for arrived in exchange.arrives] if exchange else []

    @property
    def matrices(self) -> set[str]:
        """The tensors that layers read as their weights; they go through external memory."""
        return {layer.inputs[layer.weight_place] for layer in self.graph.layers if layer.weight_place is not None}

    @property
    def stored(self) -> set[str]:
        """The roots that are stored in external memory: outputs, weights, and tensors that other cores read."""
        given = (name for name in self.roots if (exchange := self.exchange_of(name)) and exchange.leaves)
        return {*map(self.root, self.graph.outputs), *self.matrices, *given}

    def outside(self, name: str) -> Tensor:
        """Return a tensor as in external memory, where a pixel has as many channels as in the network's tensor."""
        tensor = self.graph.tensors[name]
        channels = self.excerpt_of(name).tensor.shape[2]
        return dataclasses.replace(tensor, shape=(*tensor.shape[:2], channels))


def _by_root(found: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the distinct layer numbers for each root, in order."""
    numbers: dict[str, dict[int, None]] = {}
    for name, index in found:
        numbers.setdefault(name, {})[index] = None
    return {name: list(indices) for name, indices in numbers.items()}


def check_begins_at_byte(network: Network, layer: Layer, name: str, channel: int) -> None:
    """Refuse to read or write channels of a tensor separately from those before them if they share a byte.

    Raises
    ------
    CompileError
        If the channel begins within a byte.
    """
    bits = network.graph.tensors[name].bits
    if channel * bits % 8:
        raise CompileError(
            f"{layer.name}: channel {channel} of {name} must begin at a byte, not within one, with {bits} bits an "
            "element; let a multiple of 8 channels lie before it"
        )
