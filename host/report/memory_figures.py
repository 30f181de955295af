"""Figures of memories: the feature memory over time, the memories for constants, external memory, the tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle

import plotly.graph_objects as go

from . import style
from .gather import Facts, Use
from .occupancy import Occupant, used_bytes

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
