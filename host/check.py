"""What `lutterfly check` says of a plan: for each layer where it runs, how fast, and what memory it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..golden.memories import CONSTANTS, MEMORIES
from ..golden.program import LayerReport
from .compiler.memory_map import LayerMemory, constant_blocks, layer_memory
from .compiler.plan import Plan
from .frontend import Row, describe
from .graph import Concat, Graph, Layer, Slice

HEAD = ("layer", "operation", "input", "output", "where", "fold", "cycles", "bound", "weights", "features")
#: Values of a layer that the accelerator executes; null for what the host does, and for what is in place already.
_REPORTED = ("fold", "bound", "macs", "array_cycles", "bus_cycles")
_REMEMBERED = (
    "weight_bytes",
    "streamed_weight_bytes",
    "feature_bytes",
    "loaded_bytes",
    "stored_bytes",
    "in_parts",
    "spilled",
)

#: Name, bytes taken, all bytes, and what is to be said beyond that.
Memory = tuple[str, int, int, str]


def layer_table(graph: Graph, plan: Plan) -> tuple[list[tuple[str, ...]], list[dict[str, Any]]]:
    """Every operation in order of execution, the host's included: rows of text below ``HEAD``, and values for JSON.

    Parameters
    ----------
    graph : Graph
        What was compiled. The plan may have other layers: concatenations that cost nothing are none.
    plan : Plan
    """
    on_accelerator = {id(layer): index for index, layer in enumerate(plan.graph.layers)}
    memory = layer_memory(plan)
    table, values = [HEAD], []
    for row, layer in _rows(graph, plan):
        index = on_accelerator.get(id(layer))
        report, needed = (None, None) if index is None else (plan.reports[index], memory[index])
        table.append(_cells(row, report, needed))
        values.append(
            {
                "name": row.layer,
                "operation": row.kind,
                "where": row.where,
                "input_shape": row.input_shape,
                "output_shape": row.output_shape,
                "predicted_cycles": report and report.cycles,
                **{name: report and getattr(report, name) for name in _REPORTED},
                **{name: needed and getattr(needed, name) for name in _REMEMBERED},
            }
        )
    return table, values


def _rows(graph: Graph, plan: Plan) -> Iterator[tuple[Row, Layer | None]]:
    """The network's operations, with those that the plan has added, and the layer of the plan that each one is."""
    planned = [row for row in describe(plan.graph) if row.where == "accelerator"]
    left = iter(zip(planned, plan.graph.layers, strict=True))
    kept = {layer.output for layer in plan.graph.layers}
    layers = iter(graph.layers)
    for row in describe(graph):
        layer = next(layers) if row.where == "accelerator" else None
        if layer is None or (isinstance(layer, Concat | Slice) and layer.output not in kept):
            yield row, None
            continue
        # What a layer is split into ends with the one that has its name.
        while True:
            found, own = next(left)
            yield found, own
            if own.name == layer.name:
                break


def memories(plan: Plan) -> list[Memory]:
    """How full each memory is: the feature memory where it is fullest, the others with what stays there."""
    layers, config = layer_memory(plan), plan.config.memory
    spilled = {name for layer in layers for name in layer.spilled}
    size = sum(math.prod(plan.graph.tensors[name].shape) for name in spilled)
    more = f", {size:,} bytes of tensors spilled to external memory" if spilled else ""
    found = [("feature memory", max(layer.feature_bytes for layer in layers), config.feature_bytes, more)]
    blocks = constant_blocks(plan)
    for kind in CONSTANTS:
        streamed = sum(block.size_bytes for block in blocks if block.memory is kind and block.is_streamed)
        more = f", {streamed:,} bytes streamed in every inference" if streamed else ""
        found.append((MEMORIES[kind].name, len(plan.images[kind]), config.size_bytes(kind), more))
    return found


def _cells(row: Row, report: LayerReport | None, memory: LayerMemory | None) -> tuple[str, ...]:
    where = (row.layer, row.kind, _shape(row.input_shape), _shape(row.output_shape), row.where)
    if report is None or memory is None:
        return (*where, "in place" if row.where == "accelerator" else "", "", "", "", "")
    return (*where, report.fold, f"{report.cycles:,}", report.bound, _weights(memory), _features(memory))


def _weights(memory: LayerMemory) -> str:
    """Bytes, and whether they stay."""
    size, streamed = memory.weight_bytes, memory.streamed_weight_bytes
    if not size:
        return ""
    if 0 < streamed < size:
        return f"{streamed:,} of {size:,} streamed"
    return f"{size:,} {'streamed' if streamed else 'resident'}"


def _features(memory: LayerMemory) -> str:
    """Bytes, and whether the layer's tensors are whole; if not, whether one of them is spilled to external memory."""
    return f"{memory.feature_bytes:,}" + (" spilled" if memory.spilled else " in parts" if memory.in_parts else "")


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
