"""By layer: one inference on several cores, each of which computes a part of every layer that is worth it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from ....golden.config import Config
from ...graph import Graph
from ..clock.cycles import predict_together
from ..data.errors import CompileError
from ..data.plan import Plan
from ..data.spread import Spread
from ..layout.arena import plan_arenas
from ..lower.operations import planned_lowering
from ..passes import COMMANDS, LAYOUTS, OPERATIONS, REWRITES, run
from ..rewrite.permute import permuted
from ..width import fastest
from .choice import choose_parts
from .local import local_graphs
from .meetings import check_meetings
from .split import Parts, Split, parts_of


def plan_by_layer(graph: Graph, config: Config, *, permute: bool = True) -> Spread:
    """Plan an inference on all cores of a configuration, so that it takes the fewest predicted cycles.

    A few ways to split the layers, which promise most, are planned as a whole; and all on one core, if that could be
    faster.

    Parameters
    ----------
    graph : Graph
    config : Config
    permute : bool
        Whether channels between layers may be put in another order, see :mod:`.permute`: where that is faster.

    Raises
    ------
    CompileError
        If the graph does not fit the configuration.
    """
    reordered = permuted(graph, config) if permute else None
    versions = [rewritten(version, config) for version in (graph, reordered) if version]
    best: tuple[Plan, list[Parts], Spread] | None = None
    for network in versions:
        for parts, found in _plans(network):
            if best is None or found.predicted_cycles < best[-1].predicted_cycles:
                best = network, parts, found
    assert best is not None
    network, parts, found = best
    if network is not versions[0]:
        _tell_model_words(found.plans, local_plans(versions[0], parts))
    return found


def _plans(network: Plan) -> Iterator[tuple[list[Parts], Spread]]:
    """Plans of all cores in several ways, with their predicted cycles.

    All on the first core is the last one, unless another one takes less than its array alone.
    """
    executed = run(dataclasses.replace(network), OPERATIONS)
    least = sum(
        operation.cycles(*executed.graph.tensors[operation.layer.output].shape[:2], range(operation.tiles))
        for operation in executed.operations
    )
    found: list[Spread] = []
    *ways, alone = *choose_parts(network, executed), on_one(network)
    for parts in ways:
        # What is right for one core may be too much for a part with what it exchanges.
        try:
            found.append(_predicted(network, parts))
        except CompileError:
            continue
        yield parts, found[-1]
    if all(way.predicted_cycles > least for way in found):
        try:
            yield alone, _predicted(network, alone)
        except CompileError:
            # What is too much for one core may be right for several.
            if not found:
                raise


def _predicted(network: Plan, parts: Sequence[Parts]) -> Spread:
    """The plans of all cores with their predicted cycles, see :func:`plan_parts`."""

    def plan(wide: bool) -> Spread:
        spread = plan_parts(dataclasses.replace(network, has_wide_windows=wide), parts)
        predict_together(spread.plans)
        return spread

    return fastest(plan)


def _tell_model_words(plans: Sequence[Plan], originals: Sequence[Plan]) -> None:
    """Say of every layer how many words it has in the model's order of channels; ``originals`` have that order."""
    for plan, original in zip(plans, originals, strict=True):
        operations = run(original, LAYOUTS).operations
        plan.tell_model_words({operation.layer.name: operation.connectivity.words for operation in operations})


def rewritten(graph: Graph, config: Config) -> Plan:
    """The network as all cores see it.

    Raises
    ------
    CompileError
        If one core would have to load as weights what others have computed.
    """
    for layer in graph.layers:
        if layer.weight_place is not None:
            raise CompileError(
                f"{layer.name}: weights that another layer computes are of one core; use --spread sample"
            )
    return run(Plan(graph, config, given=graph), REWRITES)


def on_one(network: Plan) -> list[Parts]:
    """All layers on the first core."""
    graph, cores = network.graph, network.config.cores
    return [parts_of(graph, layer, Split.ONE, cores, 1) for layer in graph.layers]


def plan_parts(network: Plan, parts: Sequence[Parts]) -> Spread:
    """The plans of all cores, up to synchronised commands.

    Parameters
    ----------
    network : Plan
        See :func:`rewritten`.
    parts : sequence of Parts
        Of each of its layers.

    Raises
    ------
    CompileError
        If a part does not fit the configuration.
    """
    graph, plans = network.graph, [run(plan, LAYOUTS) for plan in local_plans(network, parts)]
    external = plan_arenas(plans, [graph.tensors[name] for name in (*graph.inputs, *graph.outputs)])
    end = plans[0].streamed_address
    for core, plan in enumerate(plans):
        plan.streamed_address = end
        plans[core] = run(plan, COMMANDS)
        end += len(plans[core].streamed)
    check_meetings(plans)
    return Spread(graph, plans, {name: (address,) for name, address in external.items()})


def local_plans(network: Plan, parts: Sequence[Parts]) -> list[Plan]:
    """What each core has of the network, for the passes to work on."""
    graph = network.graph
    alike = [layer for layer in graph.layers if planned_lowering(network, layer).has_one_pitch]
    return [
        Plan(
            local.graph,
            network.config,
            given=network.given,
            views=local.views,
            excerpts=local.excerpts,
            exchanges=local.exchanges,
            has_wide_windows=network.has_wide_windows,
        )
        for local in local_graphs(graph, parts, alike)
    ]
