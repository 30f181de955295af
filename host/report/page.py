"""The page: one HTML file that contains everything, including the plotting library, and needs no network."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ...golden.units import Queue
from ..files.terminal import tables_text
from ..program import BusUse, Speed
from . import figures, memory_figures, timeline
from .document import MEASURED, PREDICTED, document, section, text_section
from .gather import Facts
from .stalls import WAITS
from .tables import connections_table, cores_table, counters_table, layers_table, shares_table, sharing


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
            timeline.cores(cores),
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
            timeline.timeline(facts),
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
            memory_figures.feature_memory(facts),
            _name(facts, "features"),
        ),
        section(
            "Weights, parameters, tables, lists",
            (PREDICTED,),
            "What the memories for constants hold, by the layers that use it.",
            memory_figures.constant_memories(facts),
            _name(facts, "constants"),
        ),
        section(
            "External memory",
            (PREDICTED,),
            "The arena that driver and accelerator share.",
            memory_figures.external_memory(facts),
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
        memory_figures.transfer_tables(facts),
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
