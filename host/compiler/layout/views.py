"""Views: channels that are put side by side are written side by side, and channels that are taken apart are read so."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Set

from ...graph import Views
from ..data.plan import Plan
from ..lower.copy import copies
from ..lower.operations import find_lowering, make_operation, planned_lowering
from .borders import plan_borders
from .placement import extent, lifetimes, place


def plan_views(plan: Plan) -> Plan:
    """Choose which tensors are views of others, and leave out the layers that have nothing to copy then.

    A copy is kept where a view would cost more cycles than the copy (a convolution reads more words where the pixels
    lie further apart) or more memory than there is, where both operands of an addition must lie alike, and for inputs
    and outputs of the network, which the DMA moves in runs. A network whose tensors do not all fit has no views.
    """
    plan = _trial(plan, {})
    assert plan.storages or not plan.roots, "views that the plan began with are not possible"
    cycles = _cycles(plan)
    if _fits(plan):
        # The last concatenation first: what it holds may be what an earlier one joins, in the same order.
        for layer in reversed(plan.graph.layers):
            for more in layer.view_choices(plan.graph.layers, plan.graph.tensors, plan.place_of):
                if more.keys() <= plan.views.keys():
                    continue
                trial = _trial(plan, more)
                if not trial.storages or not _fits(trial):
                    continue
                found = _cycles(trial, plan, cycles)
                if _cost(found) <= _cost(cycles):
                    plan, cycles = trial, found
    layers = [layer for layer in plan.graph.layers if not layer.is_copy or copies(plan, layer)]
    return dataclasses.replace(plan, graph=dataclasses.replace(plan.graph, layers=layers), storages={})


def _trial(plan: Plan, more: Views) -> Plan:
    """The same plan with more views, and with storages if these are possible."""
    trial = dataclasses.replace(plan, views=more | plan.views, storages={})
    if _is_sound(trial, more.keys() - plan.views.keys()):
        plan_borders(trial)
        if not _lie_alike(trial):
            trial.storages = {}
    return trial


def _is_sound(plan: Plan, chosen: Set[str]) -> bool:
    """Whether every view leads to a tensor that is none, in whose border the same code is, and none is ``chosen`` that
    the DMA moves."""
    graph = plan.graph
    moved = {*graph.inputs, *graph.outputs, *plan.matrices, *(name for name in chosen if plan.exchange_of(name))}
    if not moved.isdisjoint(chosen):
        return False
    for name in plan.views:
        seen, at = {name}, name
        while at in plan.views:
            at = plan.views[at].tensor
            if at in seen:
                return False
            seen.add(at)
        if graph.tensors[name].zero_point != graph.tensors[at].zero_point:
            return False
    return True


def _lie_alike(plan: Plan) -> bool:
    """Whether inputs that one pitch leads through have their pixels equally far apart."""
    operands = (
        [plan.storages[name].pixel_pitch for name in layer.fetched]
        for layer in plan.graph.layers
        if planned_lowering(plan, layer).has_one_pitch
    )
    return all(len(set(pitches)) == 1 for pitches in operands)


def _fits(plan: Plan) -> bool:
    spans = lifetimes(plan)
    sizes = {name: plan.storages[name].size_bytes for name in spans}
    return extent(place(spans, sizes, plan.config.array.lanes), sizes) <= plan.config.memory.feature_bytes


def _cost(cycles: list[float]) -> tuple[int, float]:
    """What views are chosen by: first that everything can be executed."""
    return cycles.count(math.inf), sum(count for count in cycles if count < math.inf)


def _cycles(plan: Plan, before: Plan | None = None, known: list[float] | None = None) -> list[float]:
    """Array cycles of each layer; ``known`` are those of the plan ``before``, where nothing has changed.

    Infinitely many where an engine is missing: what is to be copied may yet become a view.
    """
    cycles: list[float] = []
    for index, layer in enumerate(plan.graph.layers):
        names = (*layer.fetched, layer.output)
        if before and all(plan.storages[name] == before.storages[name] for name in names):
            cycles.append(known[index])
            continue
        if find_lowering(plan, layer) is None:
            is_in_place = layer.is_copy and not copies(plan, layer)
            cycles.append(0 if is_in_place else math.inf)
            continue
        height, width, _ = plan.graph.tensors[layer.output].shape
        operation = make_operation(plan, index)
        cycles.append(operation.cycles(height, width, range(operation.tiles)))
    return cycles
