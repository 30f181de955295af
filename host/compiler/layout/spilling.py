"""Spilling: live ranges of tensors in the feature memory are shortened until all that is live at a time fits.

Each trial changes the live range of one tensor. So it only examines the layers at which the tensor comes or goes, and
items whose addresses can change by that: :meth:`Spilling._neighbours`.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ....golden.memories import LocalMemory
from ..network import CompileError, Span
from ..plan import Executed
from .cuts import Geometry, exceeds_weight_memory, smallest_cut
from .placement import extent, lifetimes, place, placements

#: A tensor, or a buffer for one in a layer.
Key = str | tuple[int, str, int]
#: Sizes of the smallest buffers of a layer.
Buffers = dict[tuple[str, int], int]


@dataclass(frozen=True)
class _Change:
    """Another live range of a tensor, and the state of the layers at which it comes or goes.

    Attributes
    ----------
    name : str
    span : Span or None
        The live range; None if the tensor is not in the memory.
    spans : mapping of str to Span or None
        Live ranges of all tensors.
    whole : dict of int to int
        Bytes of whole tensors at each of these layers.
    buffers : dict of int to Buffers
    """

    name: str
    span: Span | None
    spans: Mapping[str, Span | None]
    whole: dict[int, int]
    buffers: dict[int, Buffers]

    def need(self, index: int) -> int:
        """Return the bytes that are occupied during a layer."""
        return self.whole[index] + sum(self.buffers[index].values())


class Spilling:
    """Shorten live ranges of tensors in the feature memory until all items fit."""

    def __init__(self, plan: Executed):
        self.plan = plan
        self.graph = plan.graph
        self.memory = plan.config.memory.feature_bytes
        self.full = lifetimes(plan)
        self.stored = plan.stored
        readers = plan.readers
        self.readers = {name: readers.get(name, []) for name in self.full}
        images = [
            operation.constants[LocalMemory.WEIGHT].image if LocalMemory.WEIGHT in operation.constants else b""
            for operation in plan.operations
        ]
        few = plan.config.memory.weight_bytes // 4 if exceeds_weight_memory(plan) else math.inf
        #: Bytes of each layer's weights that are streamed again for each part of the layer.
        self.heavy = [len(image) if len(image) > few else 0 for image in images]
        self._smallest: dict[tuple[int, frozenset[str], int], Buffers] = {}
        self.sizes = {name: plan.storages[name].size_bytes for name in self.full}
        #: Live ranges; of items with equal size and live range, the first one in here is placed first.
        self.spans: dict[str, Span | None] = {}
        self._places = itertools.count()
        self._place_of: dict[str, int] = {}
        #: Tensors, their bytes, and buffers, for each layer, and before the first one and after the last one.
        layers = range(-1, len(self.graph.layers) + 1)
        self.there: dict[int, set[str]] = {index: set() for index in layers}
        self.whole = dict.fromkeys(layers, 0)
        self.buffers: dict[int, Buffers] = {}
        self.need = [0] * len(self.graph.layers)
        #: Layers that need more than the memory.
        self.over: set[int] = set()
        #: For each placement, the first layers of items beyond the memory's end; None until it is needed.
        self.beyond: list[set[int]] | None = None

    def settle(self) -> tuple[dict[str, Span], dict[Key, int]]:
        """Return the live ranges of tensors that are whole in the memory, and addresses for them and the smallest
        buffers."""
        for name, span in self.full.items():
            self._move(name, span)
        for index in range(len(self.graph.layers)):
            self._set_buffers(index, self._buffers(index, self.spans, self.whole[index]))
        while not self._fits():
            self._relieve()
        # A live range that was shortened early may not have to be short any more.
        for name in sorted(self.full, key=lambda name: self._added(name, self.full[name])):
            if self.spans.get(name) != self.full[name]:
                self._try(name, self.full[name])
        for index, layer in enumerate(self.graph.layers):
            name = layer.output
            if name in self.spans and not self.plan.partial_with(self.spans, index).isdisjoint(layer.fetched):
                shorter = self._shorter(name, index)
                if self._added(name, shorter) < self.heavy[index]:
                    self._try(name, shorter, last=True)
        times, sizes = self._items(self.spans, self.spans, self.buffers)
        addresses = place(times, sizes, self.plan.config.array.lanes)
        assert extent(addresses, sizes) <= self.memory, "what is kept was found to fit"
        return {name: span for name, span in self.spans.items() if span is not None}, addresses

    def _fits(self) -> bool:
        """Return whether all items that are live at a time fit, and have a placement."""
        # The items of one layer may already be too large, in any placement.
        if self.over:
            return False
        if self.beyond is None:
            self.beyond = self._beyond(*self._items(self.spans, self.spans, self.buffers))
        return not all(self.beyond)

    def _try(self, name: str, span: Span | None, *, last: bool = False) -> None:
        """Change the live range of a tensor, if a placement remains; with ``last``, the tensor is placed after equal
        ones."""
        change = self._change(name, span)
        over = any(change.need(index) > self.memory for index in change.buffers)
        if not over:
            beyond = self._beyond_after(change, last=last)
            if not all(beyond):
                self._accept(change, beyond, last=last)

    def _accept(self, change: _Change, beyond: list[set[int]] | None, *, last: bool) -> None:
        self._move(change.name, change.span, last=last)
        for index, buffers in change.buffers.items():
            self._set_buffers(index, buffers)
        self.beyond = beyond

    def _move(self, name: str, span: Span | None, *, last: bool = False) -> None:
        """Set the live range of a tensor."""
        for index in _layers(self.spans.get(name)):
            self.there[index].discard(name)
            self.whole[index] -= self.sizes[name]
        for index in _layers(span):
            self.there[index].add(name)
            self.whole[index] += self.sizes[name]
        if last or span is None:
            self.spans.pop(name, None)
        if span is not None:
            if name not in self.spans:
                self._place_of[name] = next(self._places)
            self.spans[name] = span

    def _set_buffers(self, index: int, buffers: Buffers) -> None:
        self.buffers[index] = buffers
        self.need[index] = self.whole[index] + sum(buffers.values())
        if self.need[index] > self.memory:
            self.over.add(index)
        else:
            self.over.discard(index)

    def _change(self, name: str, span: Span | None) -> _Change:
        now, then = (set(_layers(one)) for one in (self.spans.get(name), span))
        spans = self._with(name, span)
        changed = sorted(index for index in now ^ then if 0 <= index < len(self.graph.layers))
        size = self.sizes[name]
        whole = {index: self.whole[index] + (size if index in then else -size) for index in changed}
        buffers = {index: self._buffers(index, spans, whole[index]) for index in changed}
        return _Change(name, span, spans, whole, buffers)

    def _with(self, name: str, span: Span | None) -> Mapping[str, Span | None]:
        """Return all live ranges with one replaced, without copying them."""
        return ChainMap({name: span}, self.spans)

    def _beyond_after(self, change: _Change, *, last: bool) -> list[set[int]]:
        """Return :attr:`beyond` after a change."""
        assert self.beyond is not None, "all has been placed"
        region = self._neighbours(change)
        names = set().union(*(self.there[index] for index in region)) - {change.name}
        ordered = sorted(names, key=self._place_of.__getitem__)
        if change.span is not None:
            is_new = last or change.name not in self.spans
            place_of = math.inf if is_new else self._place_of[change.name]
            ordered.insert(bisect.bisect(ordered, place_of, key=self._place_of.__getitem__), change.name)
        buffers = {
            index: change.buffers.get(index, self.buffers[index])
            for index in region
            if 0 <= index < len(self.graph.layers)
        }
        found = self._beyond(*self._items(ordered, change.spans, buffers))
        return [
            {index for index in before if index not in region} | after
            for before, after in zip(self.beyond, found, strict=True)
        ]

    def _neighbours(self, change: _Change) -> range:
        """Return the layers of items whose addresses can change: those that are live together with the changed tensor,
        together with these, and so on."""
        spans = [span for span in (self.spans.get(change.name), change.span) if span is not None]
        first, last = min(span[0] for span in spans), max(span[1] for span in spans)
        while first > -1 and not self.there[first].isdisjoint(self.there[first - 1]):
            first -= 1
        while last < len(self.graph.layers) and not self.there[last].isdisjoint(self.there[last + 1]):
            last += 1
        return range(first, last + 1)

    def _beyond(self, times: Mapping[Key, Span], sizes: Mapping[Key, int]) -> list[set[int]]:
        """Return, for each placement of these items, the first layers of those beyond the memory's end."""
        return [
            {times[key][0] for key, address in addresses.items() if address + sizes[key] > self.memory}
            for addresses in placements(times, sizes, self.plan.config.array.lanes)
        ]

    def _items(
        self, names: Iterable[str], spans: Mapping[str, Span | None], buffers: Mapping[int, Buffers]
    ) -> tuple[dict[Key, Span], dict[Key, int]]:
        """Return live ranges and sizes of tensors and of layers' buffers."""
        times: dict[Key, Span] = {name: span for name in names if (span := spans[name]) is not None}
        sizes: dict[Key, int] = {name: self.sizes[name] for name in names}
        for index, of_layer in buffers.items():
            for (name, number), size in of_layer.items():
                times[index, name, number] = index, index
                sizes[index, name, number] = size
        return times, sizes

    def _buffers(self, index: int, spans: Mapping[str, Span | None], whole: int) -> Buffers:
        """Return the sizes of the smallest buffers of a layer, beside so many bytes of whole tensors."""
        partial = self.plan.partial_with(spans, index)
        if not partial:
            return {}
        key = index, partial, self.memory - whole
        if key not in self._smallest:
            buffers = Geometry(self.plan, index, smallest_cut(self.plan, *key), partial).buffers()
            self._smallest[key] = {
                (name, number): size for name, sizes in buffers.items() for number, size in enumerate(sizes)
            }
        return self._smallest[key]

    def _relieve(self) -> None:
        """Shorten the live range of one tensor, where that costs least, at the layer that needs the most memory.

        If no live range can be shortened there, and items still do not fit because of gaps between them, the layer that
        needs the next most memory is tried.
        """
        most = self.need.index(max(self.need))
        choices = self._choices(most)
        others = iter([] if choices else sorted(range(len(self.need)), key=lambda index: -self.need[index]))
        while not choices:
            worst = next(others, None)
            if worst is None:
                raise CompileError(
                    f"{self.graph.layers[most].name}: the {self.need[most]} bytes of feature memory that it needs "
                    f"find no place in {self.memory}; choose a larger --config"
                )
            choices = self._choices(worst)
        _, _, _, name, span = min(choices, key=lambda choice: choice[:4])
        change = self._change(name, span)
        over = self.over.difference(change.buffers) or any(change.need(index) > self.memory for index in change.buffers)
        beyond = None if over or self.beyond is None else self._beyond_after(change, last=True)
        self._accept(change, beyond, last=True)

    def _choices(self, worst: int) -> list[tuple[bool, float, int, str, Span | None]]:
        """Return the tensors whose live range may be shortened at a layer, in tuples of which the least is the
        cheapest; the last element is the shorter live range."""
        excess = max(self.need[worst] - self.memory, 1)
        choices = []
        for name in self.there[worst]:
            span = self._shorter(name, worst)
            less = self.whole[worst] - self.sizes[name]
            freed = (
                self.need[worst] - less - sum(self._buffers(worst, ChainMap({name: span}, self.spans), less).values())
            )
            if freed > 0:
                cost = self._added(name, span)
                choices.append((freed < excess, cost if freed >= excess else cost / freed, -freed, name, span))
        return choices

    def _shorter(self, name: str, index: int) -> Span | None:
        """Return the live range of a tensor that ends before layer ``index``; None if no earlier layer reads it."""
        first, _ = self.full[name]
        before = [reader for reader in self.readers[name] if reader < index]
        if name in self.stored and not self.readers[name] and first < index:
            return first, first
        return (first, max(before)) if before else None

    def _added(self, name: str, span: Span | None) -> int:
        """Return the additional bytes that the DMA moves with another live range of a tensor."""
        return self._traffic(name, span) - self._traffic(name, self.spans.get(name))

    def _traffic(self, name: str, span: Span | None) -> int:
        """Return the bytes that the DMA moves because of a tensor."""
        last = -2 if span is None else span[1]
        size = self.graph.tensors[name].size_bytes
        far = sum(reader > last for reader in self.readers[name])
        # Each part of an input needs all weights of the layer; a whole input needs those of a block of output channels
        # only once.
        weights = sum(self.heavy[reader] for reader in self.readers[name] if reader > last)
        if name in self.graph.inputs:
            return weights + size * (far + any(reader <= last for reader in self.readers[name]))
        return weights + size * (far + (far > 0 or name in self.stored))


def _layers(span: Span | None) -> range:
    """Return the layers of a live range."""
    return range(0) if span is None else range(span[0], span[1] + 1)
