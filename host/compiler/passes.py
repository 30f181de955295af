"""The passes of the compiler, in order, each with its name and its check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...golden.config import Config
from ..graph import Graph
from .clock.cycles import predict
from .layout.borders import check_borders, plan_borders, plan_folds, plan_views
from .layout.constants import check_constants, place_constants, plan_segments
from .layout.memory import check_memory, plan_memory
from .layout.placement import plan_arena
from .lower.operations import plan_operations
from .network import Network
from .rewrite.groups import absorb_shuffles
from .rewrite.phases import split_phases
from .rewrite.rewrites import arrange_matrices, move_tables, normalise, separate, sort_shuffles
from .schedule.dma import order_commands
from .schedule.jobs import check_jobs, plan_jobs
from .schedule.tokens import check_lowered, check_tokens, lower, synchronise


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of the compiler.

    Attributes
    ----------
    name : str
    run : callable
        Function from a plan in one state to one in the same or the next state, see :mod:`.plan`, by its annotations.
    check : callable or None
        Function that asserts the invariants of the plan after the pass.
    """

    name: str
    run: Callable[[Any], Network]
    check: Callable[[Any], None] | None = None


#: Rewritings of the graph, which do not depend on the cores that execute it.
REWRITES = (
    Pass("normalise", normalise),
    Pass("tables", move_tables),
    Pass("separate", separate),
    Pass("groups", absorb_shuffles),
    Pass("shuffles", sort_shuffles),
    Pass("phases", split_phases),
    Pass("matrices", arrange_matrices),
)
#: The choice of views, layouts and operations.
OPERATIONS = (
    Pass("views", plan_views),
    Pass("borders", plan_borders, check_borders),
    Pass("folds", plan_folds, check_borders),
    Pass("operations", plan_operations),
)
#: The passes up to the division into jobs, after which the tensors in external memory are known.
LAYOUTS = (
    *OPERATIONS,
    Pass("memory", plan_memory, check_memory),
    Pass("segments", plan_segments),
    Pass("jobs", plan_jobs, check_jobs),
)
ARENA = Pass("arena", plan_arena)
#: The passes from addresses in external memory to COMPUTE commands.
COMPUTES = (
    Pass("constants", place_constants, check_constants),
    Pass("lower", lower, check_lowered),
)
#: The passes that add the commands of the DMA queue, and tokens.
TRANSFERS = (
    Pass("order", order_commands),
    Pass("tokens", synchronise, check_tokens),
)
PASSES = (*REWRITES, *LAYOUTS, ARENA, *COMPUTES, *TRANSFERS, Pass("cycles", predict))


def run(plan: Network, passes: Sequence[Pass]) -> Any:
    """Run some passes with their checks, and return the plan of the last one."""
    for step in passes:
        plan = step.run(plan)
        if step.check is not None:
            step.check(plan)
    return plan


def rewritten(graph: Graph, config: Config) -> Network:
    """Return the rewritten network of a graph."""
    network: Network = run(Network(graph, config, given=graph), REWRITES)
    return network
