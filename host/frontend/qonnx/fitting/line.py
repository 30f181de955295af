"""The line on which numbers lie that rise or fall with a sum, where nothing has cut them off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: Part of the range beside either end in which numbers count as cut off: more than float32 makes equal ones differ.
_BESIDE = 2.0**-16
#: A step that is at least this part of the steepest one is not cut off either.
_WHOLE = 0.99


@dataclass(frozen=True)
class Line:
    """``slope * sum + at_zero``."""

    slope: float
    at_zero: float

    def departure(
        self, sums: npt.NDArray[np.int64], real: npt.NDArray[np.float64], limits: tuple[float, float]
    ) -> float:
        """How far a number is from the line at most, both cut off at the limits and where the numbers are."""
        ends = max(limits[0], real.min()), min(limits[1], real.max())
        return float(np.abs(np.clip(self.slope * sums + self.at_zero, *ends) - np.clip(real, *ends)).max())


def find_line(sums: npt.NDArray[np.int64], real: npt.NDArray[np.float64]) -> Line:
    """Fit a line to what is not cut off, by least squares.

    Parameters
    ----------
    sums : int64[n]
        Rising.
    real : float64[n]
        Computed in float32. What that rounds may be some per cent of a step from one sum to the next, or all of it; of
        the whole range it is nothing.
    """
    sums, real = _uncut(sums, real)
    middle, level = sums.mean(), real.mean()
    across = sums - middle
    square = across @ across
    slope = float(across @ (real - level) / square) if square else 0.0
    return Line(slope, float(level - slope * middle))


def _uncut(
    sums: npt.NDArray[np.int64], real: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The sums whose numbers are not cut off, and the numbers."""
    low, high = real.min(), real.max()
    margin = (high - low) * _BESIDE
    inside = np.flatnonzero((real > low + margin) & (real < high - margin))
    if len(inside) < 2:
        # Relu and limits leave a step or two. What is cut in part is less steep.
        slopes = np.abs(np.diff(real) / np.diff(sums))
        whole = np.flatnonzero(slopes >= slopes.max(initial=0) * _WHOLE)
        inside = np.union1d(whole, whole + 1) if len(whole) else np.array([0])
    return sums[inside], real[inside]
