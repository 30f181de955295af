"""Search: the ways to plan a network, and the one with the fewest predicted cycles.

An operation chooses its windows by its own cycles, channels are put in an order by the steps of convolutions, and
layers are split over cores by an estimate. What each of these does to the rest of a network, only a whole plan tells:
wide windows have more weights and parameters, and results come faster.
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
from .cluster.by_layer import check_meetings, check_weights_known, choose_parts, local_networks, on_one, plan_parts
from .cluster.split import Parts, Split, of_samples, split_of
from .network import CompileError, Network
from .passes import ARENA, COMPUTES, LAYOUTS, OPERATIONS, TRANSFERS, rewritten, run
from .plan import Computing, Divided, Executed, Plan, Scheduled, Spread
from .rewrite.permute import permuted


@dataclass(frozen=True, eq=False)
class Begun:
    """A candidate that is worth its transfers only if it can still be the fastest.

    Attributes
    ----------
    plans : tuple of Computing
        Of all cores.
    external : mapping of str to int
        Where cores that share an inference have their tensors in the arena.
    """

    plans: tuple[Computing, ...]
    external: Mapping[str, int]

    @property
    def least_cycles(self) -> int:
        """Fewer cycles than it will take: the steps of the array that has most."""
        return max(sum(issue_steps(command.fields) for job in plan.computes for command in job) for plan in self.plans)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way to plan a network.

    Attributes
    ----------
    network : Network
        Rewritten, with its channels in one order.
    is_permuted : bool
        Whether that order is another one than the model's.
    parts : sequence of Parts or None
        What each core computes of each layer; None where one core does all.
    way : int
        The number of the parts among those of the network.
    is_wide : bool
        Whether a window may compute several pixels, where a layer has fewer cycles by that.
    """

    network: Network
    is_permuted: bool
    parts: Sequence[Parts] | None
    way: int
    is_wide: bool

    @property
    def rank(self) -> tuple[bool, int, bool]:
        """Of candidates that take as many cycles, the least counts: what gains nothing is left out."""
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
        """What has been begun, with all commands and their predicted cycles."""
        scheduled: list[Scheduled] = [run(plan, TRANSFERS) for plan in begun.plans]
        if self.parts is None:
            return Spread.of_one(*predict_together(scheduled))
        check_meetings(scheduled)
        external = {name: (address,) for name, address in begun.external.items()}
        return Spread(self.network.graph, predict_together(scheduled), external)

    def planned(self) -> Spread:
        """Both: the finished plans of all cores."""
        return self.finished(self.begun())

    def tried(
        self, plans: Sequence[Executed] = (), *, refused: str = "", least_cycles: int = 0, predicted_cycles: int = 0
    ) -> Tried:
        """What has become of it, for people."""
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
    """Every way to plan a network that is worth it.

    Channels in the model's order, and in that which needs the fewest words (:mod:`.permute`), if there is one; a few
    ways to split the layers over the cores, which promise most (:func:`.by_layer.choose_parts`), and all on one core,
    if nothing so far takes less than its array alone; wide windows, and none if there are any or if they do not fit.

    Parameters
    ----------
    graph : Graph
    config : Config
    tried : sequence of Tried
        What has become of the candidates so far: the caller adds to it before it asks for the next one.
    by_layer : bool
        Whether all cores have a part of each layer; else one core does all.
    permute : bool
        Whether channels may be in another order than the model's.
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
    """Ways to split the layers, the most promising one first; all on the first core is the last one."""
    executed: Executed = run(network, OPERATIONS)
    least = sum(
        operation.cycles(*executed.graph.tensors[operation.layer.output].shape[:2], range(operation.tiles))
        for operation in executed.operations
    )
    yield from choose_parts(network, executed)
    if all(one.predicted_cycles > least for one in tried if one.predicted_cycles):
        yield on_one(network)


def fastest(graph: Graph, config: Config, *, by_layer: bool = False, permute: bool = True) -> Spread:
    """Plan a network in every way that :func:`candidates` gives: the plan with the fewest predicted cycles.

    A candidate of which the array alone takes as long as the best one so far is left at that.

    Raises
    ------
    CompileError
        If the graph does not fit the configuration in any way: the message of the plainest one.
    """
    tried: list[Tried] = []
    refusals: dict[bool, CompileError] = {}
    #: The best of each order of channels.
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
        """What is chosen by."""
        return self.spread.predicted_cycles, self.candidate.rank


def _with_model_words(chosen: _Found, model: _Found) -> tuple[Plan, ...]:
    """Say of every layer how many words it has in the model's order of channels; ``model`` is planned in that order.

    By the names of layers: with another order, other copies may be needed.
    """
    originals: Sequence[Executed] = model.spread.plans
    if chosen.candidate.parts is not None:
        # Split as the chosen one is.
        originals = [_divided(own) for own in local_networks(model.candidate.network, chosen.candidate.parts)]
    words = ({one.layer.name: one.connectivity.words for one in original.operations} for original in originals)
    return tuple(plan.with_model_words(own) for plan, own in zip(chosen.spread.plans, words, strict=True))


def _divided(network: Network) -> Divided:
    divided: Divided = run(network, LAYOUTS)
    return divided


def plan_graph(graph: Graph, config: Config, *, permute: bool = True) -> Plan:
    """Run all passes for a core that does all alone, but do not encode: the plan shows how the compiler has decided.

    Parameters
    ----------
    graph : Graph
    config : Config
    permute : bool
        Whether channels between layers may be put in another order, see :mod:`.permute`: where the plan is faster.
    """
    return fastest(graph, config, permute=permute).plans[0]


def spread_graph(graph: Graph, config: Config, spread_by: SpreadBy, *, permute: bool = True) -> Spread:
    """Plan for all cores, but do not encode; ``permute`` as :func:`plan_graph` takes it."""
    by_layer = config.cores > 1 and spread_by is SpreadBy.LAYER
    spread = fastest(graph, config, by_layer=by_layer, permute=permute)
    if config.cores == 1 or by_layer:
        return spread
    graph, plans = spread.graph, predict_together(of_samples(spread.plans[0]))
    external = {name: tuple(own.external[name] for own in plans) for name in (*graph.inputs, *graph.outputs)}
    return Spread(graph, plans, external, spread.tried)
