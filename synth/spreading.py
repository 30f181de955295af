"""Where cells have room, before anything is placed.

Springs alone pull cells onto one another. Here they are spread over the device, rectangle by rectangle, as analytic
placers do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["AREAS", "spread"]

#: Look-up tables that a cell takes or keeps others from taking, by type. Registers share a slice with logic.
AREAS = {"LUT4": 1.0, "CCU2C": 2.0, "TRELLIS_DPR16X4": 6.0, "TRELLIS_FF": 0.5}
#: Look-up tables of a tile, and how many of them are filled where cells crowd.
_TILE, _DENSITY = 8, 0.75
#: Rectangles with sides of at most so many tiles are not divided.
_LEAST_SIDE = 6

Array = NDArray[np.float64]


def spread(positions: Array, areas: Array, tiles: tuple[int, int]) -> Array:
    """Move cells apart until no part of the device holds more than fits, in the order that they have.

    Parameters
    ----------
    positions : float64[cells, 2]
        Column and row.
    areas : float64[cells]
        In look-up tables; see :data:`AREAS`.
    tiles : tuple of int
        Columns and rows of the device.

    Returns
    -------
    float64[cells, 2]
    """
    moved = positions.copy()
    rectangles = [(np.arange(len(positions)), np.zeros(2), np.array(tiles, dtype=float))]
    while rectangles:
        cells, low, high = rectangles.pop()
        axis = int(np.argmax(high - low))
        if high[axis] - low[axis] <= _LEAST_SIDE:
            moved[cells] = _stretched(moved[cells], low, high)
            continue
        middle = (low[axis] + high[axis]) / 2
        cells = cells[np.argsort(positions[cells, axis], kind="stable")]
        filled = np.cumsum(areas[cells])
        cut = int(np.searchsorted(positions[cells, axis], middle))
        if len(cells):
            room = max(_DENSITY * _TILE * float(np.prod(high - low)), float(filled[-1])) / 2
            left = float(filled[cut - 1]) if cut else 0.0
            if not filled[-1] - room <= left <= room:
                cut = int(np.searchsorted(filled, min(max(left, filled[-1] - room), room)))
        border = np.where(np.arange(2) == axis, middle, high), np.where(np.arange(2) == axis, middle, low)
        rectangles += [(cells[:cut], low, border[0]), (cells[cut:], border[1], high)]
    return moved


def _stretched(positions: Array, low: Array, high: Array) -> Array:
    """Cells that are in a rectangle stay; others are spread over it in their order, along each axis."""
    result = positions.copy()
    for axis in (0, 1):
        line = positions[:, axis]
        if len(line) and (line.min() < low[axis] or line.max() > high[axis]):
            ranks = np.empty(len(line))
            ranks[np.argsort(line, kind="stable")] = np.arange(len(line))
            result[:, axis] = low[axis] + ranks / max(len(line) - 1, 1) * (high[axis] - low[axis])
    return result
