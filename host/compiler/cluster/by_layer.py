"""By layer: one inference on several cores, each of which computes a part of every layer that is worth it."""

from __future__ import annotations

from collections.abc import Sequence

from ....golden.config import Config
from ...graph import Graph
from ..data.plan import Plan
from ..layout.arena import aligned, share_arena
from ..lower.operations import planned_lowering
from ..passes import COMMANDS, LAYOUTS, REWRITES, run
from .local import local_graphs
from .meetings import check_meetings
from .split import Parts


def rewritten(graph: Graph, config: Config) -> Plan:
    """The network as all cores see it."""
    return run(Plan(graph, config, given=graph), REWRITES)


def plan_parts(network: Plan, parts: Sequence[Parts]) -> list[Plan]:
    """The plans of all cores, up to synchronised commands.

    Parameters
    ----------
    network : Plan
        See :func:`rewritten`.
    parts : sequence of Parts
        Of each of its layers.
    """
    graph, config = network.graph, network.config
    alike = [layer for layer in graph.layers if planned_lowering(network, layer).has_one_pitch]
    plans = [
        run(
            Plan(
                local.graph,
                config,
                given=network.given,
                views=local.views,
                shares=local.shares,
                exchanges=local.exchanges,
            ),
            LAYOUTS,
        )
        for local in local_graphs(graph, parts, alike)
    ]
    share_arena(plans, [graph.tensors[name] for name in (*graph.inputs, *graph.outputs)])
    end = plans[0].constants_address
    for core, plan in enumerate(plans):
        plan.constants_address = end
        plans[core] = run(plan, COMMANDS)
        end += sum(aligned(len(image)) for image in plans[core].images.values()) + len(plans[core].streamed)
    check_meetings(plans)
    return plans
