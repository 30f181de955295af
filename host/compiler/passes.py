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
        From a plan in one state to the same one, or to the next, see :mod:`.plan`; its annotations say which.
    check : callable or None
        Asserts what must hold of the plan after the pass.
    """

    name: str
    run: Callable[[Any], Network]
    check: Callable[[Any], None] | None = None


#: What becomes of a network before anybody asks where it is executed.
REWRITES = (
    Pass("normalise", normalise),
    Pass("tables", move_tables),
    Pass("separate", separate),
    Pass("groups", absorb_shuffles),
    Pass("shuffles", sort_shuffles),
    Pass("phases", split_phases),
    Pass("matrices", arrange_matrices),
)
#: How its layers are executed.
OPERATIONS = (
    Pass("views", plan_views),
    Pass("borders", plan_borders, check_borders),
    Pass("folds", plan_folds, check_borders),
    Pass("operations", plan_operations),
)
#: Up to what is to lie in external memory.
LAYOUTS = (
    *OPERATIONS,
    Pass("memory", plan_memory, check_memory),
    Pass("segments", plan_segments),
    Pass("jobs", plan_jobs, check_jobs),
)
ARENA = Pass("arena", plan_arena)
#: What follows once tensors have their addresses there: the COMPUTE commands.
COMPUTES = (
    Pass("constants", place_constants, check_constants),
    Pass("lower", lower, check_lowered),
)
#: The commands that bring what these need, and what waits for what.
TRANSFERS = (
    Pass("order", order_commands),
    Pass("tokens", synchronise, check_tokens),
)
PASSES = (*REWRITES, *LAYOUTS, ARENA, *COMPUTES, *TRANSFERS, Pass("cycles", predict))


def run(plan: Network, passes: Sequence[Pass]) -> Any:
    """Run some passes, and the check of each: the plan that the last one gives."""
    for step in passes:
        plan = step.run(plan)
        if step.check is not None:
            step.check(plan)
    return plan


def rewritten(graph: Graph, config: Config) -> Network:
    """A network, before anybody asks where it is executed."""
    network: Network = run(Network(graph, config, given=graph), REWRITES)
    return network
