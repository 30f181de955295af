"""A page that shows a transfer table: the operator's curve, the values of the codes, and the error."""

from __future__ import annotations

import html

import numpy as np
import plotly.graph_objects as go

from ...golden.transfer.schemes import name_of
from ..report import document, style
from .table import TableFacts

_HEIGHT = 420
#: The greatest number of points without WebGL, which not every browser has.
_MOST_POINTS = 4096


def plot(facts: TableFacts) -> str:
    """Return the page as HTML."""
    operator, source, target = (
        html.escape(text) for text in (facts.operator, name_of(facts.source), name_of(facts.target))
    )
    values = facts.values()
    summary = (
        f"{values['entries']:,} entries, {values['stored_entries']:,} of them stored. The greatest error is "
        f"{values['greatest_error']:.3g} ({values['greatest_error_steps']:.3g} steps), for the input "
        f"{values['greatest_error_at']:g}; {values['saturated']:,} results lie beyond the codes and saturate."
    )
    return document.document(
        f"{operator}: {source} to {target}",
        [
            f"<h1>{operator}</h1><p>From {source} to {target}. {summary}</p>",
            document.section(
                "Curve and codes", (), "Points: what the result's codes stand for.", curve(facts), "curve"
            ),
            document.section(
                "Error", (), "What the code stands for, less the operator's result.", error(facts), "error"
            ),
        ],
    )


def curve(facts: TableFacts) -> go.Figure:
    """Draw the operator as a line, and the table's codes as points on it."""
    drawn, scatter = style.figure(height=_HEIGHT, x_title="input", y_title="result"), _scatter(facts)
    line = {"color": style.LANDING}
    drawn.add_trace(scatter(x=facts.inputs, y=facts.results, mode="lines", name="operator", line=line))
    drawn.add_trace(
        scatter(
            x=facts.inputs,
            y=facts.target.dequantise(facts.table),
            mode="markers",
            name="table",
            marker={"color": style.STEPS, "size": 4},
            customdata=np.stack([facts.source.codes.astype(int), facts.table.astype(int)], axis=1),
            hovertemplate="code %{customdata[0]} (%{x}) gives %{customdata[1]} (%{y})<extra></extra>",
        )
    )
    return drawn


def error(facts: TableFacts) -> go.Figure:
    """Draw the error of every code, in steps of the target."""
    drawn = style.figure(height=_HEIGHT, x_title="input", y_title=f"error in steps of {facts.target.scale:g}")
    drawn.add_trace(
        _scatter(facts)(
            x=facts.inputs,
            y=facts.errors / facts.target.scale,
            mode="markers",
            name="error",
            marker={"color": style.REQUANTISER, "size": 4},
            hovertemplate="input %{x}: %{y} steps<extra></extra>",
        )
    )
    return drawn


def _scatter(facts: TableFacts) -> type[go.Scatter | go.Scattergl]:
    return go.Scatter if facts.table.size <= _MOST_POINTS else go.Scattergl
