"""Memory: which tensors lie whole in the feature memory, when and where; the others go through buffers, in parts."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping

from ..lower.operations import make_operation
from ..plan import Plan
from ..storage import Span
from .borders import fold_choices, place_views
from .cuts import Geometry, choose_cut, exceeds_weight_memory, smallest_cut
from .placement import free
from .spilling import Spilling


def plan_memory(plan: Plan) -> Plan:
    """Give every tensor its address, or spill it to external memory; choose the parts of layers that touch those.

    Raises
    ------
    CompileError
        If one pixel of a layer, with what it is computed from, does not fit the memory.
    """
    plan.spans, addresses = Spilling(plan).settle()
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
