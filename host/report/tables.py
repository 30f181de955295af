"""The tables of a report."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from ...golden.registers import CLUSTER_REGISTERS, REGISTERS
from .document import html_table
from .gather import Facts, LayerFacts
from .stalls import BARRIER, WAITS

_COUNTERS = REGISTERS | CLUSTER_REGISTERS


def shares_table(facts: Facts) -> str:
    """Return a table of the shares, with the use of the DMA meanwhile."""
    reasons = [reason for reason in WAITS if reason != BARRIER or facts.config.cores > 1]
    head = ("layer", "cycles", "steps", *(f"waits: {reason}" for reason in reasons), "DMA in progress")
    rows = []
    for layer in facts.layers:
        share = layer.share
        waits = [share.waits[reason] for reason in reasons]
        rows.append((layer.label, *(f"{cycles:,}" for cycles in (share.cycles, share.steps, *waits, share.dma))))
    table = html_table(head, rows, numeric=set(range(1, len(head))))
    return f"<details><summary>in numbers, with what the DMA did meanwhile</summary>{table}</details>"


def layers_table(facts: Facts) -> str:
    """Return a table of the layers with their cycles and bytes."""
    head = (
        "",
        "layer",
        "operation",
        "fold",
        "cycles",
        "predicted",
        "multiply-accumulates",
        "utilisation",
        "bound (predicted)",
        "bus bytes",
        "weight bytes",
        "feature bytes",
    )
    rows = [
        (
            str(index + 1),
            layer.planned.name,
            layer.planned.operation,
            layer.planned.fold,
            f"{layer.share.cycles:,}",
            f"{layer.planned.cycles:,}",
            f"{layer.planned.macs:,}" if layer.planned.macs else "",
            f"{layer.busy_multipliers / facts.config.multipliers:.1%}" if layer.planned.macs else "",
            layer.planned.bound,
            f"{layer.planned.moved_bytes:,}" if layer.planned.moved_bytes else "",
            _weights(layer),
            f"{layer.planned.feature_bytes:,}" + (" (in parts)" if layer.planned.in_parts else ""),
        )
        for index, layer in enumerate(facts.layers)
    ]
    return html_table(head, rows, numeric={0, 4, 5, 6, 7, 9, 10, 11})


def connections_table(layers: Iterable[LayerFacts]) -> str:
    """Return a table of layers that skip words: density, that of words before and after permuting, cycles if dense."""
    head = (
        "layer",
        "connections",
        "with weights",
        "words",
        "in the model's order",
        "read",
        "cycles",
        "dense (predicted)",
    )
    rows = []
    for layer in layers:
        found = layer.planned
        before, after = (f"{words:,} ({words / found.dense_words:.1%})" for words in (found.model_words, found.words))
        density = f"{found.live_connections:,} ({found.live_connections / found.connections:.1%})"
        cycles = f"{layer.share.cycles:,}", f"{found.dense_cycles:,}"
        rows.append((layer.label, f"{found.connections:,}", density, f"{found.dense_words:,}", before, after, *cycles))
    return html_table(head, rows, numeric=set(range(1, len(head))))


def _weights(layer: LayerFacts) -> str:
    size, streamed = layer.planned.weight_bytes, layer.planned.streamed_weight_bytes
    if 0 < streamed < size:
        return f"{size:,} ({streamed:,} streamed)"
    return f"{size:,}{' streamed' if streamed else ''}" if size else ""


def counters_table(facts: Facts) -> str:
    """Return a table of the performance counters, and their meaning."""
    cycles = facts.observation.cycles
    rows = [
        (
            name.upper(),
            f"{value:,}",
            "" if name.endswith("_done") else f"{value / cycles:.1%}",
            _COUNTERS[name.upper()].doc,
        )
        for name, value in facts.observation.counters.items()
    ]
    return html_table(("counter", "value", "of all cycles", "meaning"), rows, numeric={1, 2})


def sharing(facts: Facts) -> str:
    """Return a table of the transfer tables and the layers that use them."""
    users = [
        f"table {number}: {', '.join(facts.layers[index].label for index in table.layers)}"
        for number, table in enumerate(facts.tables)
    ]
    return html.escape("; ".join(users)) + "."


def cores_table(found: Sequence[Facts]) -> str:
    """Return a table of each core's work, and of its waits for others."""
    head = ("core", "cycles", "with a step", "DMA in progress", "at barriers", "utilisation", "bus bytes")
    rows = []
    for facts in found:
        counters, cycles = facts.observation.counters, facts.observation.cycles
        times = [counters[name] for name in ("compute_busy", "dma_busy", "barrier_stalled")]
        shown = (f"{time:,} ({time / cycles:.1%})" for time in times)
        rows.append(
            (str(facts.core), f"{counters['cycles']:,}", *shown, f"{facts.utilisation:.1%}", f"{facts.moved_bytes:,}")
        )
    return html_table(head, rows, numeric=set(range(len(head))))
