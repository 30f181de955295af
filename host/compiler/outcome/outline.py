"""The outline of a finished plan: what reports say of a program and its commands do not."""

from __future__ import annotations

from collections.abc import Iterator

from ....golden.program.outline import NONE, CoreOutline, Outline, QueueOutline, Row
from ....golden.units import Queue
from ...graph import Graph
from ...graph.describe import describe
from ..data.command import Command
from ..data.plan import Plan
from .memory_map import constant_blocks, layer_outlines
from .residences import residences_of


def outline(plan: Plan) -> Outline:
    """What the compiler has decided, for reports."""
    layers = tuple(layer_outlines(plan))
    spilled = {name for layer in layers for name in layer.spilled}
    core = CoreOutline(
        dma=_queue(plan.queue(Queue.DMA)),
        compute=_queue(plan.queue(Queue.COMPUTE)),
        layers=layers,
        blocks=tuple(constant_blocks(plan)),
        residences=tuple(residences_of(plan)),
    )
    return Outline(
        cores=(core,),
        rows=tuple(_rows(plan.given or plan.graph, plan.graph)),
        notes=tuple(plan.graph.notes),
        transfer_functions=sum(layer.transfer_functions for layer in plan.graph.layers),
        streamed_bytes=len(plan.streamed),
        spilled_bytes=sum(plan.graph.tensors[name].size_bytes for name in spilled),
    )


def _queue(commands: list[Command]) -> QueueOutline:
    return QueueOutline(
        layers=tuple(_index(command.layer) for command in commands),
        waits_for=tuple(_index(command.waits_for) for command in commands),
        begins=tuple(int(command.begin) for command in commands),
        ends=tuple(int(command.end) for command in commands),
    )


def _index(value: int | None) -> int:
    return NONE if value is None else int(value)


def _rows(given: Graph, executed: Graph) -> Iterator[Row]:
    """The network's operations, with those that the compiler has added, and the executed layer that each one is."""
    planned = [row for row in describe(executed) if row.where == "accelerator"]
    left = iter(enumerate(zip(planned, executed.layers, strict=True)))
    kept = {layer.output for layer in executed.layers}
    layers = iter(given.layers)
    for row in describe(given):
        layer = next(layers) if row.where == "accelerator" else None
        if layer is None or (layer.is_copy and layer.output not in kept):
            yield Row(row.layer, row.kind, row.where, row.input_shape, row.output_shape, NONE)
            continue
        # What a layer is split into ends with the one that has its name.
        while True:
            index, (found, own) = next(left)
            yield Row(found.layer, found.kind, found.where, found.input_shape, found.output_shape, index)
            if own.name == layer.name:
                break
