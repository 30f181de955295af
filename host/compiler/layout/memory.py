"""The memory planner of the feature memory: tensors are whole there, with live ranges and addresses, or spilled and
processed in parts through buffers."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping

from ..lower.operations import make_operation
from ..network import Span
from ..operation import Cut, Operation
from ..plan import Executed, LaidOut, Placed
from .borders import fold_choices, with_views
from .cuts import Geometry, choose_cut, exceeds_weight_memory, smallest_cut
from .placement import free
from .spilling import Spilling

#: The cut of a layer, and the address of each buffer for the parts of each tensor.
_Buffered = tuple[Cut, Mapping[str, tuple[int, ...]]]


def plan_memory(plan: Executed) -> Placed:
    """Give every tensor its address, or spill it to external memory; choose the parts of layers that touch those.

    Raises
    ------
    CompileError
        If one pixel of a layer, with what it is computed from, does not fit the memory.
    """
    spans, addresses = Spilling(plan).settle()
    placed = {name: dataclasses.replace(plan.storages[name], address=addresses[name]) for name in spans}
    plan = dataclasses.replace(plan, storages=with_views(plan, {**plan.storages, **placed}))
    minimal: list[dict[tuple[str, int], int]] = [{} for _ in plan.graph.layers]
    for key, address in addresses.items():
        if isinstance(key, tuple):
            minimal[key[0]][key[1:]] = address
    whole, cuts = _whole(plan, spans), dict[int, _Buffered]()
    for index, buffers in enumerate(minimal):
        partial = plan.partial_with(spans, index)
        if partial:
            plan, cuts[index] = _cut_layer(plan, index, partial, whole[index], buffers)
    return Placed.of(plan, spans=spans, cuts=cuts)


def check_memory(plan: Placed) -> None:
    """Check that tensors and buffers of the same time do not overlap, and that all lie within the memory.

    Where layers are cut, a tensor and its views belong to one tensor of the network.
    """
    is_part = (plan.excerpt_of(name).tensor == plan.excerpt_of(plan.root(name)).tensor for name in plan.views)
    assert not plan.cuts or all(is_part)
    for index, (layer, taken) in enumerate(zip(plan.graph.layers, _whole(plan, plan.spans), strict=True)):
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


def _whole(plan: LaidOut, spans: Mapping[str, Span]) -> list[list[Span]]:
    """Return, for each layer, the address ranges of the tensors that are whole in the memory while it runs."""
    found: list[list[Span]] = [[] for _ in plan.graph.layers]
    for name, (first, last) in spans.items():
        storage = plan.storages[name]
        for of_layer in found[max(first, 0) : last + 1]:
            of_layer.append((storage.address, storage.address + storage.size_bytes))
    return found


def _cut_layer(
    plan: Executed, index: int, partial: frozenset[str], whole: list[Span], minimal: Mapping[tuple[str, int], int]
) -> tuple[Executed, _Buffered]:
    """Choose the parts of a layer, and the fold of an input that only this layer reads, beside tensors that are
    ``whole``; ``minimal`` are buffers that fit. The returned plan has the layer's operation for its parts."""
    memory = plan.config.memory.feature_bytes
    gaps = free(whole, memory)
    cut = smallest_cut(plan, index, partial, memory - sum(end - start for start, end in whole))
    sizes = Geometry(plan, index, cut, partial).buffers()
    buffers = {name: tuple(minimal[name, number] for number in range(len(sizes[name]))) for name in sizes}
    best, found = math.inf, (plan, (cut, buffers))
    for trial in _folded(plan, index, partial):
        choice = choose_cut(trial, index, partial, gaps, streamed=exceeds_weight_memory(trial))
        if choice is not None and choice[2] < best:
            cut, buffers, best = choice
            found = trial, (cut, buffers)
    chosen, (cut, buffers) = found
    geometry = Geometry(chosen, index, cut, partial)
    sources, target = geometry.storages_of(geometry.rows[0], geometry.columns[0], geometry.tiles[0])
    return _with_operation(chosen, index, make_operation(chosen, index, sources, target)), (cut, buffers)


def _folded(plan: Executed, index: int, partial: frozenset[str]) -> Iterator[Executed]:
    """Yield the plan with each layout of an input that only this layer reads, folded or not; else the plan itself."""
    inputs = plan.graph.layers[index].fetched
    name = next((name for name in inputs if name in partial and fold_choices(plan, name)), None)
    if name is None:
        yield plan
        return
    for storage in fold_choices(plan, name):
        folded = dataclasses.replace(plan, storages={**plan.storages, name: storage})
        yield _with_operation(folded, index, make_operation(folded, index))


def _with_operation(plan: Executed, index: int, operation: Operation) -> Executed:
    operations = (*plan.operations[:index], operation, *plan.operations[index + 1 :])
    return dataclasses.replace(plan, operations=operations)
