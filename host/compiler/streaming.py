"""Streaming: let the first layer begin while its input still arrives."""

from __future__ import annotations

import itertools
import math

from .folds import load_estimate
from .lower.operations import planned_lowering
from .plan import Plan

#: Cycles that one more command costs at most: to decode, to wait for its token.
COMMAND_COST = 8
MOST_GROUPS = 16


def row_groups(plan: Plan) -> tuple[int, ...]:
    """Output rows of each job of the first layer: for each there is one LOAD, and one COMPUTE that waits for it."""
    first, operation = plan.graph.layers[0], plan.operations[0]
    rows, width, _ = plan.graph.tensors[first.output].shape
    if not planned_lowering(plan, first).is_tile_inner or first.input not in plan.graph.inputs:
        return (rows,)
    source, storage = plan.graph.tensors[first.input], plan.storages[first.input]
    loading = load_estimate(storage, source, plan.config) / rows
    computing = operation.cycles(rows, width, range(operation.tiles)) / rows
    # Results are written first; while the layer computes, the LOAD gets the cycles that they leave.
    written = operation.tiles * width
    loading_beside = loading * computing / max(computing - written, 1)

    def cost(groups: tuple[int, ...]) -> float:
        """When the last of ``groups`` has been computed."""
        loaded = computed = 0.0
        for count in groups:
            loaded += count * (loading_beside if loaded else loading)
            computed = max(loaded, computed) + count * computing
        return computed + COMMAND_COST * len(groups)

    return min((groups for groups in _candidates(rows) if len(groups) <= MOST_GROUPS), key=cost)


def _candidates(rows: int) -> list[tuple[int, ...]]:
    """Ways to group output rows: in equal parts, and growing from a small first group."""
    ways = [(rows,)]
    for size in sorted({1, 2} | {math.ceil(rows / parts) for parts in range(2, MOST_GROUPS + 1)}):
        ways.append(_groups(rows, itertools.repeat(size)))
        for growth in (1.25, 1.5, 2.0):
            ways.append(_groups(rows, (max(size, int(size * growth**n)) for n in itertools.count())))
    return ways


def _groups(rows: int, sizes) -> tuple[int, ...]:
    groups = []
    for size in sizes:
        if size >= rows:
            return (*groups, rows)
        groups.append(size)
        rows -= size
    raise AssertionError("sizes never end")
