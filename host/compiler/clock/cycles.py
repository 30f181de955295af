"""Cycles: predict when every command issues and completes, on the design's ideal bus."""

from __future__ import annotations

from ....golden.isa import Opcode
from ....golden.program.prediction import LayerPrediction
from ....golden.timing.bus import burst_beats, commands_at_once
from ....golden.timing.issue import issue_steps
from ....golden.timing.overheads import OVERHEADS
from ....golden.units import Queue
from ...graph import Layer
from ..data.command import Command
from ..data.plan import Plan
from .queues import Queues


def predict(plan: Plan) -> Plan:
    """Run the synchronised commands against the clock, and say what every layer takes."""
    last = _served_last(plan)
    queues = Queues(plan.config, plan.commands, last=last)
    end = queues.run()
    if len(queues.fetch.rings) == len(queues.commands) and queues.fetch.served != last:
        # The prefetcher takes turns from run to run as well.
        queues = Queues(plan.config, plan.commands, last=queues.fetch.served)
        end = queues.run()
    compute, indices = queues.compute, [[] for _ in plan.graph.layers]
    for number, command in enumerate(plan.queue(Queue.COMPUTE)):
        indices[command.layer].append(number)
    before = 0
    for index, layer in enumerate(plan.graph.layers):
        _, last = compute.issues[indices[index][-1]]
        commands = [command for command in plan.commands if command.layer == index]
        busy = sum(compute.issues[number][1] - compute.issues[number][0] + 1 for number in indices[index])
        moving = sum(_bus_cycles(plan, command) for command in commands)
        found = plan.operations[index].connectivity
        plan.predictions.append(
            LayerPrediction(
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
            )
        )
        before = last
    plan.predicted_cycles = end + OVERHEADS.finish
    return plan


def _served_last(plan: Plan) -> Queue:
    """The queue whose commands the prologue fetches last: its compute queue has END alone, which takes the second
    turn."""
    loads = sum(bool(image) for image in plan.images.values())
    return Queue.DMA if loads + 1 > commands_at_once(plan.config) else Queue.COMPUTE


def _bus_cycles(plan: Plan, command: Command) -> int:
    """Beats of a command's data on the bus."""
    fields = command.fields
    if command.opcode is Opcode.LOAD:
        runs, size = fields["rows"] * fields["folds"], fields["row_pieces"] * fields["piece_bytes"]
    elif command.opcode is Opcode.STORE:
        runs, size = fields["rows"], fields["row_bytes"]
    else:
        return 0
    return runs * sum(burst_beats(plan.config, fields["external"], size))


def _kind(plan: Plan, layer: Layer) -> str:
    """What a layer is, for people."""
    kind = plan.graph.kind_of(layer)
    return kind if layer.is_table or layer.table is None else f"{kind}, table"
