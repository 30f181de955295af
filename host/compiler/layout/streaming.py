"""Streaming: let the first layer begin while its input still arrives."""

from __future__ import annotations

import functools
import itertools
import math
from operator import itemgetter

from ..data.operation import Operation
from ..data.plan import Plan
from ..lower.operations import planned_lowering

#: Cycles that one more command costs at most: to decode, to wait for its token.
COMMAND_COST = 8
MOST_GROUPS = 16


def row_groups(plan: Plan, operation: Operation, input_cycles: int) -> tuple[float, tuple[int, ...]]:
    """Let the first layer, ``operation``, begin while its input, of so many cycles, arrives.

    Returns
    -------
    float
        About when the layer has been computed, in cycles.
    tuple of int
        Output rows of each job: for each there is one LOAD, and one COMPUTE that waits for it.
    """
    first = operation.layer
    rows, width, _ = plan.graph.tensors[first.output].shape
    loading = input_cycles / rows
    computing = operation.cycles(rows, width, range(operation.tiles)) / rows
    # Results are written first, a window's in a cycle; while the layer computes, the LOAD gets the cycles that they
    # leave. Where the layer waits for it, both take what both write.
    written = operation.tiles * -(-width // operation.pixels)
    loading_beside = min(loading * computing / max(computing - written, 1), loading + written)

    def cost(groups: tuple[int, ...]) -> float:
        """When the last of ``groups`` has been computed."""
        loaded = computed = 0.0
        for count in groups:
            loaded += count * (loading_beside if loaded else loading)
            computed = max(loaded, computed) + count * computing
        return computed + COMMAND_COST * len(groups)

    candidates = [(rows,)]
    if planned_lowering(plan, first).is_tile_inner and first.input in plan.graph.inputs:
        candidates = [groups for groups in _candidates(rows) if len(groups) <= MOST_GROUPS]
    return min(((cost(groups), groups) for groups in candidates), key=itemgetter(0))


@functools.cache
def _candidates(rows: int) -> tuple[tuple[int, ...], ...]:
    """Ways to group output rows: in equal parts, and growing from a small first group."""
    ways = [(rows,)]
    for size in sorted({1, 2} | {math.ceil(rows / parts) for parts in range(2, MOST_GROUPS + 1)}):
        ways.append(_groups(rows, itertools.repeat(size)))
        for growth in (1.25, 1.5, 2.0):
            ways.append(_groups(rows, (max(size, int(size * growth**n)) for n in itertools.count())))
    return tuple(ways)


def _groups(rows: int, sizes) -> tuple[int, ...]:
    groups = []
    for size in sizes:
        if size >= rows:
            return (*groups, rows)
        groups.append(size)
        rows -= size
    raise AssertionError("sizes never end")
