"""By layer: one inference on several cores, each of which computes a part of every layer that is worth it."""

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
from ..schedule.tokens import rehearse
from ..storage import Addresses, pieces
from .estimate import Estimate
from .split import Parts, Split, local_graphs, whole_on_one

# Choice: ways to split the layers of a network among cores that promise the fewest cycles.

#: Neighbouring layers of which the split is changed at once: alone, a layer has to exchange its input and its output.
_RUNS = (1, 2, 3, 5, 8)
_ROUNDS = 4


def choose_parts(network: Network, executed: Executed) -> list[list[Parts]]:
    """Ways to split all layers, different ones, the most promising first; see :class:`.estimate.Estimate`."""
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
    """A split, if a layer can have it, else none."""
    return split if estimate.parts(index, split) else Split.ONE


def _improved(estimate: Estimate, splits: list[Split]) -> tuple[Split, ...]:
    """Splits of all layers, changed as long as that saves cycles."""
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
    """Other splits of a run of layers, or of all from one on; each on top of what ``splits`` are by then."""
    count = len(splits)
    for start in range(count):
        for stop in sorted({min(start + length, count) for length in _RUNS} | {count}):
            for split in Split:
                changed = [_nearest(estimate, index, split) for index in range(start, stop)]
                if changed != splits[start:stop]:
                    yield [*splits[:start], *changed, *splits[stop:]]


# Meetings: proof that no core waits for ever for another one, and that none reads what another one is yet to store.


def check_meetings(plans: Sequence[Scheduled]) -> None:
    """All cores come to their end, see :func:`.tokens.rehearse`, and none reads what another one is yet to store."""
    rehearse(plans)
    check_arena(plans)


def check_arena(plans: Sequence[Scheduled]) -> None:
    """Where one core stores bytes that another one stores or loads, before or after, there is a barrier between both.

    All cores meet at every barrier, so what lies between two of them is an epoch, and what stands in one may happen in
    any order.
    """
    size, cores = plans[0].external_bytes, range(len(plans))
    counts = {sum(command.opcode is Opcode.BARRIER for command in plan.commands) for plan in plans}
    assert len(counts) == 1, f"cores with {counts} barriers"
    touched = [[*_epochs(plan)] for plan in plans]
    #: The last core that has stored each byte, and in which epoch; in which epoch each core has loaded it last.
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
    """What a core loads and stores of the tensors in the arena, from each barrier to the next."""
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
    """Refuse a network of which one core would have to load as weights what others have computed.

    Raises
    ------
    CompileError
        With the layer.
    """
    for layer in network.graph.layers:
        if layer.weight_place is not None:
            raise CompileError(
                f"{layer.name}: weights that another layer computes are of one core; use --spread sample"
            )


def on_one(network: Network) -> list[Parts]:
    """All layers on the first core."""
    cores = network.config.cores
    return [whole_on_one(network.graph, layer, cores) for layer in network.graph.layers]


def plan_parts(network: Network, parts: Sequence[Parts]) -> tuple[tuple[Computing, ...], dict[str, int]]:
    """The plans of all cores, up to their COMPUTE commands, and the addresses of the network's tensors in the arena.

    Parameters
    ----------
    network : Network
        Rewritten, of layers that :func:`check_weights_known` accepts.
    parts : sequence of Parts
        Of each of its layers.

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
    """What each core has of the network, for the passes to work on."""
    alike = [layer for layer in network.graph.layers if planned_lowering(network, layer).has_one_pitch]
    return [
        dataclasses.replace(
            network, graph=local.graph, views=local.views, excerpts=local.excerpts, exchanges=local.exchanges
        )
        for local in local_graphs(network.graph, parts, alike)
    ]
