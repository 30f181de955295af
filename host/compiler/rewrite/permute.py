"""Permute: the channels of tensors between layers in another order, so that unused connections fill whole words.

A word holds as many neighbouring input channels as the array has lanes, and a tile as many neighbouring outputs as it
has columns; a word is left out if no output of the tile uses any of its channels. Zeros that a tool has put at single
channels are scattered over words and tiles. The order of a tensor's channels is free as long as all that touch it
agree: what a convolution gives, and what the next one takes. Inputs and outputs of the network keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ....golden.config import Config
from ...graph import ChannelRule, Graph
from .channel_parts import Order, Part, Parts, parts_of, reordered
from .channel_use import Bool, Connections, alike, is_dense

#: How often all orders are chosen anew, each for those of the others.
_ROUNDS = 3
#: Part of the steps that must remain at most: zeros by chance are not worth another plan.
_WORTH = 0.99


def permuted(graph: Graph, config: Config) -> Graph | None:
    """The graph with channels in the order that promises the fewest steps; None where no order promises fewer.

    Parameters
    ----------
    graph : Graph
    config : Config

    Returns
    -------
    Graph or None
        Its tensors say which channel is where, see :attr:`~lutterfly.host.graph.Tensor.order`.
    """
    convolutions = [layer for layer in graph.layers if layer.channel_rule(*graph.ends(layer)) is ChannelRule.FREE]
    if all(is_dense(layer.connections, config) for layer in convolutions):
        return None
    connections = [Connections(graph, layer, config) for layer in convolutions]
    search = _Search(parts_of(graph), connections)
    before = search.steps()
    if sum(one.spare_steps() for one in connections) <= (1 - _WORTH) * before:
        return None
    for _ in range(_ROUNDS):
        if not search.improve():
            break
    return reordered(graph, search.parts) if search.steps() < _WORTH * before else None


def in_orders(graph: Graph, choose: Callable[[int], Order]) -> Graph:
    """The graph with channels in other orders wherever they are free, whatever these cost.

    Parameters
    ----------
    graph : Graph
    choose : callable
        Gives an order of so many channels: which one lies at each place.

    Returns
    -------
    Graph
        As :func:`permuted` gives it.
    """
    search = _Search(parts_of(graph), [])
    for part in search.parts.free():
        part.order = choose(part.size)
    return reordered(graph, search.parts)


class _Search:
    """The orders of all parts, chosen one after the other."""

    def __init__(self, parts: Parts, convolutions: list[Connections]):
        self.parts, self.convolutions = parts, convolutions

    def steps(self) -> int:
        """Of all convolutions, in the present orders."""
        return sum(map(self._steps, self.convolutions))

    def _steps(self, one: Connections) -> int:
        return one.steps(self.parts.order(one.target), self.parts.order(one.source))

    def improve(self) -> bool:
        """Choose each order anew, and keep what makes steps fewer: whether anything does."""
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

    def _candidates(self, part: Part, touching: list[Connections]) -> Iterator[Order]:
        """Orders in which neighbours are used alike: by those that read them, by those that make them, by both; whole
        connections decide, or the words and tiles that these have now."""
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

    def _uses_as_input(self, part: Part, one: Connections, *, is_fine: bool) -> Iterator[Bool]:
        """bool[channels of the part, outputs or tiles], for each place of it."""
        used = one.used if is_fine else one.by_tile(self.parts.order(one.target))
        for first in self.parts.places(part, one.source):
            yield used[:, first : first + part.size].T

    def _uses_as_output(self, part: Part, one: Connections, *, is_fine: bool) -> Iterator[Bool]:
        """bool[channels of the part, inputs or words], for each place of it."""
        used = one.used if is_fine else one.by_word(self.parts.order(one.source))
        for first in self.parts.places(part, one.target):
            yield used[first : first + part.size]
