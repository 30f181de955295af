"""The search over ways to plan a network for the fewest predicted cycles.

An operation chooses its windows by its own cycles, channels are ordered by the steps of convolutions, and layers are
split over cores by an estimate. Only a whole plan shows the effect of these choices on the rest of a network: wide
windows, for example, have more weights and parameters, and their results come faster.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...golden.config import Config
from ...golden.program.outline import Tried
from ...golden.timing.issue import issue_steps
from ..graph import Graph
from ..program import SpreadBy
from .clock.cycles import predict_together
from .cluster.by_layer import (
    check_synchronisation,
    check_weights_known,
    choose_parts,
    local_networks,
    on_one,
    plan_parts,
)
from .cluster.split import Parts, Split, of_samples, split_of
from .network import CompileError, Network
from .passes import ARENA, COMPUTES, LAYOUTS, OPERATIONS, TRANSFERS, rewritten, run
from .plan import Computing, Divided, Executed, Plan, Scheduled, Spread
from .rewrite.permute import permuted


@dataclass(frozen=True, eq=False)
class Begun:
    """A candidate with its COMPUTE commands; its transfers are planned only if it can still be the fastest.

    Attributes
    ----------
    plans : tuple of Computing
        The plans of all cores.
    external : mapping of str to int
        Addresses of tensors in the arena, of cores that share an inference.
    """

    plans: tuple[Computing, ...]
    external: Mapping[str, int]

    @property
    def least_cycles(self) -> int:
        """A lower bound of its cycles: the steps of the core with most."""
        return max(sum(issue_steps(command.fields) for job in plan.computes for command in job) for plan in self.plans)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way to plan a network.

    Attributes
    ----------
    network : Network
        The rewritten network, with its channels in one order.
    is_permuted : bool
        Whether that order differs from the model's.
    parts : sequence of Parts or None
        The part of each layer that each core computes; None where one core computes all.
    way : int
        The number of the parts among those of the network.
    is_wide : bool
        Whether windows may compute several pixels where that saves a layer cycles.
    """

    network: Network
    is_permuted: bool
    parts: Sequence[Parts] | None
    way: int
    is_wide: bool

    @property
    def rank(self) -> tuple[bool, int, bool]:
        """The key among candidates with equal cycles; the least is chosen, so that a measure without gain is left
        out."""
        return self.is_permuted, self.way, self.is_wide

    def begun(self) -> Begun:
        """Plan all cores up to their COMPUTE commands.

        Raises
        ------
        CompileError
            If the network does not fit the configuration so.
        """
        network = dataclasses.replace(self.network, has_wide_windows=self.is_wide)
        if self.parts is None:
            return Begun((run(network, (*LAYOUTS, ARENA, *COMPUTES)),), {})
        return Begun(*plan_parts(network, self.parts))

    def finished(self, begun: Begun) -> Spread:
        """Return the plans of a begun candidate with all commands and their predicted cycles."""
        scheduled: list[Scheduled] = [run(plan, TRANSFERS) for plan in begun.plans]
        if self.parts is None:
            return Spread.of_one(*predict_together(scheduled))
        check_synchronisation(scheduled)
        external = {name: (address,) for name, address in begun.external.items()}
        return Spread(self.network.graph, predict_together(scheduled), external)

    def planned(self) -> Spread:
        """Begin and finish the candidate; return the plans of all cores."""
        return self.finished(self.begun())

    def tried(
        self, plans: Sequence[Executed] = (), *, refused: str = "", least_cycles: int = 0, predicted_cycles: int = 0
    ) -> Tried:
        """Return the result of the candidate, for reports."""
        wide = {operation.layer.name for plan in plans for operation in plan.operations if operation.pixels > 1}
        splits = Counter(map(split_of, self.parts or ()))
        return Tried(
            self.is_permuted,
            splits[Split.ROWS],
            splits[Split.CHANNELS],
            len(wide),
            predicted_cycles,
            least_cycles,
            refused,
        )


def candidates(
    graph: Graph, config: Config, tried: Sequence[Tried], *, by_layer: bool, permute: bool
) -> Iterator[Candidate]:
    """Yield every promising way to plan a network.

    They are: channels in the model's order, and in the order with the fewest words (:mod:`.permute`), if that differs;
    the most promising splits of layers over the cores (:func:`.by_layer.choose_parts`), and all layers on one core,
    unless a split is faster than its array alone; wide windows, and without them if there are any or they do not fit.

    Parameters
    ----------
    graph : Graph
    config : Config
    tried : sequence of Tried
        The results of the candidates so far; the caller appends to it before it asks for the next candidate.
    by_layer : bool
        Whether cores share the layers; else one core computes all.
    permute : bool
        Whether channels may be reordered.
    """
    for is_permuted in (False, True):
        ordered = graph if not is_permuted else permuted(graph, config) if permute else None
        if ordered is None:
            continue
        network = rewritten(ordered, config)
        if by_layer:
            check_weights_known(network)
        for way, parts in enumerate(_ways(network, tried) if by_layer else (None,)):
            for is_wide in (True, False):
                yield Candidate(network, is_permuted, parts, way, is_wide)
                if not tried[-1].refused and not tried[-1].wide_layers:
                    break


def _ways(network: Network, tried: Sequence[Tried]) -> Iterator[Sequence[Parts]]:
    """Yield ways to split the layers, the most promising first; the last one has all layers on the first core."""
    executed: Executed = run(network, OPERATIONS)
    least = sum(
        operation.cycles(*executed.graph.tensors[operation.layer.output].shape[:2], range(operation.tiles))
        for operation in executed.operations
    )
    yield from choose_parts(network, executed)
    if all(one.predicted_cycles > least for one in tried if one.predicted_cycles):
        yield on_one(network)


def fastest(graph: Graph, config: Config, *, by_layer: bool = False, permute: bool = True) -> Spread:
    """Plan a network in every way of :func:`candidates`, and return the plan with the fewest predicted cycles.

    A candidate whose array alone takes as long as the best one so far is not finished.

    Raises
    ------
    CompileError
        If the graph does not fit the configuration in any way, with the message of the plainest one.
    """
    tried: list[Tried] = []
    refusals: dict[bool, CompileError] = {}
    #: The best candidate for each order of channels.
    best: dict[bool, _Found] = {}
    for candidate in candidates(graph, config, tried, by_layer=by_layer, permute=permute):
        try:
            begun = candidate.begun()
        except CompileError as error:
            refusals[candidate.is_permuted] = error
            tried.append(candidate.tried(refused=str(error)))
            continue
        if best and begun.least_cycles >= min(found.spread.predicted_cycles for found in best.values()):
            tried.append(candidate.tried(begun.plans, least_cycles=begun.least_cycles))
            continue
        found = _Found(candidate, candidate.finished(begun), len(tried))
        tried.append(candidate.tried(begun.plans, predicted_cycles=found.spread.predicted_cycles))
        best[candidate.is_permuted] = min(best.get(candidate.is_permuted, found), found, key=_Found.key)
    if not best:
        raise refusals[False]
    chosen = min(best.values(), key=_Found.key)
    plans = chosen.spread.plans
    if chosen.candidate.is_permuted and False in best:
        plans = _with_model_words(chosen, best[False])
    tried[chosen.number] = dataclasses.replace(tried[chosen.number], is_taken=True)
    return dataclasses.replace(chosen.spread, plans=plans, tried=tuple(tried))


@dataclass(frozen=True, eq=False)
class _Found:
    """A candidate with its finished plans, and its number among those that were tried."""

    candidate: Candidate
    spread: Spread
    number: int

    def key(self) -> tuple[int, tuple[bool, int, bool]]:
        """The key by which the best candidate is chosen: cycles, then rank."""
        return self.spread.predicted_cycles, self.candidate.rank


def _with_model_words(chosen: _Found, model: _Found) -> tuple[Plan, ...]:
    """Add the number of words that every layer has in the model's order of channels, from ``model``, planned in that
    order.

    Layers are matched by name, as another order may need other copies.
    """
    originals: Sequence[Executed] = model.spread.plans
    if chosen.candidate.parts is not None:
        # The layers are split as in the chosen plan.
        originals = [_divided(own) for own in local_networks(model.candidate.network, chosen.candidate.parts)]
    words = ({one.layer.name: one.connectivity.words for one in original.operations} for original in originals)
    return tuple(plan.with_model_words(own) for plan, own in zip(chosen.spread.plans, words, strict=True))


def _divided(network: Network) -> Divided:
    divided: Divided = run(network, LAYOUTS)
    return divided


def plan_graph(graph: Graph, config: Config, *, permute: bool = True) -> Plan:
    """Run all passes for one core, without encoding; the plan shows the compiler's decisions.

    Parameters
    ----------
    graph : Graph
    config : Config
    permute : bool
        Whether channels between layers may be reordered where the plan is faster, see :mod:`.permute`.
    """
    return fastest(graph, config, permute=permute).plans[0]


def spread_graph(graph: Graph, config: Config, spread_by: SpreadBy, *, permute: bool = True) -> Spread:
    """Plan for all cores, without encoding; for ``permute`` see :func:`plan_graph`."""
    by_layer = config.cores > 1 and spread_by is SpreadBy.LAYER
    spread = fastest(graph, config, by_layer=by_layer, permute=permute)
    if config.cores == 1 or by_layer:
        return spread
    graph, plans = spread.graph, predict_together(of_samples(spread.plans[0]))
    external = {name: tuple(own.external[name] for own in plans) for name in (*graph.inputs, *graph.outputs)}
    return Spread(graph, plans, external, spread.tried)
