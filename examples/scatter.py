"""A scatter plot as SVG: series of points with their spread, over a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 700, 40, 360
#: Series stand beside one another, so that equal points are seen.
_BESIDE = 5
#: Told apart by all kinds of colour vision (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

#: x, y, and how far y spreads to each side.
Point = tuple[float, float, float]


def scatter(series: Mapping[str, Sequence[Point]], *, x_title: str, y_title: str) -> str:
    """Draw points with the spread of y.

    Parameters
    ----------
    series : mapping of str to sequence of (float, float, float)
        By the name in the legend: x, more than 0 and drawn logarithmically, y, and the spread of y. At least one point.
    x_title, y_title : str

    Returns
    -------
    str
        The SVG file.

    Raises
    ------
    ValueError
        If there are more series than colours.
    """
    if len(series) > len(COLOURS):
        raise ValueError(f"series must be at most {len(COLOURS)}, not {len(series)}")
    points = [point for own in series.values() for point in own]
    left, right = (math.log10(end) for end in (min(x for x, _, _ in points) / 1.2, max(x for x, _, _ in points) * 1.2))
    low = min(y - spread for _, y, spread in points) - 0.1
    high = max(y + spread for _, y, spread in points) + 0.1

    def across(x: float) -> float:
        return round(_LEFT + (math.log10(x) - left) / (right - left) * (_RIGHT - _LEFT), 1)

    def down(y: float) -> float:
        return round(_BOTTOM - (y - low) / (high - low) * (_BOTTOM - _TOP), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        "<style>text { font-size: 12px }</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *(_line(across(x), _TOP, across(x), _BOTTOM, "#ddd") for x in _round_numbers(10**left, 10**right)),
        *(_text(across(x), _BOTTOM + 18, f"{x:,}", "middle") for x in _round_numbers(10**left, 10**right)),
        *(_line(_LEFT, down(y), _RIGHT, down(y), "#ddd") for y in _steps(low, high)),
        *(_text(_LEFT - 8, down(y) + 4, f"{y:g}", "end") for y in _steps(low, high)),
        _text((_LEFT + _RIGHT) / 2, _BOTTOM + 40, x_title, "middle"),
        f'<g transform="rotate(-90 18 {_BOTTOM / 2})">{_text(18, _BOTTOM / 2, y_title, "middle")}</g>',
    ]
    for number, ((name, own), colour) in enumerate(zip(series.items(), COLOURS, strict=False)):
        aside = _BESIDE * (number - (len(series) - 1) / 2)
        for x, y, spread in own:
            place = round(across(x) + aside, 1)
            parts.append(_line(place, down(y - spread), place, down(y + spread), colour))
            parts.append(f'<circle cx="{place}" cy="{down(y)}" r="5" fill="{colour}"/>')
        legend = _LEFT + 10 + number * (_RIGHT - _LEFT) // len(series)
        parts.append(f'<circle cx="{legend}" cy="20" r="5" fill="{colour}"/>')
        parts.append(_text(legend + 12, 24, name, "start"))
    return "\n".join([*parts, "</svg>", ""])


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="1.5"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _round_numbers(first: float, last: float) -> list[int]:
    """1, 2 and 5 times powers of ten."""
    powers = range(math.floor(math.log10(first)), math.ceil(math.log10(last)) + 1)
    return [
        round(factor * 10**power) for power in powers for factor in (1, 2, 5) if first <= factor * 10**power <= last
    ]


def _steps(low: float, high: float) -> list[float]:
    """Every half, or every whole number where there would be many."""
    step = 0.5 if high - low < 6 else 2 ** math.ceil(math.log2((high - low) / 12))
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
