"""One inference on several cores, each of which computes a part of every layer that is worth it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from ....golden.isa import Barrier, Load, Opcode, Store
from ....golden.memories import LocalMemory
from ....golden.units import Queue
from ..layout.placement import plan_arenas
from ..lower.operations import planned_lowering
from ..network import CompileError, Network
from ..passes import COMPUTES, LAYOUTS, run
from ..plan import Computing, Divided, Executed, Scheduled
from ..schedule.tokens import check_deadlock
from ..storage import Addresses, pieces
from .estimate import Estimate
from .split import Parts, Split, local_graphs, whole_on_one

# The splits of a network's layers among cores are chosen by estimated cycles.

#: Numbers of neighbouring layers whose split is changed at once; a single layer has to exchange its input and its
#: output.
_RUNS = (1, 2, 3, 5, 8)
_ROUNDS = 4


def choose_parts(network: Network, executed: Executed) -> list[list[Parts]]:
    """Return different ways to split all layers, the most promising first; see :class:`.estimate.Estimate`."""
    estimate, found = Estimate(network, executed), {}
    for first in (Split.ROWS, Split.CHANNELS):
        splits = _improved(estimate, [_nearest(estimate, index, first) for index in range(len(network.graph.layers))])
        found[splits] = estimate.cycles(splits)
    return [
        [_possible(estimate, index, split) for index, split in enumerate(splits)]
        for splits in sorted(found, key=found.__getitem__)
    ]


def _possible(estimate: Estimate, index: int, split: Split) -> Parts:
    parts = estimate.parts(index, split)
    assert parts is not None, "a split that a layer cannot have"
    return parts


def _nearest(estimate: Estimate, index: int, split: Split) -> Split:
    """Return a split if the layer can have it, else ``Split.ONE``."""
    return split if estimate.parts(index, split) else Split.ONE


def _improved(estimate: Estimate, splits: list[Split]) -> tuple[Split, ...]:
    """Return splits of all layers, improved as long as a change saves cycles."""
    best = estimate.cycles(splits)
    for _ in range(_ROUNDS):
        before = best
        for trial in _changes(estimate, splits):
            cycles = estimate.cycles(trial)
            if cycles < best:
                splits[:], best = trial, cycles
        if best == before:
            break
    return tuple(splits)


def _changes(estimate: Estimate, splits: list[Split]) -> Iterator[list[Split]]:
    """Yield other splits of a run of layers, or of all layers from one on, each from the present contents of
    ``splits``."""
    count = len(splits)
    for start in range(count):
        for stop in sorted({min(start + length, count) for length in _RUNS} | {count}):
            for split in Split:
                changed = [_nearest(estimate, index, split) for index in range(start, stop)]
                if changed != splits[start:stop]:
                    yield [*splits[:start], *changed, *splits[stop:]]


# The deadlock check of several cores, and the check that no core reads bytes before another core has stored them.


def check_synchronisation(plans: Sequence[Scheduled]) -> None:
    """Check that all cores reach their end (:func:`.tokens.check_deadlock`), and that none reads bytes before they are
    stored."""
    check_deadlock(plans)
    check_arena(plans)


def check_arena(plans: Sequence[Scheduled]) -> None:
    """Check that a barrier separates a core's stores from other cores' stores and loads of the same bytes.

    All cores take part in every barrier. The commands between two barriers are an epoch, and those of different cores
    may be executed in any order within it.
    """
    size, cores = plans[0].external_bytes, range(len(plans))
    counts = {sum(command.opcode is Opcode.BARRIER for command in plan.commands) for plan in plans}
    assert len(counts) == 1, f"cores with {counts} barriers"
    touched = [[*_epochs(plan)] for plan in plans]
    #: The last core that has stored each byte, and the epoch of that; the epoch in which each core has loaded it last.
    writer, written = np.full(size, -1), np.full(size, -1)
    loaded = np.full((len(plans), size), -1)
    for epoch in range(counts.pop() + 1):
        for core in cores:
            for addresses in touched[core][epoch][Opcode.STORE]:
                is_clear = (writer[addresses] == core) | (written[addresses] < epoch)
                assert is_clear.all(), f"core {core} stores what another one stores before barrier {epoch}"
                writer[addresses], written[addresses] = core, epoch
            for addresses in touched[core][epoch][Opcode.LOAD]:
                loaded[core][addresses] = epoch
        for core in cores:
            meets = (written == epoch) & (writer != core) & (loaded[core] == epoch)
            assert not meets.any(), f"core {core} loads what another one stores before barrier {epoch}"


def _epochs(plan: Scheduled) -> Iterator[dict[Opcode, list[Addresses]]]:
    """Yield the addresses that a core loads and stores of tensors in the arena, for each epoch."""
    epoch: dict[Opcode, list[Addresses]] = {Opcode.LOAD: [], Opcode.STORE: []}
    for command in plan.queue(Queue.DMA):
        match command.fields:
            case Barrier():
                yield epoch
                epoch = {Opcode.LOAD: [], Opcode.STORE: []}
            case Store() as store:
                epoch[Opcode.STORE].append(pieces(store.external, store.row_bytes, store.rows, store.external_row))
            case Load() as load if load.memory == LocalMemory.FEATURE:
                size = load.row_pieces * load.piece_bytes
                epoch[Opcode.LOAD] += [
                    pieces(load.external + fold * load.external_fold, size, load.rows, load.external_row)
                    for fold in range(load.folds)
                ]
    yield epoch


def check_weights_known(network: Network) -> None:
    """Refuse a network in which a core would load as weights the results of other cores.

    Raises
    ------
    CompileError
        With the name of the layer.
    """
    for layer in network.graph.layers:
        if layer.weight_place is not None:
            raise CompileError(
                f"{layer.name}: weights that another layer computes are of one core; use --spread sample"
            )


def on_one(network: Network) -> list[Parts]:
    """Return the parts that compute all layers on the first core."""
    cores = network.config.cores
    return [whole_on_one(network.graph, layer, cores) for layer in network.graph.layers]


def plan_parts(network: Network, parts: Sequence[Parts]) -> tuple[tuple[Computing, ...], dict[str, int]]:
    """Return the plans of all cores, up to their COMPUTE commands, and the addresses of the network's tensors in the
    arena.

    Parameters
    ----------
    network : Network
        A rewritten network, accepted by :func:`check_weights_known`.
    parts : sequence of Parts
        Parts of each of its layers.

    Raises
    ------
    CompileError
        If a part does not fit the configuration.
    """
    graph = network.graph
    divided: list[Divided] = [run(own, LAYOUTS) for own in local_networks(network, parts)]
    addressed, external = plan_arenas(divided, [graph.tensors[name] for name in (*graph.inputs, *graph.outputs)])
    plans: list[Computing] = []
    for plan in addressed:
        end = plans[-1].streamed_address + len(plans[-1].streamed) if plans else plan.streamed_address
        plans.append(run(dataclasses.replace(plan, streamed_address=end), COMPUTES))
    return tuple(plans), external


def local_networks(network: Network, parts: Sequence[Parts]) -> list[Network]:
    """Return each core's part of the network as a network of its own, for the passes."""
    alike = [layer for layer in network.graph.layers if planned_lowering(network, layer).has_one_pitch]
    return [
        dataclasses.replace(
            network, graph=local.graph, views=local.views, excerpts=local.excerpts, exchanges=local.exchanges
        )
        for local in local_graphs(network.graph, parts, alike)
    ]
