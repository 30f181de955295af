"""The figures of a report: the cycles of each layer, the roofline, the timeline, the memories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import plotly.graph_objects as go

from ...golden.engines import DEPTHWISE
from . import style
from .gather import Facts, LayerFacts, Use
from .observe import BARRIER, LOADED, REQUANTISER, RESULTS, STORED, TURNAROUND, Occupant, Ran, used_bytes

# Figures of cycles: shares of each layer, and the roofline.

FULL, PARTIAL = "all multipliers", "steps beyond that"
#: Reasons in the order in which they are drawn.
WAITS = (
    (BARRIER, "waits: other cores", style.BARRIER),
    (LOADED, "waits: LOAD or FILL", style.LOAD),
    (STORED, "waits: STORE", style.STORE),
    (RESULTS, "waits: earlier results", style.RESULTS),
    (REQUANTISER, "waits: requantiser", style.REQUANTISER),
    (TURNAROUND, "waits: command turnaround", style.TURNAROUND),
)
AFTER = "after the last step"
#: The distance below which points of the roofline share a label: the size of a label, as parts of the axes.
_NEAR = (0.04, 0.055)


def cycle_shares(facts: Facts) -> go.Figure:
    """Draw the use of each layer's cycles, stacked."""
    labels = [*(layer.label for layer in facts.layers), AFTER]
    drawn = style.figure(height=150 + 24 * len(labels), x_title="cycles (measured)")
    style.rows(drawn, labels)
    full = [ideal_cycles(facts, layer) for layer in facts.layers]
    parts = [
        (FULL, style.STEPS, full),
        (PARTIAL, style.PARTIAL, [layer.share.steps - ideal for layer, ideal in zip(facts.layers, full, strict=True)]),
        *((name, colour, [layer.share.waits[reason] for layer in facts.layers]) for reason, name, colour in WAITS),
    ]
    rows = list(range(len(facts.layers)))
    for name, colour, cycles in parts:
        if any(cycles):
            drawn.add_trace(_stacked(name, colour, rows, cycles))
    after = facts.observation.cycles - facts.layers[-1].share.end
    drawn.add_trace(_stacked("last results are written back, outputs are stored", style.MUTED, [len(rows)], [after]))
    buttons = [
        {"label": label, "method": "relayout", "args": [{"barnorm": norm, "xaxis.title.text": title}]}
        for label, norm, title in (
            ("cycles", "", "cycles (measured)"),
            ("per cent", "percent", "per cent of the layer's cycles (measured)"),
        )
    ]
    drawn.update_layout(
        barmode="stack",
        bargap=0.3,
        updatemenus=[
            {
                "type": "buttons",
                "direction": "right",
                "buttons": buttons,
                "x": 1,
                "xanchor": "right",
                "y": 0,
                "yanchor": "top",
                "pad": {"t": 34},
                "bgcolor": "white",
                "bordercolor": style.GRID,
            }
        ],
        margin={"b": 84},
    )
    return drawn


def ideal_cycles(facts: Facts, layer: LayerFacts) -> float:
    """Return the cycles in which all multipliers together could do a layer's multiply-accumulates."""
    return layer.planned.multiplier_cycles / facts.config.multipliers


def _stacked(name: str, colour: str, rows: list[int], cycles: list[float]) -> go.Bar:
    return go.Bar(
        name=name,
        orientation="h",
        y=rows,
        x=cycles,
        marker={"color": colour},
        hovertemplate=f"{name}: %{{x:,.0f}}<extra></extra>",
    )


def roofline(facts: Facts) -> go.Figure:
    """Draw multiply-accumulates per cycle over multiply-accumulates per byte moved, with the configuration's ceilings.

    Layers that move nothing over the bus are on the right, in the order of execution.
    """
    layers = [(index + 1, layer) for index, layer in enumerate(facts.layers) if layer.planned.macs]
    array, bus = facts.config.multipliers, facts.config.axi.data_bytes
    moving = [
        (number, layer, layer.planned.macs / layer.planned.moved_bytes)
        for number, layer in layers
        if layer.planned.moved_bytes
    ]
    staying = [(number, layer) for number, layer in layers if not layer.planned.moved_bytes]
    whole = facts.macs / max(facts.moved_bytes, 1)
    ridge = array / bus
    low = min([ridge, whole, *(intensity for *_, intensity in moving)]) / 4
    high = max([ridge, whole, *(intensity for *_, intensity in moving)]) * 4
    bottom = min([1, *(layer.macs_per_cycle for _, layer in layers)]) / 2
    drawn = style.figure(
        height=460,
        x_title="multiply-accumulates per byte moved over the bus (logarithmic)",
        y_title="multiply-accumulates per cycle (measured, logarithmic)",
    )
    band = high * (high / low) ** 0.45 if staying else high
    _ceilings(drawn, facts, low, ridge, band, is_depthwise=any(layer.planned.is_depthwise for _, layer in layers))
    top = 1.8 * max(array, *(array * layer.planned.at_once for _, layer in layers))
    near = _NEAR[0] * math.log(band / low), _NEAR[1] * math.log(top / bottom)
    # It is drawn below the layers, so that it hides none of them.
    drawn.add_trace(
        go.Scatter(
            name="whole network",
            x=[whole],
            y=[facts.macs / facts.observation.cycles],
            mode="markers",
            marker={"symbol": "diamond", "size": 14, "color": style.REQUANTISER},
            hovertemplate=(
                "whole network<br>%{y:.1f} multiply-accumulates per cycle<br>%{x:,.1f} per byte<extra></extra>"
            ),
        )
    )
    if staying:
        places = _draw_band(drawn, high, band, len(staying))
        drawn.add_trace(_points("layers without bus traffic", style.PARTIAL, staying, places, near))
    if moving:
        drawn.add_trace(
            _points(
                "layers", style.STEPS, [entry[:2] for entry in moving], [intensity for *_, intensity in moving], near
            )
        )
    ticks = [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    drawn.update_xaxes(
        type="log",
        range=[math.log10(low), math.log10(band)],
        tickvals=ticks,
        ticktext=[f"{tick:,.10g}" for tick in ticks],
    )
    drawn.update_yaxes(type="log", range=[math.log10(bottom), math.log10(top)], dtick=1)
    return drawn


def _draw_band(drawn: go.Figure, low: float, high: float, count: int) -> list[float]:
    """Draw the band of layers that move nothing; return places in it, evenly spaced so that no point hides another."""
    drawn.add_vrect(
        x0=low,
        x1=high,
        fillcolor="#f3f4f6",
        line_width=0,
        layer="below",
        annotation={"text": "no bus traffic", "font": {"color": style.MUTED}},
        annotation_position="bottom",
    )
    return [low * (high / low) ** ((place + 0.5) / count) for place in range(count)]


def _ceilings(drawn: go.Figure, facts: Facts, low: float, ridge: float, high: float, *, is_depthwise: bool) -> None:
    config = facts.config
    array, bus, lanes = config.multipliers, config.axi.data_bytes, config.array.lanes
    lines = [
        (f"array: {array} multipliers", [ridge, high], [array, array], "solid"),
        (f"bus: {bus} bytes per cycle", [low, ridge], [low * bus, array], "dash"),
    ]
    for at_once in {layer.planned.at_once for layer in facts.layers} - {1}:
        binary = at_once * array
        lines.append((f"binary: {at_once} x {array}", [binary / bus, high], [binary, binary], "dashdot"))
    if is_depthwise and DEPTHWISE in config.engines:
        own = config.engines[DEPTHWISE]
        most, rows = lanes * own.taps * own.chains, "" if own.chains == 1 else f" x {own.chains} rows"
        if most < array:
            lines.append((f"depthwise: {lanes} lanes x {own.taps} taps{rows}", [most / bus, high], [most, most], "dot"))
    for name, x, y, dash in lines:
        drawn.add_trace(
            go.Scatter(
                name=name,
                x=x,
                y=y,
                mode="lines",
                line={"color": style.TEXT, "width": 1.5, "dash": dash},
                hoverinfo="name",
            )
        )


def _numbers(points: list[tuple[int, float, float]], near: tuple[float, float]) -> list[str]:
    """Return the label of each point (number, x, y): for points close together, the first and the number of others.

    ``near`` is the greatest distance of such points along each axis, as logarithms.
    """
    groups: list[tuple[float, float, list[int]]] = []
    texts = []
    for number, x, y in points:
        close = (
            group for group in groups if abs(math.log(x / group[0])) < near[0] and abs(math.log(y / group[1])) < near[1]
        )
        group = next(close, None)
        if group is None:
            group = (x, y, [])
            groups.append(group)
        group[2].append(number)
        texts.append(group)
    return [_label(number, group[2]) for (number, _, _), group in zip(points, texts, strict=True)]


def _label(number: int, group: list[int]) -> str:
    if number != group[0]:
        return ""
    return f"{number} +{len(group) - 1}" if len(group) > 1 else str(number)


def _points(
    name: str, colour: str, layers: list[tuple[int, LayerFacts]], places: list[float], near: tuple[float, float]
) -> go.Scatter:
    heights = [layer.macs_per_cycle for _, layer in layers]
    return go.Scatter(
        name=name,
        x=places,
        y=heights,
        mode="markers+text",
        text=_numbers([(number, x, y) for (number, _), x, y in zip(layers, places, heights, strict=True)], near),
        textposition="top center",
        cliponaxis=False,
        marker={"size": 10, "color": colour, "line": {"color": "white", "width": 1}},
        customdata=[(style.escaped(layer.label), layer.planned.moved_bytes) for _, layer in layers],
        hovertemplate=(
            "%{customdata[0]}<br>%{y:.1f} multiply-accumulates per cycle<br>%{customdata[1]:,} bytes moved"
            "<extra></extra>"
        ),
    )


# The timeline: when the commands of the array and of the DMA ran, in a row for each layer.

#: The number of bars that a page draws without delay; if there are more, neighbours of one layer and kind are joined.
MOST_BARS = 4000
ARRAY_ROW, DMA_ROW = "all: array", "all: DMA"


@dataclass(frozen=True, slots=True)
class Bar:
    """A range of cycles in a row: ``count`` commands, whose kind is in ``text``."""

    row: int
    begin: int
    end: int
    count: int
    text: str


def timeline(facts: Facts) -> go.Figure:
    """Draw every command as it ran and, where the reader asks for it, as predicted."""
    labels = [ARRAY_ROW, DMA_ROW, *(layer.label for layer in facts.layers)]
    drawn = style.figure(height=110 + 26 * len(labels), x_title="cycles from the start of the run (measured)")
    style.rows(drawn, labels)
    ran, cycles = facts.observation, facts.observation.cycles
    kinds = (
        # Results are written back while the next command takes steps, whose bars are drawn over them.
        ("results are written back", style.LANDING, -0.4, 0.42, _landing(ran.compute)),
        ("array takes steps", style.STEPS, -0.4, 0.42, _bars(ran.compute, 0, cycles, until_issued=True)),
        ("LOAD", style.LOAD, 0.06, 0.3, _bars((r for r in ran.dma if r.kind == "LOAD"), 1, cycles)),
        ("STORE", style.STORE, 0.06, 0.3, _bars((r for r in ran.dma if r.kind == "STORE"), 1, cycles)),
        ("FILL (borders)", style.FILL, 0.06, 0.3, _bars((r for r in ran.dma if r.kind == "FILL"), 1, cycles)),
        ("BARRIER", style.BARRIER, 0.06, 0.3, _bars((r for r in ran.dma if r.kind == "BARRIER"), 1, cycles)),
    )
    for name, colour, offset, width, found in kinds:
        bars = list(found)
        if bars or name != "BARRIER":
            drawn.add_trace(_trace(name, colour, offset, width, bars))
    predicted = [
        Bar(2 + r.command.layer, r.command.begin, r.command.end, 1, f"{r.kind} {r.index}, predicted")
        for r in (*ran.compute, *ran.dma)
        if r.command.layer is not None
    ]
    hidden = _trace("predicted", style.MUTED, 0.38, 0.08, _joined(predicted, cycles))
    hidden.visible = "legendonly"
    drawn.add_trace(hidden)
    drawn.update_layout(barmode="overlay", bargap=0)
    drawn.update_xaxes(range=[0, cycles])
    drawn.update_yaxes(showgrid=False)
    return drawn


def cores(found: Sequence[Facts]) -> go.Figure:
    """Draw each core in a row for its array and one for its DMA: steps, transfers, and waits at barriers."""
    labels = [f"core {facts.core}: {unit}" for facts in found for unit in ("array", "DMA")]
    drawn = style.figure(height=110 + 26 * len(labels), x_title="cycles from the start of the run (measured)")
    style.rows(drawn, labels)
    kinds = {"LOAD": style.LOAD, "STORE": style.STORE, "FILL": style.FILL, "BARRIER": style.BARRIER}
    bars: dict[str, list[Bar]] = {"steps": [], **{kind: [] for kind in kinds}}
    for row, facts in enumerate(found):
        ran = facts.observation
        bars["steps"] += [Bar(2 * row, r.begin, r.issued, 1, f"{r.kind} {r.index}") for r in ran.compute]
        for r in ran.dma:
            bars[r.kind].append(Bar(2 * row + 1, r.begin, r.end, 1, f"{r.kind} {r.index}"))
    cycles = found[0].observation.cycles
    for name, colour in {"steps": style.STEPS, **kinds}.items():
        drawn.add_trace(_trace(name, colour, -0.3, 0.6, _joined(bars[name], cycles)))
    drawn.update_layout(barmode="overlay", bargap=0)
    drawn.update_xaxes(range=[0, cycles])
    drawn.update_yaxes(showgrid=False)
    return drawn


def _bars(commands: Iterable[Ran], row: int, cycles: int, *, until_issued: bool = False) -> Iterator[Bar]:
    """Return bars of each command in its layer's row and in its unit's row."""
    found = []
    for ran in commands:
        end = ran.issued if until_issued else ran.end
        text = f"{ran.kind} {ran.index}"
        found.append(Bar(row, ran.begin, end, 1, text))
        if ran.command.layer is not None:
            found.append(Bar(2 + ran.command.layer, ran.begin, end, 1, text))
    yield from _joined(found, cycles)


def _landing(commands: Iterable[Ran]) -> Iterator[Bar]:
    for ran in commands:
        yield Bar(2 + ran.command.layer, ran.issued, ran.end, 1, f"results of COMPUTE {ran.index}")


def _joined(bars: list[Bar], cycles: int) -> list[Bar]:
    """Return the bars, with neighbours in a row joined where the gap is too small to be seen."""
    if len(bars) <= MOST_BARS:
        return bars
    gap, joined = cycles // 2000, dict[int, list[Bar]]()
    for bar in bars:
        row = joined.setdefault(bar.row, [])
        if row and bar.begin - row[-1].end <= gap:
            before = row.pop()
            text = f"{before.text.split(' to ')[0]} to {bar.text}"
            bar = Bar(bar.row, before.begin, max(before.end, bar.end), before.count + bar.count, text)  # noqa: PLW2901
        row.append(bar)
    return [bar for row in joined.values() for bar in row]


def _trace(name: str, colour: str, offset: float, width: float, bars: list[Bar]) -> go.Bar:
    return go.Bar(
        name=name,
        orientation="h",
        y=[bar.row for bar in bars],
        base=[bar.begin for bar in bars],
        x=[bar.end - bar.begin for bar in bars],
        offset=offset,
        width=width,
        # With an edge of the same colour, bars narrower than a pixel are visible too.
        marker={"color": colour, "line": {"color": colour, "width": 0.7}},
        customdata=[(bar.text, bar.begin, bar.end, bar.end - bar.begin) for bar in bars],
        hovertemplate=(
            "%{customdata[0]}<br>cycles %{customdata[1]:,} to %{customdata[2]:,} (%{customdata[3]:,})<extra></extra>"
        ),
    )


# Figures of memories: the feature memory over time, the memories for constants, external memory, the tables.

FREE = "#f3f4f6"
#: Tensors that are stored for a smaller share of the run are drawn without an edge, which would be wider than they.
_THIN = 1 / 400


def feature_memory(facts: Facts) -> go.Figure:
    """Draw the address range of each tensor over time; above, the number of used bytes."""
    found, size = facts.occupants, facts.config.memory.feature_bytes
    top = max((occupant.address + occupant.size_bytes for occupant in found), default=0)
    # In a memory that is hardly used the contents would be too small to be seen.
    limit = size if 4 * top >= size else top
    drawn = style.figure(height=560, x_title="cycles from the start of the run (measured)")
    drawn.update_layout(
        barmode="overlay",
        uniformtext={"minsize": 9, "mode": "hide"},
        yaxis={"domain": [0, 0.72], "range": [0, 1.06 * limit], "title": {"text": "address in bytes (the compiler's)"}},
        yaxis2={
            "domain": [0.8, 1],
            "range": [0, 1.15 * limit],
            "title": {"text": "bytes taken", "standoff": 8},
            "automargin": True,
            "gridcolor": style.GRID,
            "zeroline": False,
            "ticks": "",
            "nticks": 4,
        },
        xaxis={"range": [0, facts.observation.cycles], "anchor": "y"},
    )
    drawn.add_trace(_rectangles(found, facts.observation.cycles))
    levels = used_bytes(found)
    drawn.add_trace(
        go.Scatter(
            x=list(levels),
            y=list(levels.values()),
            yaxis="y2",
            mode="lines",
            fill="tozeroy",
            fillcolor=style.LANDING,
            line={"shape": "hv", "color": style.STEPS, "width": 1},
            showlegend=False,
            hovertemplate="cycle %{x:,}: %{y:,} bytes taken<extra></extra>",
        )
    )
    _mark_size(drawn, size, ("y", "y2") if limit == size else ())
    drawn.update_yaxes(tickformat=",")
    return drawn


def _mark_size(drawn: go.Figure, size: int, axes: Iterable[str]) -> None:
    """Mark the size of the memory: as text, and as a line where it fits the axis."""
    for axis in axes:
        drawn.add_shape(
            type="line",
            x0=0,
            x1=1,
            xref="paper",
            y0=size,
            y1=size,
            yref=axis,
            line={"color": style.REQUANTISER, "dash": "dash", "width": 1},
        )
    drawn.add_annotation(
        x=1,
        xref="paper",
        xanchor="right",
        y=1,
        yref="paper",
        yanchor="bottom",
        showarrow=False,
        text=f"of {size:,} bytes",
        font={"color": style.REQUANTISER},
    )


def _rectangles(found: Sequence[Occupant], cycles: int) -> go.Bar:
    names = dict.fromkeys(occupant.tensor for occupant in found)
    colours = dict(zip(names, cycle(style.CYCLE), strict=False))
    return go.Bar(
        orientation="h",
        y=[occupant.address + occupant.size_bytes / 2 for occupant in found],
        width=[occupant.size_bytes for occupant in found],
        base=[occupant.begin for occupant in found],
        x=[occupant.end - occupant.begin for occupant in found],
        marker={
            "color": [colours[occupant.tensor] for occupant in found],
            "line": {
                "color": "white",
                "width": [0 if occupant.end - occupant.begin < _THIN * cycles else 0.5 for occupant in found],
            },
        },
        text=[style.escaped(occupant.tensor) for occupant in found],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        customdata=[
            (
                style.escaped(occupant.tensor),
                "" if occupant.is_whole else " (a part)",
                occupant.size_bytes,
                occupant.address,
                occupant.begin,
                occupant.end,
            )
            for occupant in found
        ],
        hovertemplate=(
            "%{customdata[0]}%{customdata[1]}<br>%{customdata[2]:,} bytes at %{customdata[3]:,}<br>"
            "cycles %{customdata[4]:,} to %{customdata[5]:,}<extra></extra>"
        ),
        showlegend=False,
    )


def constant_memories(facts: Facts) -> go.Figure:
    """Draw the use of each memory for constants, by contents."""
    return _uses(list(facts.constants), "per cent of the memory (the compiler's plan)")


def external_memory(facts: Facts) -> go.Figure:
    """Draw the contents of the arena."""
    return _uses([facts.external], "per cent of the arena (the compiler's plan)")


def _uses(uses: list[Use], title: str) -> go.Figure:
    drawn = style.figure(height=128 + 44 * len(uses), x_title=title)
    style.rows(
        drawn,
        [f"{use.name}, {use.used:,}" + (f" of {use.capacity:,}" if use.capacity else "") + " bytes" for use in uses],
    )
    for row, use in enumerate(uses):
        whole, colours = use.capacity or use.used, cycle(style.CYCLE)
        parts = [(name, size, next(colours)) for name, size in use.parts.items()]
        if use.capacity:
            parts.append(("free", use.capacity - use.used, FREE))
        for name, size, colour in parts:
            if size:
                shown = 100 * size / whole
                drawn.add_trace(
                    go.Bar(
                        orientation="h",
                        y=[row],
                        x=[shown],
                        marker={"color": colour, "line": {"color": "white", "width": 0.5}},
                        text=[style.escaped(name)],
                        textposition="inside",
                        insidetextanchor="middle",
                        textangle=0,
                        customdata=[(_wrapped(style.escaped(name)), size)],
                        hovertemplate="%{customdata[0]}<br>%{customdata[1]:,} bytes, %{x:.1f} %<extra></extra>",
                        showlegend=False,
                    )
                )
    drawn.update_layout(barmode="stack", bargap=0.25, uniformtext={"minsize": 9, "mode": "hide"}, margin={"t": 40})
    drawn.update_xaxes(range=[0, 100])
    return drawn


def transfer_tables(facts: Facts) -> go.Figure:
    """Draw each table as a function."""
    drawn = style.figure(height=380, x_title="code in (int8)", y_title="code out (int8)")
    codes = list(range(-128, 128))
    for number, (table, colour) in enumerate(zip(facts.tables, cycle(style.CYCLE), strict=False)):
        users = ", ".join(facts.layers[index].label for index in table.layers)
        drawn.add_trace(
            go.Scatter(
                name=f"table {number}",
                x=codes,
                y=table.codes.tolist(),
                mode="lines",
                line={"color": colour, "shape": "hvh", "width": 1.5},
                customdata=[_wrapped(style.escaped(users))] * len(codes),
                hovertemplate=f"table {number}: %{{x}} to %{{y}}<br>%{{customdata}}<extra></extra>",
            )
        )
    drawn.update_layout(showlegend=True)
    drawn.update_xaxes(range=[-132, 132])
    drawn.update_yaxes(range=[-132, 132])
    return drawn


def _wrapped(names: str) -> str:
    """Break many names into several lines."""
    words = names.split(", ")
    return "<br>".join(", ".join(words[start : start + 4]) for start in range(0, len(words), 4))
