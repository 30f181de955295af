"""Figures of cycles: shares of each layer, and the roofline."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from ...golden.engines import DEPTHWISE
from . import style
from .gather import Facts, LayerFacts
from .stalls import BARRIER, LOADED, REQUANTISER, RESULTS, STORED, TURNAROUND

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
