"""Memory: which tensors lie whole in the feature memory, when and where; the others go through buffers, in parts."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping

from ....golden.memories import LocalMemory
from ..data.errors import CompileError
from ..data.plan import Plan
from ..data.residence import Span
from ..lower.operations import make_operation
from .borders import place_views
from .cuts import choose_cut, exceeds_weight_memory, smallest_cut
from .folds import fold_choices
from .parts import Geometry
from .placement import extent, free, lifetimes, place

#: A tensor, or a buffer for one in a layer.
_Key = str | tuple[int, str, int]


def plan_memory(plan: Plan) -> Plan:
    """Give every tensor its address, or spill it to external memory; choose the parts of layers that touch those.

    Raises
    ------
    CompileError
        If one pixel of a layer, with what it is computed from, does not fit the memory.
    """
    plan.spans, addresses = _Spilling(plan).settle()
    for name in plan.spans:
        plan.storages[name] = dataclasses.replace(plan.storages[name], address=addresses[name])
    place_views(plan)
    minimal: list[dict[tuple[str, int], int]] = [{} for _ in plan.graph.layers]
    for key, address in addresses.items():
        if isinstance(key, tuple):
            minimal[key[0]][key[1:]] = address
    whole = _whole(plan)
    for index, buffers in enumerate(minimal):
        partial = plan.partial(index)
        if partial:
            _cut_layer(plan, index, partial, whole[index], buffers)
    return plan


def check_memory(plan: Plan) -> None:
    """What is there at the same time does not overlap, and all lies within the memory.

    Where layers are cut, a tensor and its views are of one tensor of the network.
    """
    is_part = (plan.excerpt_of(name).tensor == plan.excerpt_of(plan.root(name)).tensor for name in plan.views)
    assert not plan.cuts or all(is_part)
    for index, (layer, taken) in enumerate(zip(plan.graph.layers, _whole(plan), strict=True)):
        if index in plan.cuts:
            cut, buffers = plan.cuts[index]
            sizes = Geometry(plan, index, cut, plan.partial(index)).buffers()
            taken += [
                (address, address + size)
                for name in buffers
                for address, size in zip(buffers[name], sizes[name], strict=True)
            ]
        taken.sort()
        for (_, end), (start, _) in itertools.pairwise(taken):
            assert end <= start, layer.name
        assert not taken or taken[-1][1] <= plan.config.memory.feature_bytes, layer.name


def _whole(plan: Plan) -> list[list[Span]]:
    """First byte, and the byte after the last, of each tensor that is whole in the memory while each layer runs."""
    found: list[list[Span]] = [[] for _ in plan.graph.layers]
    for name, (first, last) in plan.spans.items():
        storage = plan.storages[name]
        for of_layer in found[max(first, 0) : last + 1]:
            of_layer.append((storage.address, storage.address + storage.size_bytes))
    return found


def _cut_layer(
    plan: Plan, index: int, partial: frozenset[str], whole: list[Span], minimal: Mapping[tuple[str, int], int]
) -> None:
    """Choose the parts of a layer, and the fold of an input that it alone reads, beside what is ``whole``; ``minimal``
    are buffers that fit."""
    memory = plan.config.memory.feature_bytes
    gaps = free(whole, memory)
    cut = smallest_cut(plan, index, partial, memory - sum(end - start for start, end in whole))
    best = math.inf
    sizes = Geometry(plan, index, cut, partial).buffers()
    plan.cuts[index] = cut, {name: tuple(minimal[name, number] for number in range(len(sizes[name]))) for name in sizes}
    inputs = plan.graph.layers[index].fetched
    folded = next((name for name in inputs if name in partial and fold_choices(plan, name)), None)
    for storage in fold_choices(plan, folded) if folded else [None]:
        kept = plan.storages.copy(), plan.operations[index]
        if folded:
            plan.storages[folded] = storage
            plan.operations[index] = make_operation(plan, index)
        choice = choose_cut(plan, index, partial, gaps, streamed=exceeds_weight_memory(plan))
        if choice is not None and choice[2] < best:
            *plan.cuts[index], best = choice
        else:
            plan.storages, plan.operations[index] = kept
    geometry = Geometry(plan, index, plan.cuts[index][0], partial)
    sources, target = geometry.storages_of(geometry.rows[0], geometry.columns[0], geometry.tiles[0])
    plan.operations[index] = make_operation(plan, index, sources, target)


class _Spilling:
    """Shorten the time for which tensors lie in the feature memory until what is left fits."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.graph = plan.graph
        self.full = lifetimes(plan)
        self.stored = plan.stored
        readers = plan.readers
        self.readers = {name: readers.get(name, []) for name in self.full}
        images = [
            operation.constants[LocalMemory.WEIGHT].image if LocalMemory.WEIGHT in operation.constants else b""
            for operation in plan.operations
        ]
        few = plan.config.memory.weight_bytes // 4 if exceeds_weight_memory(plan) else math.inf
        #: Bytes of weights of each layer that are streamed, and not kept from part to part.
        self.heavy = [len(image) if len(image) > few else 0 for image in images]
        self._smallest: dict[tuple[int, frozenset[str], int], dict[tuple[str, int], int]] = {}

    def settle(self) -> tuple[dict[str, Span], dict[_Key, int]]:
        """Spans of the tensors that lie whole in the memory, and addresses of them and of the smallest buffers."""
        spans = dict(self.full)
        addresses = self._place(spans)
        while addresses is None:
            spans = self._relieve(spans)
            addresses = self._place(spans)
        # What was given up first may have become unnecessary to give up.
        for name in sorted(self.full, key=lambda name: self._traffic(name, self.full) - self._traffic(name, spans)):
            longer = {**spans, name: self.full[name]}
            found = self._place(longer) if longer != spans else None
            if found is not None:
                spans, addresses = longer, found
        for index, layer in enumerate(self.graph.layers):
            if layer.output in spans and not self.plan.partial(index, spans).isdisjoint(layer.fetched):
                shorter = self._shorten(layer.output, index, spans)
                if self._traffic(layer.output, shorter) - self._traffic(layer.output, spans) < self.heavy[index]:
                    found = self._place(shorter)
                    if found is not None:
                        spans, addresses = shorter, found
        return spans, addresses

    def _place(self, spans: Mapping[str, Span]) -> dict[_Key, int] | None:
        times, sizes = self._items(spans)
        # What is there at one time may already be too much, wherever it lies.
        if max(self._needs(times, sizes), default=0) > self.plan.config.memory.feature_bytes:
            return None
        addresses = place(times, sizes, self.plan.config.array.lanes)
        return addresses if extent(addresses, sizes) <= self.plan.config.memory.feature_bytes else None

    def _needs(self, times: Mapping[_Key, Span], sizes: Mapping[_Key, int]) -> list[int]:
        """Bytes that are there during each layer."""
        # A span may begin before the first layer and end after the last.
        change = [0] * (len(self.graph.layers) + 3)
        for key, (first, last) in times.items():
            change[first + 1] += sizes[key]
            change[last + 2] -= sizes[key]
        return [*itertools.accumulate(change)][1:-2]

    def _items(self, spans: Mapping[str, Span]) -> tuple[dict[_Key, Span], dict[_Key, int]]:
        """When tensors and buffers are in the memory, and how large they are."""
        times: dict[_Key, Span] = dict(spans)
        sizes: dict[_Key, int] = {name: self.plan.storages[name].size_bytes for name in spans}
        for index, whole in enumerate(self._needs(times, sizes)):
            for (name, number), size in self._buffers(index, spans, whole).items():
                times[index, name, number] = index, index
                sizes[index, name, number] = size
        return times, sizes

    def _buffers(self, index: int, spans: Mapping[str, Span], whole: int) -> dict[tuple[str, int], int]:
        """Sizes of the smallest buffers of a layer, beside so many bytes of tensors that are whole."""
        partial = self.plan.partial(index, spans)
        if not partial:
            return {}
        key = index, partial, self.plan.config.memory.feature_bytes - whole
        if key not in self._smallest:
            buffers = Geometry(self.plan, index, smallest_cut(self.plan, *key), partial).buffers()
            self._smallest[key] = {
                (name, number): size for name, sizes in buffers.items() for number, size in enumerate(sizes)
            }
        return self._smallest[key]

    def _relieve(self, spans: Mapping[str, Span]) -> dict[str, Span]:
        """Shorten the stay of one tensor, where that costs least, at the layer that needs the most memory.

        What needs the most may have nothing left to give, and still everything may not fit, where gaps are between
        what stays: then it is the turn of the layer that needs the most after it.
        """
        times, sizes = self._items(spans)
        need = self._needs(times, sizes)
        for worst in sorted(range(len(need)), key=lambda index: -need[index]):
            choices = self._choices(worst, need[worst], spans, sizes)
            if choices:
                return min(choices, key=lambda choice: choice[:4])[-1]
        worst = need.index(max(need))
        raise CompileError(
            f"{self.graph.layers[worst].name}: the {need[worst]} bytes of feature memory that it needs "
            f"find no place in {self.plan.config.memory.feature_bytes}; choose a larger --config"
        )

    def _choices(self, worst: int, need: int, spans: Mapping[str, Span], sizes: Mapping[_Key, int]) -> list[tuple]:
        """Tensors whose stay may be shortened at a layer, the cheapest one the least; the spans then come last."""
        excess = max(need - self.plan.config.memory.feature_bytes, 1)
        whole = sum(sizes[name] for name, (first, last) in spans.items() if first <= worst <= last)
        choices = []
        for name, (first, last) in spans.items():
            if not first <= worst <= last:
                continue
            shorter = self._shorten(name, worst, spans)
            less = whole - sizes[name]
            freed = need - less - sum(self._buffers(worst, shorter, less).values())
            if freed > 0:
                cost = self._traffic(name, shorter) - self._traffic(name, spans)
                choices.append((freed < excess, cost if freed >= excess else cost / freed, -freed, name, shorter))
        return choices

    def _shorten(self, name: str, index: int, spans: Mapping[str, Span]) -> dict[str, Span]:
        """Without ``name`` from layer ``index`` on; not at all if it would not be read before."""
        first, _ = self.full[name]
        before = [reader for reader in self.readers[name] if reader < index]
        rest = {other: span for other, span in spans.items() if other != name}
        is_stored_only = name in self.stored and not self.readers[name] and first < index
        if is_stored_only:
            return {**rest, name: (first, first)}
        return {**rest, name: (first, max(before))} if before else rest

    def _traffic(self, name: str, spans: Mapping[str, Span]) -> int:
        """Bytes that the DMA moves because of a tensor."""
        last = spans.get(name, (0, -2))[1]
        size = self.graph.tensors[name].size_bytes
        far = sum(reader > last for reader in self.readers[name])
        # Each part of an input needs all weights of the layer; a whole input needs those of a block of output channels
        # only once.
        weights = sum(self.heavy[reader] for reader in self.readers[name] if reader > last)
        if name in self.graph.inputs:
            return weights + size * (far + any(reader <= last for reader in self.readers[name]))
        return weights + size * (far + (far > 0 or name in self.stored))
