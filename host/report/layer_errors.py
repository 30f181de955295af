"""A page that shows which layer of a quantised network loses the accuracy."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import plotly.graph_objects as go

from ..quantize.layer_errors import LayerError, worst
from . import document, style

_ROW_HEIGHT, _HEAD_HEIGHT = 18, 140


def plot(name: str, errors: Sequence[LayerError], judges: str) -> str:
    """Return the page as HTML; ``judges`` is the word for the samples."""
    least = worst(errors)
    text = (
        "Signal-to-quantisation-noise ratio of each tensor against that of the float network, in decibels. "
        f"{html.escape(least.label)} loses most: {least.lost:.1f} dB."
    )
    return document.document(
        html.escape(f"{name}: float and int8"),
        [
            f"<h1>{html.escape(name)}: float and int8</h1><p>Measured on {html.escape(judges)}.</p>",
            document.section("Layer by layer", (), text, figure(errors), "layers"),
        ],
    )


def figure(errors: Sequence[LayerError]) -> go.Figure:
    """Draw a bar for each tensor, in order of execution; that of the layer that loses most has another colour."""
    shown = [error for error in errors if math.isfinite(error.noise)]
    least = worst(errors)
    drawn = style.figure(height=_HEAD_HEIGHT + _ROW_HEIGHT * len(shown), x_title="dB")
    drawn.add_trace(
        go.Bar(
            orientation="h",
            x=[error.noise for error in shown],
            y=list(range(len(shown))),
            marker={"color": [style.REQUANTISER if error is least else style.STEPS for error in shown]},
            customdata=[[style.escaped(error.tensor), error.lost] for error in shown],
            hovertemplate="%{customdata[0]}: %{x:.1f} dB, %{customdata[1]:.1f} dB lost here<extra></extra>",
        )
    )
    style.rows(drawn, [error.label for error in shown])
    return drawn
