"""Network: what is compiled, for which accelerator, and which tensors lie in others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ...golden.config import Config
from ..graph import Graph, Layer, Tensor, ViewPlace, Views

#: First and last layer, both included.
Span = tuple[int, int]

# What the compiler raises.


class CompileError(ValueError):
    """A network that this configuration cannot run; the message names the place and the remedy."""


# Exchanges: what the cores that share an inference give one another of a tensor, through external memory.


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
        """What both have in common; None where that is nothing."""
        rows, channels = _meet(self.rows, other.rows), _meet(self.channels, other.channels)
        return Region(rows, channels) if rows and channels else None

    def join(self, other: Region) -> Region:
        """The least region that holds both."""
        return Region(_join(self.rows, other.rows), _join(self.channels, other.channels))

    def holds(self, other: Region) -> bool:
        """Whether all of another one lies in this one."""
        return self.join(other) == self

    def within(self, other: Region) -> Region:
        """The same, counted from the first row and channel of another one."""
        return Region(_moved(self.rows, other.rows.start), _moved(self.channels, other.channels.start))


def _meet(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _join(one: range, other: range) -> range:
    return range(min(one.start, other.start), max(one.stop, other.stop))


def _moved(one: range, start: int) -> range:
    return range(one.start - start, one.stop - start)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What a tensor of a core's graph is of the network's.

    Attributes
    ----------
    tensor : Tensor
        The network's.
    region : Region
        Of that.
    """

    tensor: Tensor
    region: Region

    @classmethod
    def all_of(cls, tensor: Tensor) -> Excerpt:
        """The whole tensor."""
        return cls(tensor, Region(range(tensor.shape[0]), range(tensor.shape[2])))


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a core gives and takes of a tensor of the network of which several cores compute a part or read one.

    Attributes
    ----------
    own : Region or None
        What the core computes.
    arrives : tuple of Region
        What others compute and its layers read.
    leaves : tuple of Region
        What it computes and layers of others read.
    earlier : frozenset of str
        What those layers of the core compute that come before the tensor's.
    """

    own: Region | None
    arrives: tuple[Region, ...]
    leaves: tuple[Region, ...]
    earlier: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Network:
    """What is compiled, and for which accelerator.

    Rewritten and with its views, it is the first state of a plan, see :mod:`.plan`.

    Attributes
    ----------
    graph : Graph
    config : Config
    views : mapping of str to ViewPlace
        Tensors that are some rows and channels of another one.
    excerpts : mapping of str to Excerpt
        What each tensor is of the network's, where several cores share an inference and the graph is one core's part.
    exchanges : mapping of str to Exchange
        By the names of the network's tensors, what the cores give one another of it. All of them meet at a barrier for
        each, in this order.
    has_wide_windows : bool
        Whether a window may compute several pixels, where that is faster.
    given : Graph or None
        What the passes began with, if it is to be told; ``graph`` is what they make of it.
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
        """A plan in this state: what is known of it, and what has been decided since."""
        return cls(**{field.name: getattr(before, field.name) for field in dataclasses.fields(before)} | decided)

    def consumers(self, tensor: str) -> list[tuple[int, Layer]]:
        """The layers that read ``tensor``, with their indices."""
        return [(index, layer) for index, layer in enumerate(self.graph.layers) if tensor in layer.fetched]

    def place_of(self, name: str) -> ViewPlace:
        """The tensor that is no view in which a tensor lies, and where."""
        place = ViewPlace(name)
        while place.tensor in self.views:
            place = self.views[place.tensor].of(place.channel, place.phase)
        return place

    def root(self, name: str) -> str:
        """The tensor that is no view in which a tensor lies: itself, if it is none."""
        return self.place_of(name).tensor

    def region_of(self, name: str) -> Region:
        """What of the tensor that is no view a tensor is: of a phase also the rows in between."""
        (height, _, channels), place = self.graph.tensors[name].shape, self.place_of(name)
        rows = place.phase.rows(range(height))
        return Region(range(rows.start, rows[-1] + 1), range(place.channel, place.channel + channels))

    @property
    def roots(self) -> list[str]:
        """Every tensor that lies in the feature memory and is no view: inputs first, then in the order of use."""
        names = [*self.graph.inputs, *(name for layer in self.graph.layers for name in (*layer.fetched, layer.output))]
        return list(dict.fromkeys(map(self.root, names)))

    @property
    def readers(self) -> dict[str, list[int]]:
        """Of each tensor that is no view and that layers read, or read a view of: those layers, in order."""
        return _by_root(
            (self.root(name), index) for index, layer in enumerate(self.graph.layers) for name in layer.fetched
        )

    @property
    def writers(self) -> dict[str, list[int]]:
        """Of each tensor that is no view and that layers write, or write a view of: those layers, in order."""
        return _by_root((self.root(layer.output), index) for index, layer in enumerate(self.graph.layers))

    def partial_with(self, spans: Mapping[str, Span | None], index: int) -> frozenset[str]:
        """The inputs and outputs of a layer that are not whole in the feature memory while it runs, if tensors are
        during such ``spans``: their first and their last layer."""
        layer = self.graph.layers[index]
        return frozenset(
            name
            for name in (*layer.fetched, layer.output)
            if not (span := spans.get(self.root(name))) or not span[0] <= index <= span[1]
        )

    def excerpt_of(self, name: str) -> Excerpt:
        """What a tensor is of the network's."""
        return self.excerpts[name] if self.excerpts else Excerpt.all_of(self.graph.tensors[name])

    def exchange_of(self, name: str) -> Exchange | None:
        """What cores give one another of the network's tensor of which this one is a part."""
        return self.exchanges.get(self.excerpt_of(name).tensor.name)

    def arriving(self, root: str) -> list[Region]:
        """What other cores give of a tensor that is no view."""
        exchange, region = self.exchange_of(root), self.excerpt_of(root).region
        return [arrived.within(region) for arrived in exchange.arrives] if exchange else []

    @property
    def matrices(self) -> set[str]:
        """Tensors that layers have as their weights: they go through external memory."""
        return {layer.inputs[layer.weight_place] for layer in self.graph.layers if layer.weight_place is not None}

    @property
    def stored(self) -> set[str]:
        """Tensors that are no views and that leave whoever reads them here: outputs, weights, and what other cores
        read."""
        given = (name for name in self.roots if (exchange := self.exchange_of(name)) and exchange.leaves)
        return {*map(self.root, self.graph.outputs), *self.matrices, *given}

    def outside(self, name: str) -> Tensor:
        """A tensor as it lies in external memory: with as many channels in a pixel as the network's has."""
        tensor = self.graph.tensors[name]
        channels = self.excerpt_of(name).tensor.shape[2]
        return dataclasses.replace(tensor, shape=(*tensor.shape[:2], channels))


def _by_root(found: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The numbers of each name, each of them once, in order."""
    numbers: dict[str, dict[int, None]] = {}
    for name, index in found:
        numbers.setdefault(name, {})[index] = None
    return {name: list(indices) for name, indices in numbers.items()}


def check_begins_at_byte(network: Network, layer: Layer, name: str, channel: int) -> None:
    """Refuse to read or write channels of a tensor apart from those before them, where they share a byte.

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
