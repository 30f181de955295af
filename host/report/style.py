"""Colours and layout that all figures of a report share, and names as Plotly may show them."""

from __future__ import annotations

import html

import plotly.graph_objects as go

TEXT, GRID, MUTED = "#24292f", "#e6e8eb", "#6e7781"
#: Colours of the array, the requantiser's pipeline and the DMA.
STEPS, LANDING, LOAD, STORE, FILL = "#33658a", "#a8c5dd", "#4f9d69", "#d9822b", "#9a9fa6"
BARRIER = "#b5446e"
PARTIAL, RESULTS, TURNAROUND, REQUANTISER = "#86aecb", "#c9a227", "#8d6a9f", "#c8553d"
#: Colours of tensors, blocks and tables, in turn.
CYCLE = ("#33658a", "#86bbd8", "#4f9d69", "#a9d18e", "#c9a227", "#f0d58c", "#d9822b", "#c8553d", "#8d6a9f", "#c3a6d1")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def escaped(name: str) -> str:
    """Escape a name from a model, parts of which Plotly would take for markup."""
    return html.escape(name, quote=False)


def figure(*, height: int, x_title: str, y_title: str = "") -> go.Figure:
    """Create an empty figure."""
    drawn = go.Figure()
    drawn.update_layout(
        template="none",
        height=height,
        margin={"l": 8, "r": 16, "t": 64, "b": 48},
        font={"family": FONT, "size": 12, "color": TEXT},
        paper_bgcolor="white",
        plot_bgcolor="white",
        hoverlabel={"align": "left", "bgcolor": "white", "font": {"family": FONT, "color": TEXT}},
        # The legend is below the buttons that Plotly shows in the upper corner.
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal", "font": {"size": 11}},
    )
    axis = {"automargin": True, "gridcolor": GRID, "zeroline": False, "linecolor": GRID, "ticks": ""}
    drawn.update_xaxes(title={"text": x_title, "standoff": 8}, separatethousands=True, **axis)
    drawn.update_yaxes(title={"text": y_title, "standoff": 8}, **axis)
    return drawn


def rows(drawn: go.Figure, labels: list[str]) -> None:
    """Let the vertical axis count rows from the top, each with its label."""
    drawn.update_yaxes(
        tickvals=list(range(len(labels))),
        ticktext=[escaped(label) for label in labels],
        range=[len(labels) - 0.4, -0.6],
        gridcolor=GRID,
        ticklabelstandoff=6,
    )
