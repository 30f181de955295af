"""The outline of a finished plan: what reports say of a program and its commands do not."""

from __future__ import annotations

from collections.abc import Iterator

from ....golden.program.outline import NONE, CoreOutline, Outline, QueueOutline, Row
from ....golden.units import Queue
from ...graph.evaluate import describe
from ..data.command import Command
from ..data.plan import Plan
from ..data.spread import Spread
from .memory_map import constant_blocks, layer_outlines
from .residences import residences_of


def outline(spread: Spread) -> Outline:
    """What the compiler has decided, for reports."""
    cores = tuple(_core(plan) for plan in spread.plans)
    graph = spread.graph
    return Outline(
        cores=cores,
        rows=tuple(_rows(spread)),
        notes=tuple(graph.notes),
        transfer_functions=sum(
            table is not None for layer in graph.layers for table in (layer.table, *layer.input_tables)
        ),
        spilled_bytes=sum(map(_spilled_bytes, spread.plans, cores)),
    )


def _spilled_bytes(plan: Plan, core: CoreOutline) -> int:
    names = {name for layer in core.layers for name in layer.spilled}
    return sum(plan.graph.tensors[name].size_bytes for name in names)


def _core(plan: Plan) -> CoreOutline:
    return CoreOutline(
        dma=_queue(plan.queue(Queue.DMA)),
        compute=_queue(plan.queue(Queue.COMPUTE)),
        layers=tuple(layer_outlines(plan)),
        blocks=tuple(constant_blocks(plan)),
        residences=tuple(residences_of(plan)),
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


def _rows(spread: Spread) -> Iterator[Row]:
    """The network's operations, with those that the compiler has added, and the executed layers that each one is."""
    given, executed = spread.given, spread.graph
    planned = [row for row in describe(executed) if row.where == "accelerator"]
    numbers = [{layer.output: number for number, layer in enumerate(plan.graph.layers)} for plan in spread.plans]
    left = iter(zip(planned, executed.layers, strict=True))
    kept = {layer.output for layer in executed.layers}
    layers = iter(given.layers)
    nowhere = (NONE,) * len(numbers)
    for row in describe(given):
        layer = next(layers) if row.where == "accelerator" else None
        if layer is None or (layer.is_copy and layer.output not in kept):
            yield Row(row.layer, row.kind, row.where, row.input_shape, row.output_shape, nowhere)
            continue
        # What a layer is split into ends with the one that has its name.
        while True:
            found, own = next(left)
            places = tuple(of_core.get(own.output, NONE) for of_core in numbers)
            yield Row(found.layer, found.kind, found.where, found.input_shape, found.output_shape, places)
            if own.name == layer.name:
                break
