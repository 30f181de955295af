"""Sensitivity analysis: measure accuracy against multiplications for densities of stages, and propose densities.

Source: "Efficient inferencing with fast pointwise convolution", US application 16/571,760, on sensitivity analysis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...golden.numerics.butterfly import Density, Pattern

#: The densities from the lightest to the heaviest.
_ORDER = (Density.UNIT, Density.CROSS, Density.FULL)

Densities = tuple[Density, ...]


@dataclass(frozen=True)
class MeasuredDensities:
    """A list of densities and its measurements.

    Attributes
    ----------
    densities : tuple of Density
    multiplications : int
        Live multiplications of a pixel.
    accuracy : float
    change : str
        The difference from the list with which the analysis began.
    """

    densities: Densities
    multiplications: int
    accuracy: float
    change: str = ""


def analyse(pattern: Pattern, measure: Callable[[Densities], float]) -> list[MeasuredDensities]:
    """Measure a pattern, and each list of densities in which one stage is lighter or heavier by one step.

    Parameters
    ----------
    pattern : Pattern
        The pattern with which it begins.
    measure : callable
        Returns the accuracy of a trained network whose layers have these densities.

    Returns
    -------
    list of Measured
        The measurements, of which the first is that of the pattern itself.
    """
    found = [_measured(pattern, pattern.densities, measure, "")]
    for stage, density in enumerate(pattern.densities):
        for step, name in ((-1, "lighter"), (1, "heavier")):
            position = _ORDER.index(density) + step
            if 0 <= position < len(_ORDER):
                densities = _changed(pattern.densities, stage, _ORDER[position])
                found.append(_measured(pattern, densities, measure, f"stage {stage} {name}"))
    return found


def propose(
    pattern: Pattern, measured: Sequence[MeasuredDensities], measure: Callable[[Densities], float], tolerance: float
) -> list[MeasuredDensities]:
    """Make stage after stage lighter, the least sensitive one first, as long as the accuracy allows.

    Parameters
    ----------
    pattern : Pattern
    measured : sequence of MeasuredDensities
        The result of :func:`analyse`.
    measure : callable
        See :func:`analyse`.
    tolerance : float
        The accuracy that a proposal may lose against the pattern.

    Returns
    -------
    list of Measured
        Every list that was tried, in order; the last one that is within the tolerance is the proposal, and comes last.
    """
    base, *others = measured
    lighter = sorted(
        (one for one in others if one.change.endswith("lighter")), key=lambda one: one.accuracy, reverse=True
    )
    best, tried = base, []
    for one in lighter:
        (stage,) = (at for at, density in enumerate(one.densities) if density != pattern.densities[at])
        densities = _changed(best.densities, stage, one.densities[stage])
        found = (
            one if densities == one.densities else _measured(pattern, densities, measure, f"stage {stage} lighter too")
        )
        tried.append(found)
        if found.accuracy < base.accuracy - tolerance:
            break
        best = found
    return [*(one for one in tried if one is not best), best]


def plot(measured: Sequence[MeasuredDensities], path: str | Path, proposal: MeasuredDensities | None = None) -> None:
    """Write a page that shows accuracy against multiplications; the lowest and rightmost lists are not worthwhile."""
    import plotly.graph_objects as go  # noqa: PLC0415

    figure = go.Figure()
    for name, points in (("measured", measured), ("proposed", [proposal] if proposal else [])):
        if not points:
            continue
        figure.add_trace(
            go.Scatter(
                x=[point.multiplications for point in points],
                y=[100 * point.accuracy for point in points],
                text=[f"{point.change or 'unchanged'}<br>{', '.join(point.densities)}" for point in points],
                mode="markers",
                name=name,
                marker={"size": 10 if name == "measured" else 16, "symbol": "circle" if name == "measured" else "star"},
            )
        )
    figure.update_layout(
        title="Sensitivity of the stages", xaxis_title="multiplications of a pixel", yaxis_title="accuracy in percent"
    )
    figure.write_html(str(path))


def _changed(densities: Densities, stage: int, density: Density) -> Densities:
    return (*densities[:stage], density, *densities[stage + 1 :])


def _measured(
    pattern: Pattern, densities: Densities, measure: Callable[[Densities], float], change: str
) -> MeasuredDensities:
    changed = dataclasses.replace(pattern, densities=densities)
    return MeasuredDensities(densities, changed.live_multiplications, float(measure(densities)), change)
