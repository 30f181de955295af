"""The page: one HTML file with everything in it, the plotting library included; it asks the network for nothing."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from ...golden.registers import REGISTERS
from ..files.phrases import tables_text
from . import figures, memory_figures, style, timeline
from .gather import Facts, LayerFacts
from .stalls import WAITS

MEASURED, PREDICTED = "measured", "predicted"
#: Whatever a model's names might smuggle in, the browser loads nothing.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
#: By name, because the library's own choice of buttons has some that lead elsewhere.
BUTTONS = [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]]
CONFIG = {"responsive": True, "displaylogo": False, "modeBarButtons": BUTTONS}
STYLE = """
:root { color: #24292f; font: 15px/1.5 FONT }
body { margin: 0 auto; max-width: 1280px; padding: 24px; background: #f6f7f8 }
h1 { font-size: 24px; margin: 0 } h2 { font-size: 18px; margin: 0 0 4px } p { margin: 4px 0 12px; color: #57606a }
section, .card { background: white; border: 1px solid #e1e4e8; border-radius: 8px }
section { padding: 16px 20px; margin-top: 20px }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 16px }
.card { padding: 10px 14px } .card b { display: block; font-size: 18px; font-weight: 600; overflow-wrap: anywhere }
.card span { color: #57606a; font-size: 13px }
.tag { font-size: 12px; font-weight: 500; border-radius: 10px; padding: 1px 8px; margin-left: 6px; vertical-align: 2px }
.measured { background: #e3eef6; color: #23516f } .predicted { background: #f1ebf5; color: #634978 }
summary { cursor: pointer; color: #57606a } .scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: 13px; width: 100% }
th, td { padding: 4px 10px; text-align: left; border-bottom: 1px solid #eaecef; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
th { color: #57606a; font-weight: 600 } tr:last-child td { border-bottom: 0 }
"""


def page(facts: Facts) -> str:
    """The report as HTML."""
    name, ran = html.escape(facts.name), facts.observation
    tables = tables_text(facts.functions, len(facts.tables))
    intro = (
        "One inference on the simulated accelerator with its program loaded, on the bus that cycles are predicted for: "
        "the last of the run, once more. What is <i>measured</i> comes from the simulated hardware, what is "
        "<i>predicted</i> from the compiler."
    )
    parts = [
        f"<h1>{name} on {html.escape(facts.config_name)}</h1>",
        f"<p>{intro}</p>",
        _cards(facts),
        section(
            "Timeline",
            (MEASURED,),
            "In each row the array above and the DMA below. Drag to zoom, double-click for everything; a click on "
            "<i>predicted</i> in the legend adds what the compiler expected.",
            timeline.timeline(facts),
            "timeline",
        ),
        section(
            "Where each layer's cycles go",
            (MEASURED,),
            "From the last step of the layer before to its own last step. <i>All multipliers</i> is the least that the "
            "array could take; steps beyond that leave lanes or columns unused, or multiply nothing (pooling, sums, "
            "tables).",
            figures.cycle_shares(facts),
            "shares",
            _shares(facts),
        ),
        _text_section("Layers", (MEASURED, PREDICTED), "", _layers(facts)),
        _text_section(
            "Performance counters",
            (MEASURED,),
            "Of the whole inference. A queue stalls also while its unit is still busy with the command before.",
            _counters(facts),
        ),
        section(
            "Roofline",
            (MEASURED,),
            "How much of the array each layer uses, and whether the bus or the array bounds it. The numbers are those "
            "of the layers, <i>+n</i> says how many more are near; layers without products are left out. Constants "
            "that stay on the chip are no traffic; what is loaded while the layer before is computed can lift a layer "
            "above the bus's ceiling.",
            figures.roofline(facts),
            "roofline",
        ),
        section(
            "Feature memory",
            (MEASURED, PREDICTED),
            "Which tensor lies where, with its border: addresses from the compiler's plan, times from the run.",
            memory_figures.feature_memory(facts),
            "features",
        ),
        section(
            "Weights, parameters, tables, lists",
            (PREDICTED,),
            "What the memories for constants hold, by the layers that use it.",
            memory_figures.constant_memories(facts),
            "constants",
        ),
        section(
            "External memory",
            (PREDICTED,),
            "The arena that driver and accelerator share.",
            memory_figures.external_memory(facts),
            "external",
        ),
    ]
    sparse = [layer for layer in facts.layers if layer.prediction.is_sparse]
    if sparse:
        parts.append(
            _text_section(
                "Connections that are off",
                (MEASURED, PREDICTED),
                "A <i>connection</i> is a pair of an input and an output channel with a weight, a <i>word</i> what the "
                "array reads at once for a tile of output channels; <i>cycles</i> are measured.",
                _connections(sparse),
            )
        )
    if facts.tables:
        parts.append(
            section(
                "Transfer tables",
                (PREDICTED,),
                f"{tables}: equal ones are stored once. {_sharing(facts)}",
                memory_figures.transfer_tables(facts),
                "tables",
            )
        )
    else:
        parts.append(_text_section("Transfer tables", (PREDICTED,), "This network needs none.", ""))
    return document(f"{name}: {ran.cycles:,} cycles on {html.escape(facts.config_name)}", parts)


def document(title: str, parts: Iterable[str]) -> str:
    """A page of its own, from its title and its parts in HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title>"
        f"<style>{STYLE.replace('FONT', style.FONT)}</style><script>{get_plotlyjs()}</script></head>\n"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _cards(facts: Facts) -> str:
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
    if facts.tables:
        cards.append((f"{len(facts.tables)} for {facts.functions}", "tables for transfer functions"))
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{value}</b><span>{html.escape(text)}</span></div>' for value, text in cards)
        + "</div>"
    )


def section(title: str, tags: Sequence[str], text: str, drawn: go.Figure, name: str, below: str = "") -> str:
    """A part with a figure; ``tags`` are of ``MEASURED`` and ``PREDICTED``, ``name`` is unique in the page."""
    chart = drawn.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=CONFIG)
    return _text_section(title, tags, text, chart + below)


def _text_section(title: str, tags: Sequence[str], text: str, body: str) -> str:
    shown = "".join(f'<span class="tag {tag}">{tag}</span>' for tag in tags)
    return f"<section><h2>{title}{shown}</h2><p>{text}</p>{body}</section>\n"


def _shares(facts: Facts) -> str:
    """The same in numbers, with what the DMA did meanwhile."""
    head = ("layer", "cycles", "steps", *(f"waits: {reason}" for reason in WAITS), "DMA in progress")
    rows = [
        (layer.label, *(f"{cycles:,}" for cycles in (share.cycles, share.steps, *share.waits.values(), share.dma)))
        for layer, share in ((layer, layer.share) for layer in facts.layers)
    ]
    table = _table(head, rows, numeric=set(range(1, len(head))))
    return f"<details><summary>in numbers, with what the DMA did meanwhile</summary>{table}</details>"


def _layers(facts: Facts) -> str:
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
            layer.prediction.name,
            layer.kind,
            layer.prediction.fold,
            f"{layer.share.cycles:,}",
            f"{layer.prediction.cycles:,}",
            f"{layer.prediction.macs:,}" if layer.prediction.macs else "",
            f"{layer.busy_multipliers / facts.config.multipliers:.1%}" if layer.prediction.macs else "",
            layer.prediction.bound,
            f"{layer.moved_bytes:,}" if layer.moved_bytes else "",
            _weights(layer),
            f"{layer.memory.feature_bytes:,}" + (" (in parts)" if layer.memory.in_parts else ""),
        )
        for index, layer in enumerate(facts.layers)
    ]
    return _table(head, rows, numeric={0, 4, 5, 6, 7, 9, 10, 11})


def _connections(layers: Iterable[LayerFacts]) -> str:
    """Of layers that leave words out: their density, that of words before and after permuting, cycles of dense ones."""
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
        found = layer.prediction
        before, after = (f"{words:,} ({words / found.dense_words:.1%})" for words in (found.model_words, found.words))
        density = f"{found.live_connections:,} ({found.live_connections / found.connections:.1%})"
        cycles = f"{layer.share.cycles:,}", f"{found.dense_cycles:,}"
        rows.append((layer.label, f"{found.connections:,}", density, f"{found.dense_words:,}", before, after, *cycles))
    return _table(head, rows, numeric=set(range(1, len(head))))


def _weights(layer: LayerFacts) -> str:
    size, streamed = layer.memory.weight_bytes, layer.memory.streamed_weight_bytes
    if 0 < streamed < size:
        return f"{size:,} ({streamed:,} streamed)"
    return f"{size:,}{' streamed' if streamed else ''}" if size else ""


def _counters(facts: Facts) -> str:
    cycles = facts.observation.cycles
    rows = [
        (
            name.upper(),
            f"{value:,}",
            "" if name.endswith("_done") else f"{value / cycles:.1%}",
            REGISTERS[name.upper()].doc,
        )
        for name, value in facts.observation.counters.items()
    ]
    return _table(("counter", "value", "of all cycles", "meaning"), rows, numeric={1, 2})


def _sharing(facts: Facts) -> str:
    users = [
        f"table {number}: {', '.join(facts.layers[index].label for index in table.layers)}"
        for number, table in enumerate(facts.tables)
    ]
    return html.escape("; ".join(users)) + "."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: set[int]) -> str:
    """Columns whose numbers are in ``numeric`` are aligned to the right."""
    kinds = ['class="n"' if column in numeric else "" for column in range(len(head))]
    lines = ["".join(f"<th {kind}>{html.escape(cell)}</th>" for cell, kind in zip(head, kinds, strict=True))]
    lines += [
        "".join(f"<td {kind}>{html.escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) for row in rows
    ]
    return '<div class="scroll"><table>' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table></div>"
