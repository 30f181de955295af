"""Cycles: predict when every command issues and completes, on the design's ideal bus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ....golden.program.outline import LayerPrediction
from ....golden.timing.issue import issue_steps
from ....golden.timing.latencies import commands_at_once
from ....golden.timing.overheads import OVERHEADS
from ....golden.units import Queue
from ...graph import Layer
from ...program import bus_beats
from ..network import Network
from ..operation import Command
from ..plan import Loaded, Plan, Scheduled
from .buses import Agenda, Barriers, ReadBus, ReadMemory, SharedReads, SharedWrites, Turns
from .core import Queues, Surroundings


def predict(plan: Scheduled) -> Plan:
    """Run the synchronised commands of a core that is alone against the clock, and say what every layer takes."""
    (predicted,) = predict_together([plan])
    return predicted


def predict_together(plans: Sequence[Scheduled]) -> tuple[Plan, ...]:
    """Run the synchronised commands of all cores against the clock, and say what every layer takes."""
    first = _Served(tuple(_served_last(plan) for plan in plans))
    cores, served = _run(plans, first)
    if served != first:
        # Turns go on from run to run.
        cores, _ = _run(plans, served)
    return tuple(
        Plan.of(plan, predictions=tuple(_predictions(plan, core)), predicted_cycles=core.end + OVERHEADS.finish)
        for plan, core in zip(plans, cores, strict=True)
    )


@dataclass(frozen=True)
class _Served:
    """Who was served last by what takes turns: of the rings by a core's prefetcher, of the cores by an arbiter of reads
    and one of writes."""

    rings: tuple[Queue, ...]
    reads: int = 0
    writes: int = 0


def _run(plans: Sequence[Scheduled], before: _Served) -> tuple[list[Queues], _Served]:
    """Run all cores at the same time, after a run that ended so; gives how this one ends as well."""
    agenda, cluster = Agenda(), plans[0].config.cluster
    barriers, memory = Barriers(agenda), ReadMemory()
    reads, writes = (Turns(agenda, cluster.cores, last) for last in (before.reads, before.writes))
    shared = SharedWrites(writes)
    cores = []
    for number, (plan, last) in enumerate(zip(plans, before.rings, strict=True)):
        if cluster.sharing > 1:
            around = Surroundings(agenda, SharedReads(memory, reads, number), partial(shared.send, number), barriers)
        else:
            fetches = any(len(plan.queue(queue)) >= plan.config.resident_commands for queue in Queue)
            around = Surroundings(agenda, ReadBus(agenda, shared=fetches), None, barriers)
        cores.append(Queues(plan.config, number, plan.commands, around, last=last))
    for core in cores:
        core.start()
    agenda.run()
    rings = tuple(
        core.fetch.served if len(core.fetch.rings) == len(core.commands) else last
        for core, last in zip(cores, before.rings, strict=True)
    )
    return cores, _Served(rings, reads.last, writes.last)


def _predictions(plan: Scheduled, core: Queues) -> Iterator[LayerPrediction]:
    """Of every layer of a core that has run."""
    compute = core.compute
    indices: list[list[int]] = [[] for _ in plan.graph.layers]
    of_layer: list[list[Command]] = [[] for _ in plan.graph.layers]
    for number, command in enumerate(plan.queue(Queue.COMPUTE)):
        assert command.layer is not None, "every COMPUTE is of a layer"
        indices[command.layer].append(number)
    for command in plan.commands:
        if command.layer is not None:
            of_layer[command.layer].append(command)
    before = 0
    for index, (layer, commands) in enumerate(zip(plan.graph.layers, of_layer, strict=True)):
        _, last = compute.issues[indices[index][-1]]
        busy = sum(compute.issues[number][1] - compute.issues[number][0] + 1 for number in indices[index])
        moving = sum(bus_beats(plan.config, command.fields) for command in commands)
        found = plan.operations[index].connectivity
        yield LayerPrediction(
            layer.name,
            _kind(plan, layer),
            tuple(indices[index]),
            macs=layer.macs(plan.graph.tensors[layer.output].shape),
            cycles=last - before,
            array_cycles=sum(issue_steps(command.fields) for command in commands if command.queue is Queue.COMPUTE),
            bus_cycles=moving,
            bound="bus" if moving > busy else "array",
            fold=plan.operations[index].fold,
            at_once=plan.operations[index].macs_at_once,
            connections=found.connections,
            live_connections=found.live_connections,
            dense_words=found.dense_words,
            model_words=found.words,
            words=found.words,
            dense_cycles=last - before + found.saved_cycles,
            copied_bytes=plan.operations[index].written_bytes if layer.is_copy else 0,
        )
        before = last


def _served_last(plan: Loaded) -> Queue:
    """The queue whose commands the prologue fetches last: its compute queue has END alone, which takes the second
    turn."""
    loads = sum(bool(image) for image in plan.images.values())
    return Queue.DMA if loads + 1 > commands_at_once(plan.config) else Queue.COMPUTE


def _kind(plan: Network, layer: Layer) -> str:
    """What a layer is, for people."""
    kind = plan.graph.kind_of(layer)
    return kind if layer.is_table or layer.table is None else f"{kind}, table"
