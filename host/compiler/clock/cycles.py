"""Cycles: predict when every command issues and completes, on the design's ideal bus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ....golden.timing.latencies import commands_at_once
from ....golden.timing.overheads import OVERHEADS
from ....golden.units import Queue
from ..operation import TimedCommand
from ..outline import layer_outlines
from ..plan import Loaded, Plan, Scheduled
from .buses import Agenda, Barriers, ReadBus, ReadMemory, SharedReads, SharedWrites, Turns
from .core import CoreClock, CoreContext


def predict(plan: Scheduled) -> Plan:
    """Predict the cycles of every layer from the synchronised commands of a core that is alone."""
    (predicted,) = predict_together([plan])
    return predicted


def predict_together(plans: Sequence[Scheduled]) -> tuple[Plan, ...]:
    """Predict the cycles of every layer on all cores from their synchronised commands."""
    first = _Served(tuple(_served_last(plan) for plan in plans))
    cores, served = _run(plans, first)
    if served != first:
        # Arbiters keep their state from run to run.
        cores, _ = _run(plans, served)
    return tuple(_timed(plan, core) for plan, core in zip(plans, cores, strict=True))


def _timed(plan: Scheduled, core: CoreClock) -> Plan:
    """Add the cycles of a core that has run to its plan."""
    times = {queue: iter(of_queue) for queue, of_queue in core.times.items()}
    commands = list[TimedCommand]()
    for command in plan.commands:
        begin, end = next(times[command.queue])
        commands.append(TimedCommand.of(command, begin=begin, end=end))
    return Plan.of_commands(
        plan,
        commands,
        predictions=layer_outlines(plan, core.compute.issues),
        predicted_cycles=core.end + OVERHEADS.finish,
    )


@dataclass(frozen=True)
class _Served:
    """The state of round-robin choices: the ring that each core's prefetcher has served last, and the core that the
    arbiters of reads and of writes have."""

    rings: tuple[Queue, ...]
    reads: int = 0
    writes: int = 0


def _run(plans: Sequence[Scheduled], before: _Served) -> tuple[list[CoreClock], _Served]:
    """Run all cores at the same time from a state of the arbiters; return the state at the end as well."""
    agenda, cluster = Agenda(), plans[0].config.cluster
    barriers, memory = Barriers(agenda), ReadMemory()
    reads, writes = (Turns(agenda, cluster.cores, last) for last in (before.reads, before.writes))
    shared = SharedWrites(writes)
    cores = []
    for number, (plan, last) in enumerate(zip(plans, before.rings, strict=True)):
        if cluster.sharing > 1:
            around = CoreContext(agenda, SharedReads(memory, reads, number), partial(shared.send, number), barriers)
        else:
            fetches = any(len(plan.queue(queue)) >= plan.config.resident_commands for queue in Queue)
            around = CoreContext(agenda, ReadBus(agenda, shared=fetches), None, barriers)
        cores.append(CoreClock(plan.config, number, plan.commands, around, last=last))
    for core in cores:
        core.start()
    agenda.run()
    rings = tuple(
        core.fetch.served if len(core.fetch.rings) == len(core.commands) else last
        for core, last in zip(cores, before.rings, strict=True)
    )
    return cores, _Served(rings, reads.last, writes.last)


def _served_last(plan: Loaded) -> Queue:
    """The queue whose commands the prologue fetches last: its compute queue has END alone, which takes the second
    turn."""
    loads = sum(bool(image) for image in plan.images.values())
    return Queue.DMA if loads + 1 > commands_at_once(plan.config) else Queue.COMPUTE
