"""Reordering of channels between layers, so that missing connections fill whole words.

A word holds as many neighbouring input channels as the array has lanes, and a tile as many neighbouring outputs as it
has columns; a word is left out if no output of the tile uses any of its channels. Zeros that a tool has put at single
channels are scattered over words and tiles. The order of a tensor's channels is free as long as all layers that write
or read it agree. Inputs and outputs of the network keep theirs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ....golden.config import Config
from ....golden.elements import CODE_BITS
from ....golden.timing.issue import result_groups
from ...graph import ChannelRule, Graph, Layer, Tensor

# Channel parts are runs of channels that move together in several tensors, by the rules of the layers that touch them.

Order = npt.NDArray[np.int64]


@dataclass(eq=False)
class ChannelPart:
    """A run of channels that may be permuted among themselves, in one tensor or in several."""

    size: int
    is_fixed: bool = False
    order: Order = field(init=False)

    def __post_init__(self) -> None:
        self.order = np.arange(self.size)


class Parts:
    """The parts of each tensor's channels, in order."""

    def __init__(self) -> None:
        self._parts: dict[str, list[ChannelPart]] = {}
        self._same: dict[ChannelPart, ChannelPart] = {}

    def __getitem__(self, name: str) -> list[ChannelPart]:
        return [self._representative(part) for part in self._parts[name]]

    def __setitem__(self, name: str, parts: list[ChannelPart]) -> None:
        self._parts[name] = parts

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def _representative(self, part: ChannelPart) -> ChannelPart:
        while part in self._same:
            part = self._same[part]
        return part

    def tie(self, *names: str) -> None:
        """Require the same order of channels in these tensors."""
        first = self[names[0]]
        for name in names[1:]:
            other = self[name]
            if [part.size for part in first] != [part.size for part in other]:
                self.fix(names[0])
                self.fix(name)
                continue
            for one, same in zip(self._parts[names[0]], self._parts[name], strict=True):
                self._join(one, same)

    def _join(self, one: ChannelPart, same: ChannelPart) -> None:
        """Merge two parts."""
        # Each pair is looked up anew: a part may be in a tensor twice, and its representative changes with the first.
        one, same = self._representative(one), self._representative(same)
        if one is not same:
            one.is_fixed |= same.is_fixed
            self._same[same] = one

    def fix(self, name: str) -> None:
        """Fix the order of a tensor's channels."""
        for part in self[name]:
            part.is_fixed = True

    def free(self) -> list[ChannelPart]:
        """Return all parts that may be permuted, each once."""
        return [
            part for part in dict.fromkeys(part for name in self._parts for part in self[name]) if not part.is_fixed
        ]

    def order(self, name: str) -> Order:
        """Return the channel at each place of a tensor: int64[channels]."""
        orders, first = [], 0
        for part in self[name]:
            orders.append(part.order + first)
            first += part.size
        return np.concatenate(orders)

    def has_moved(self, name: str) -> bool:
        """Return whether the order of a tensor's channels has changed."""
        return bool((self.order(name) != np.arange(sum(part.size for part in self[name]))).any())

    def places(self, part: ChannelPart, name: str) -> list[int]:
        """Return the first channel of each occurrence of a part in a tensor."""
        found, first = [], 0
        for other in self[name]:
            if other is part:
                found.append(first)
            first += other.size
        return found


def parts_of(graph: Graph) -> Parts:
    """Return the parts of all tensors, by the rules of the layers that touch them."""
    parts = Parts()
    for name in graph.inputs:
        parts[name] = [ChannelPart(graph.tensors[name].shape[2], is_fixed=True)]
    for layer in graph.layers:
        rule, channels = layer.channel_rule(*graph.ends(layer)), graph.tensors[layer.output].shape[2]
        if rule is ChannelRule.JOINED:
            parts[layer.output] = [part for name in layer.inputs for part in parts[name]]
            continue
        parts[layer.output] = [ChannelPart(channels)]
        if rule is ChannelRule.TIED:
            # The parts of a concatenation remain separate after such layers.
            parts[layer.output] = [ChannelPart(part.size) for part in parts[layer.input]]
            parts.tie(*layer.inputs, layer.output)
        elif rule is ChannelRule.FIXED:
            for name in (*layer.inputs, layer.output):
                parts.fix(name)
    for name, tensor in graph.tensors.items():
        if name in parts and (name in graph.outputs or tensor.bits != CODE_BITS):
            parts.fix(name)
    return parts


def reordered(graph: Graph, parts: Parts) -> Graph:
    """Return the graph with all channels in the orders of their parts."""
    tensors = {
        name: _reordered_tensor(tensor, parts.order(name)) if name in parts else tensor
        for name, tensor in graph.tensors.items()
    }
    layers = [layer.reordered(parts.order(layer.output), parts.order(layer.input)) for layer in graph.layers]
    return dataclasses.replace(graph, tensors=tensors, layers=layers)


def _reordered_tensor(tensor: Tensor, order: Order) -> Tensor:
    if not (order != np.arange(len(order))).any():
        return tensor
    return dataclasses.replace(tensor, order=tuple(np.asarray(tensor.order or range(len(order)))[order].tolist()))


# Channel use: the connections of a convolution, the cost of its steps, and orders that group similar channels.

Bool = npt.NDArray[np.bool_]
#: Share of a layer's connections that rounding alone may make zero: up to 31 % in the autoencoder of MLPerf Tiny.
_FEW = 1 / 3
#: Number of tiles that are sampled before a search.
_SAMPLES = 4


def is_dense(used: Bool, config: Config) -> bool:
    """Return whether few connections, bool[outputs, inputs], are missing, or too few to fill a word of a tile."""
    missing = used.size - np.count_nonzero(used)
    return bool(missing < max(config.array.lanes * min(config.array.columns, len(used)), _FEW * used.size))


class Connections:
    """The connections of a convolution between channels, and the cost of its steps."""

    def __init__(self, graph: Graph, layer: Layer, config: Config):
        height, width, _ = graph.tensors[layer.output].shape
        self.source, self.target = layer.input, layer.output
        self.lanes, self.columns = config.array.lanes, config.array.columns
        self.used: Bool = layer.connections
        self.taps = math.prod(layer.window.kernel)
        self.weight = height * width
        #: A window takes at least as long as its results.
        self.least = result_groups(config, min(self.columns, len(self.used)))

    def steps(self, outputs: Order, inputs: Order) -> int:
        """Return the steps of all windows, with channels in these orders."""
        words = np.count_nonzero(self._words(self.used[outputs][:, inputs]), axis=1)
        return self.weight * int(np.maximum(words * self.taps, self.least).sum())

    def spare_steps(self) -> float:
        """Estimate, from a few tiles, the steps that orders chosen for this layer alone would save."""
        counts = self.used.sum(axis=1)
        firsts = np.argsort(counts, kind="stable")[:: -(-len(counts) // _SAMPLES)]
        numbers, words = self.used.astype(np.float32), 0
        for first in firsts.tolist():
            tile = _group(numbers, counts, np.ones(len(counts), bool), first, self.columns)
            words += -(-int(np.count_nonzero(self.used[tile].any(axis=0))) // self.lanes)
        present = self._words(self.used)
        spare = np.count_nonzero(present) - words / len(firsts) * len(present)
        return self.weight * self.taps * max(spare, 0.0)

    def _words(self, used: Bool) -> Bool:
        """Return bool[tiles, words]: whether a tile uses a word."""
        return _grouped(_grouped(used, self.columns, 0), self.lanes, 1)

    def by_tile(self, outputs: Order) -> Bool:
        """Return bool[tiles, inputs]: whether a tile uses an input."""
        return _grouped(self.used[outputs], self.columns, 0)

    def by_word(self, inputs: Order) -> Bool:
        """Return bool[outputs, words]: whether an output uses a word."""
        return _grouped(self.used[:, inputs], self.lanes, 1)


def _grouped(used: Bool, size: int, axis: int) -> Bool:
    """Return whether any of each ``size`` neighbours is used."""
    starts = np.arange(0, used.shape[axis], size)
    return np.logical_or.reduceat(used, starts, axis=axis)


def alike(uses: Bool, size: int) -> Order:
    """Return an order in which groups of ``size`` neighbours have few uses together, found greedily.

    Parameters
    ----------
    uses : bool[channels, users]
    size : int

    Returns
    -------
    int64[channels]
    """
    left, order = np.ones(len(uses), bool), list[int]()
    # Products in float32 are fast, and exact for counts.
    numbers, counts = uses.astype(np.float32), uses.sum(axis=1)
    while left.any():
        # Each group begins with the channel that is used most.
        order += _group(numbers, counts, left, int(np.where(left, counts, -1).argmax()), size)
    return np.array(order, np.int64)


def _group(
    uses: npt.NDArray[np.float32], counts: npt.NDArray[np.int64], left: Bool, first: int, size: int
) -> list[int]:
    """Return a group of ``first`` and channels that add the fewest uses, one by one; they are removed from ``left``."""
    together, group = uses[first].copy(), [first]
    left[first] = False
    for _ in range(min(size - 1, int(np.count_nonzero(left)))):
        added = counts - (uses @ together).astype(np.int64)
        # Of channels that add equally little, the one with most uses in common is chosen.
        score = np.where(left, added * (uses.shape[1] + 1) - counts, np.iinfo(np.int64).max)
        chosen = int(score.argmin())
        np.maximum(together, uses[chosen], out=together)
        left[chosen] = False
        group.append(chosen)
    return group


#: Most rounds in which all orders are chosen anew, each for the present others.
_ROUNDS = 3
#: Greatest share of the steps that may remain, as accidental zeros are not worth another plan.
_WORTH = 0.99


def permuted(graph: Graph, config: Config) -> Graph | None:
    """Return the graph with channels in the order with the fewest steps; None if no order has notably fewer.

    Parameters
    ----------
    graph : Graph
    config : Config

    Returns
    -------
    Graph or None
        The graph; its tensors hold the orders, see :attr:`~lutterfly.host.graph.Tensor.order`.
    """
    convolutions = [layer for layer in graph.layers if layer.channel_rule(*graph.ends(layer)) is ChannelRule.FREE]
    if all(is_dense(layer.connections, config) for layer in convolutions):
        return None
    connections = [Connections(graph, layer, config) for layer in convolutions]
    search = _OrderSearch(parts_of(graph), connections)
    before = search.steps()
    if sum(one.spare_steps() for one in connections) <= (1 - _WORTH) * before:
        return None
    for _ in range(_ROUNDS):
        if not search.improve():
            break
    return reordered(graph, search.parts) if search.steps() < _WORTH * before else None


def in_orders(graph: Graph, choose: Callable[[int], Order]) -> Graph:
    """Return the graph with channels in other orders wherever they are free, at any cost.

    Parameters
    ----------
    graph : Graph
    choose : callable
        Returns an order of a number of channels: the channel at each place.

    Returns
    -------
    Graph
        The graph, see :func:`permuted`.
    """
    search = _OrderSearch(parts_of(graph), [])
    for part in search.parts.free():
        part.order = choose(part.size)
    return reordered(graph, search.parts)


class _OrderSearch:
    """The orders of all parts, improved one after the other."""

    def __init__(self, parts: Parts, convolutions: list[Connections]):
        self.parts, self.convolutions = parts, convolutions

    def steps(self) -> int:
        """Return the steps of all convolutions in the present orders."""
        return sum(map(self._steps, self.convolutions))

    def _steps(self, one: Connections) -> int:
        return one.steps(self.parts.order(one.target), self.parts.order(one.source))

    def improve(self) -> bool:
        """Choose each order anew, and keep those with fewer steps; return whether there was any."""
        better = False
        names = dict.fromkeys(name for one in self.convolutions for name in (one.source, one.target))
        for part in dict.fromkeys(part for name in names for part in self.parts[name] if not part.is_fixed):
            touching = [one for one in self.convolutions if part in (*self.parts[one.source], *self.parts[one.target])]
            least, best = sum(map(self._steps, touching)), part.order
            for order in self._candidates(part, touching):
                part.order = order
                steps = sum(map(self._steps, touching))
                if steps < least:
                    least, best, better = steps, order, True
            part.order = best
        return better

    def _candidates(self, part: ChannelPart, touching: list[Connections]) -> Iterator[Order]:
        """Yield orders that group channels with similar uses: by readers, by writers, or by both; uses are connections,
        or the words and tiles that contain these at present."""
        for is_fine in (True, False):
            readers = [use for one in touching for use in self._uses_as_input(part, one, is_fine=is_fine)]
            makers = [use for one in touching for use in self._uses_as_output(part, one, is_fine=is_fine)]
            size = touching[0].lanes
            if readers:
                yield alike(np.concatenate(readers, axis=1), size)
            if makers:
                yield alike(np.concatenate(makers, axis=1), touching[0].columns)
            if readers and makers:
                yield alike(np.concatenate(readers + makers, axis=1), touching[0].columns)

    def _uses_as_input(self, part: ChannelPart, one: Connections, *, is_fine: bool) -> Iterator[Bool]:
        """Yield bool[channels of the part, outputs or tiles], for each occurrence of the part."""
        used = one.used if is_fine else one.by_tile(self.parts.order(one.target))
        for first in self.parts.places(part, one.source):
            yield used[:, first : first + part.size].T

    def _uses_as_output(self, part: ChannelPart, one: Connections, *, is_fine: bool) -> Iterator[Bool]:
        """Yield bool[channels of the part, inputs or words], for each occurrence of the part."""
        used = one.used if is_fine else one.by_word(self.parts.order(one.source))
        for first in self.parts.places(part, one.target):
            yield used[first : first + part.size]
