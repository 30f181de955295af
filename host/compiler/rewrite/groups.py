"""Channel shuffles between grouped convolutions are absorbed into the order of their weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from ...graph import ChannelRule, Graph, Layer
from ...graph.boxes import cost_of
from ..network import Network
from .permute import Bool, ChannelPart, Connections, Order, Parts, parts_of, reordered


def absorb_shuffles(plan: Network) -> Network:
    """Reorder the channels of grouped convolutions so that the convolutions and the shuffles between them are cheapest.

    With zeros between its groups a grouped convolution is one of one group, whose words without weights are left out.
    So its channels may be in any order, at the price of words that several groups share. With an order that keeps the
    groups of both the producer and the reader together, this costs less than a copy.
    """
    graph, fixed = plan.graph, parts_of(plan.graph)
    # Shuffles whose order is free already cost nothing.
    shuffles = [
        (layer, taken)
        for layer in graph.layers
        if (taken := _permutation(graph, layer)) is not None and any(part.is_fixed for part in fixed[layer.output])
    ]
    if not shuffles:
        return plan
    loose = dataclasses.replace(graph, layers=[layer.ungrouped() for layer in graph.layers])
    search = _ShuffleSearch(
        dataclasses.replace(graph, layers=[layer.ungrouped(fill=True) for layer in graph.layers]), plan
    )
    is_changed = False
    for layer, taken in shuffles:
        is_changed |= search.absorb(layer, taken)
    if not is_changed:
        return plan
    moved, parts = reordered(loose, search.parts), search.parts
    # Convolutions of which no channel has moved keep their groups.
    layers = [
        new if parts.has_moved(old.input) or parts.has_moved(old.output) else old
        for old, new in zip(graph.layers, moved.layers, strict=True)
    ]
    return dataclasses.replace(plan, graph=dataclasses.replace(moved, layers=layers))


def _permutation(graph: Graph, layer: Layer) -> Order | None:
    """Return the input channel of each output channel of a layer that only permutes channels; else None."""
    source, target = graph.ends(layer)
    if layer.channel_rule(source, target) is not ChannelRule.MOVED:
        return None
    taken = np.full(target.shape[2], -1)
    for part in layer.selections(graph.tensors):
        if part.table is not None or part.code is not None or not part.keeps_pixels:
            return None
        taken[part.targets] = part.sources
    return taken if np.array_equal(np.sort(taken), np.arange(source.shape[2])) else None


class _ShuffleSearch:
    """The orders of all parts of channels, chosen shuffle by shuffle."""

    def __init__(self, graph: Graph, plan: Network):
        self.graph, self.parts = graph, parts_of(graph)
        rules = [(layer, layer.channel_rule(*graph.ends(layer))) for layer in graph.layers]
        self.products = [Connections(graph, layer, plan.config) for layer, rule in rules if rule is ChannelRule.FREE]
        self.copies = [layer for layer, rule in rules if rule is ChannelRule.MOVED]

    def absorb(self, layer: Layer, taken: Order) -> bool:
        """Choose the orders of both ends of a shuffle; return whether cheaper ones were found."""
        ends = [self.parts[name] for name in (layer.input, layer.output)]
        if any(len(parts) > 1 for parts in ends) or ends[0] == ends[1]:
            return False
        (source,), (target,) = ends
        products = [one for one in self.products if _touches(self.parts, (source, target), one.source, one.target)]
        copies = [one for one in self.copies if _touches(self.parts, (source, target), one.input, one.output)]
        best, least = (source.order, target.order), self._cost(products, copies)
        is_better = False
        for order in self._candidates(products, source, target, taken):
            orders = taken[order], order
            if any(
                part.is_fixed and (part.order != new).any() for part, new in zip((source, target), orders, strict=True)
            ):
                continue
            source.order, target.order = orders
            cost = self._cost(products, copies)
            if cost < least:
                best, least, is_better = orders, cost, True
        source.order, target.order = best
        return is_better

    def _cost(self, products: list[Connections], copies: list[Layer]) -> int:
        """Return the estimated cycles of these convolutions and copies."""
        order = self.parts.order
        found = sum(one.steps(order(one.target), order(one.source)) for one in products)
        for layer in copies:
            pieces = layer.reordered(order(layer.output), order(layer.input)).selections(self.graph.tensors)
            is_view = len(pieces) == 1 and pieces[0].keeps_pixels and pieces[0].step == pieces[0].spread == 1
            found += 0 if is_view else cost_of(pieces, self.graph.tensors[layer.output].shape)
        return found

    def _candidates(
        self, products: list[Connections], source: ChannelPart, target: ChannelPart, taken: Order
    ) -> Iterator[Order]:
        """Yield orders of the shuffled channels: those before and after, and orders by the groups that write and read
        them."""
        size = target.size
        readers = [
            one.used[:, first : first + size].T for one in products for first in self.parts.places(target, one.source)
        ]
        makers = [one.used[first : first + size] for one in products for first in self.parts.places(source, one.target)]
        read, made = _alike(readers, size), _alike(makers, size)[taken]
        yield np.arange(size)
        yield np.argsort(taken)
        yield np.lexsort((made, read))
        yield np.lexsort((read, made))


def _touches(parts: Parts, wanted: tuple[ChannelPart, ...], *names: str) -> bool:
    return any(part in wanted for name in names for part in parts[name])


def _alike(uses: list[Bool], size: int) -> Order:
    """Return a number for each channel, equal for channels that all layers use alike; the first channel has 0."""
    if not uses:
        return np.zeros(size, np.int64)
    _, firsts, which = np.unique(np.concatenate(uses, axis=1), axis=0, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(firsts))[which.reshape(-1)]
