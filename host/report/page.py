"""The page and its tables: one HTML file that contains everything, the plotting library too, and needs no network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from ...golden.registers import CLUSTER_REGISTERS, REGISTERS
from ...golden.units import Queue
from ..files.terminal import tables_text
from ..program import BusUse, Speed
from . import figures
from .document import MEASURED, PREDICTED, document, html_table, section, text_section
from .gather import Facts, LayerFacts
from .observe import BARRIER, WAITS

# The tables of a report.

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


def page(cores: Sequence[Facts], speed: Speed | None = None) -> str:
    """Return the report of all cores as HTML; with times in seconds, if the clock is known."""
    first = cores[0]
    name = html.escape(first.name)
    intro = (
        "One inference on the simulated accelerator with its program loaded, on the bus that cycles are predicted for: "
        "the last of the run, once more. What is <i>measured</i> comes from the simulated hardware, what is "
        "<i>predicted</i> from the compiler."
    )
    parts = [f"<h1>{name} on {html.escape(first.config_name)}</h1>", f"<p>{intro}</p>"]
    if len(cores) > 1:
        parts += _cores_parts(cores)
    # A core without a part of the network has nothing to show.
    for facts in (facts for facts in cores if facts.layers):
        if len(cores) > 1:
            parts.append(f"<h1>Core {facts.core}</h1>")
        parts += [
            _cards(facts, speed),
            *_time_parts(facts),
            *_memory_parts(facts),
            *_connection_parts(facts),
            _table_part(facts),
        ]
    return document(f"{name}: {first.observation.cycles:,} cycles on {html.escape(first.config_name)}", parts)


def _cores_parts(cores: Sequence[Facts]) -> list[str]:
    """Return the parts that compare the cores."""
    cycles, config = cores[0].observation.cycles, cores[0].config
    shared = "Each has a bus of its own."
    if config.cluster.shared_port:
        bodies = [
            {queue: [ran.command for ran in facts.observation.queue(queue)] for queue in Queue} for facts in cores
        ]
        shared = f"They share one bus: {BusUse.of(config, bodies, cycles).text}."
    return [
        section(
            f"{len(cores)} cores",
            (MEASURED,),
            f"What the array and the DMA of each core did, and where it waited for others. {shared}",
            figures.cores(cores),
            "cores",
            cores_table(cores),
        )
    ]


def _name(facts: Facts, name: str) -> str:
    """Return the name of a part of the page, which differs from core to core."""
    return f"{name}-{facts.core}" if facts.core else name


def _time_parts(facts: Facts) -> list[str]:
    """Return the parts on cycles."""
    return [
        section(
            "Timeline",
            (MEASURED,),
            "In each row the array above and the DMA below. Drag to zoom, double-click for everything; a click on "
            "<i>predicted</i> in the legend adds what the compiler expected.",
            figures.timeline(facts),
            _name(facts, "timeline"),
        ),
        section(
            "Where each layer's cycles go",
            (MEASURED,),
            "From the last step of the layer before to its own last step. <i>All multipliers</i> is the least that the "
            "array could take; steps beyond that leave lanes or columns unused, or multiply nothing (pooling, sums, "
            "tables).",
            figures.cycle_shares(facts),
            _name(facts, "shares"),
            shares_table(facts),
        ),
        text_section("Layers", (MEASURED, PREDICTED), "", layers_table(facts)),
        text_section(
            "Performance counters",
            (MEASURED,),
            "Of the whole inference. A queue stalls also while its unit is still busy with the command before.",
            counters_table(facts),
        ),
        section(
            "Roofline",
            (MEASURED,),
            "How much of the array each layer uses, and whether the bus or the array bounds it. The numbers are those "
            "of the layers, <i>+n</i> says how many more are near; layers without products are left out. Constants "
            "that stay on the chip are no traffic; what is loaded while the layer before is computed can lift a layer "
            "above the bus's ceiling.",
            figures.roofline(facts),
            _name(facts, "roofline"),
        ),
    ]


def _memory_parts(facts: Facts) -> list[str]:
    """Return the parts on memories."""
    return [
        section(
            "Feature memory",
            (MEASURED, PREDICTED),
            "Which tensor lies where, with its border: addresses from the compiler's plan, times from the run.",
            figures.feature_memory(facts),
            _name(facts, "features"),
        ),
        section(
            "Weights, parameters, tables, lists",
            (PREDICTED,),
            "What the memories for constants hold, by the layers that use it.",
            figures.constant_memories(facts),
            _name(facts, "constants"),
        ),
        section(
            "External memory",
            (PREDICTED,),
            "The arena that driver and accelerator share.",
            figures.external_memory(facts),
            _name(facts, "external"),
        ),
    ]


def _connection_parts(facts: Facts) -> list[str]:
    """Return the part on sparse connections, if there are any."""
    sparse = [layer for layer in facts.layers if layer.planned.is_sparse]
    if not sparse:
        return []
    return [
        text_section(
            "Connections that are off",
            (MEASURED, PREDICTED),
            "A <i>connection</i> is a pair of an input and an output channel with a weight, a <i>word</i> what the "
            "array reads at once for a tile of output channels; <i>cycles</i> are measured.",
            connections_table(sparse),
        )
    ]


def _table_part(facts: Facts) -> str:
    """Return the part on transfer tables."""
    if not facts.tables:
        return text_section("Transfer tables", (PREDICTED,), "This network needs none.", "")
    return section(
        "Transfer tables",
        (PREDICTED,),
        f"{tables_text(facts.functions, len(facts.tables))}: equal ones are stored once. {sharing(facts)}",
        figures.transfer_tables(facts),
        _name(facts, "tables"),
    )


def _cards(facts: Facts, speed: Speed | None) -> str:
    ran, predicted = facts.observation, facts.program.predicted_cycles
    slowest = max(facts.layers, key=lambda layer: layer.share.cycles)
    waits = {reason: sum(layer.share.waits[reason] for layer in facts.layers) for reason in WAITS}
    reason = max(waits, key=waits.get)
    cards = [
        (f"{ran.cycles:,}", f"cycles {MEASURED}, {predicted:,} {PREDICTED}"),
        (f"{facts.utilisation:.1%}", f"of {facts.config.multipliers} multipliers busy, {MEASURED}"),
        (f"{facts.macs:,}", "multiply-accumulates"),
        (f"{facts.moved_bytes:,}", "bytes over the bus, without commands"),
        (f"{sum(waits.values()) / ran.cycles:.1%}", f"of the cycles the array waits, most for: {reason}"),
        (f"{slowest.share.cycles / ran.cycles:.1%}", f"of the cycles in {slowest.label}, the longest layer"),
    ]
    if speed:
        cards.insert(1, speed.texts(ran.cycles, facts.program.batch))
    if facts.tables:
        cards.append((f"{len(facts.tables)} for {facts.functions}", "tables for transfer functions"))
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{value}</b><span>{html.escape(text)}</span></div>' for value, text in cards)
        + "</div>"
    )
