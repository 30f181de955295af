"""The timeline: when the commands of the array and of the DMA ran, in a row for each layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from . import style
from .gather import Facts
from .observe import Ran

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
