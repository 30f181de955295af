"""What `lutterfly check` says of a network: for each layer where it runs, how fast, and what memory it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...golden.isa import Opcode
from ...golden.memories import LocalMemory, constant_memories
from ...golden.program.outline import LayerOutline, LayerPrediction, Row
from ...golden.units import Queue
from ..files.phrases import tables_text
from ..program import Outcome

HEAD = ("layer", "operation", "input", "output", "where", "fold", "cycles", "bound", "weights", "features")
#: Values of a layer that the accelerator executes; null for what the host does, and for what is in place already.
_PREDICTED = (
    "fold",
    "bound",
    "macs",
    "array_cycles",
    "bus_cycles",
    "connections",
    "live_connections",
    "dense_words",
    "model_words",
    "words",
    "dense_cycles",
    "copied_bytes",
)
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


def layer_table(outcome: Outcome) -> tuple[list[tuple[str, ...]], list[dict[str, Any]]]:
    """Every operation in order of execution, the host's included: rows of text below ``HEAD``, and values for JSON."""
    table, values = [HEAD], []
    for row in outcome.outline.rows:
        places = outcome.places(row)
        # Of several cores the one that takes longest stands for all.
        prediction, needed = max(places, key=lambda place: place[0].cycles) if places else (None, None)
        table.append(_cells(row, prediction, needed, [place.cycles for place, _ in places]))
        values.append(
            {
                "name": row.name,
                "operation": row.operation,
                "where": row.where,
                "input_shape": row.input_shape,
                "output_shape": row.output_shape,
                "predicted_cycles": prediction and prediction.cycles,
                "core_cycles": [place.cycles for place, _ in places],
                **{name: prediction and getattr(prediction, name) for name in _PREDICTED},
                **{name: needed and getattr(needed, name) for name in _REMEMBERED},
            }
        )
    return table, values


def memories(outcome: Outcome) -> list[Memory]:
    """How full each memory is, of the core where it is fullest: the feature memory at any time, the others with what
    stays there."""
    size = outcome.outline.spilled_bytes
    more = f", {size:,} bytes of tensors spilled to external memory" if size else ""
    found = [("feature memory", outcome.feature_bytes, outcome.config.memory.feature_bytes, more)]
    of_cores = zip(*(core.constant_memories for core in outcome.cores), strict=True)
    for kind, of_core in zip(constant_memories(outcome.config), of_cores, strict=True):
        memory = max(of_core, key=lambda memory: memory.resident_bytes)
        streamed = max(memory.streamed_bytes for memory in of_core)
        more = f", {streamed:,} bytes streamed in every inference" if streamed else ""
        if kind is LocalMemory.TABLE and outcome.outline.transfer_functions:
            more += f", {tables_text(outcome.outline.transfer_functions, outcome.transfer_tables)}"
        found.append((memory.name, memory.resident_bytes, memory.size_bytes, more))
    return found


def copy_lines(outcome: Outcome) -> list[str]:
    """What copies cost, where there are any: elements that are not computed or read where they are wanted."""
    copies = [layer for core in outcome.cores for layer in core.program.layers if layer.copied_bytes]
    if not copies:
        return []
    cycles, all_cycles = (sum(layer.cycles for layer in layers) for layers in (copies, _all_layers(outcome)))
    moved = sum(layer.copied_bytes for layer in copies)
    text = f"copies: {cycles:,} of {all_cycles:,} cycles of layers ({cycles / all_cycles:.1%}), in {len(copies)} "
    return [f"{text}layer{'s' * (len(copies) > 1)} that move{'s' * (len(copies) == 1)} {moved:,} bytes"]


def _all_layers(outcome: Outcome) -> list[LayerPrediction]:
    return [layer for core in outcome.cores for layer in core.program.layers]


def core_values(outcome: Outcome) -> list[dict[str, int]]:
    """Predicted of each core, in cycles: until it is done, steps, waits at barriers, and beats on the bus."""
    return [
        {
            "predicted_cycles": max((command.end for queue in Queue for command in core.queue(queue)), default=0),
            "array_cycles": sum(layer.array_cycles for layer in core.program.layers),
            "bus_cycles": sum(layer.bus_cycles for layer in core.program.layers),
            "barriers": sum(command.opcode is Opcode.BARRIER for command in core.queue(Queue.DMA)),
            "barrier_cycles": sum(
                command.end - command.begin for command in core.queue(Queue.DMA) if command.opcode is Opcode.BARRIER
            ),
        }
        for core in outcome.cores
    ]


def core_lines(outcome: Outcome) -> list[str]:
    """The same in words, where there are several cores; and whether the bus that they share is what holds them up."""
    values = core_values(outcome)
    if len(values) == 1:
        return []
    lines = [
        f"core {number}: {core['predicted_cycles']:,} cycles predicted, {core['array_cycles']:,} with a step, "
        f"{core['barrier_cycles']:,} at {core['barriers']} barriers"
        for number, core in enumerate(values)
    ]
    if outcome.config.cluster.shared_port:
        lines.append(f"shared bus: {outcome.bus_use.text}")
    return lines


def _cells(
    row: Row, prediction: LayerPrediction | None, memory: LayerOutline | None, cycles: Sequence[int]
) -> tuple[str, ...]:
    where = (row.name, row.operation, _shape(row.input_shape), _shape(row.output_shape), row.where)
    if prediction is None or memory is None:
        return (*where, "in place" if row.where == "accelerator" else "", "", "", "", "")
    taken = _cycles(prediction) if len(cycles) == 1 else " / ".join(f"{count:,}" for count in cycles)
    return (*where, _fold(prediction), taken, prediction.bound, _weights(memory), _features(memory))


def _fold(layer: LayerPrediction) -> str:
    """How it reads its input, and what of its connections there is, where some are off."""
    if not layer.is_sparse:
        return layer.fold
    density = layer.live_connections / layer.connections
    before = layer.model_words / layer.dense_words
    permuted = f", {before:.0%} in the model's order" if layer.model_words != layer.words else ""
    return f"{layer.fold} for {density:.0%} of the connections{permuted}"


def _cycles(layer: LayerPrediction) -> str:
    """As predicted; and if all connections were there."""
    dense = f" of {layer.dense_cycles:,} dense" if layer.is_sparse else ""
    return f"{layer.cycles:,}{dense}"


def _weights(memory: LayerOutline) -> str:
    """Bytes, and whether they stay."""
    size, streamed = memory.weight_bytes, memory.streamed_weight_bytes
    if not size:
        return ""
    if 0 < streamed < size:
        return f"{streamed:,} of {size:,} streamed"
    return f"{size:,} {'streamed' if streamed else 'resident'}"


def _features(memory: LayerOutline) -> str:
    """Bytes, and whether the layer's tensors are whole; if not, whether one of them is spilled to external memory."""
    return f"{memory.feature_bytes:,}" + (" spilled" if memory.spilled else " in parts" if memory.in_parts else "")


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
