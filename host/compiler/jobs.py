"""Jobs: in which parts every layer is executed."""
from __future__ import annotations

import itertools

from .operation import Job
from .plan import Plan
from .streaming import row_groups


def plan_jobs(plan: Plan) -> Plan:
    """One job for every layer; several, group of rows by group of rows, for a first layer that begins before its whole
    input is there."""
    for index, layer in enumerate(plan.graph.layers):
        height, width, _ = plan.graph.tensors[layer.output].shape
        groups = row_groups(plan) if index == 0 else (height,)
        for start, end in itertools.pairwise(itertools.accumulate(groups, initial=0)):
            plan.jobs.append(Job(
                index,
                tuple(plan.storages[name] for name in layer.inputs),
                plan.storages[layer.output],
                range(start, end),
                range(width),
                range(plan.operations[index].tiles),
                # Each row of the input is then done with in one go.
                tile_inner=len(groups) > 1,
            ))
    return plan
