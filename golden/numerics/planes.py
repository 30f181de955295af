"""Maps of int8 codes of one or several samples, in planes that are read through windows.

Planes are [channels, height, width, samples]: all pixels of a channel lie side by side in memory, with the samples of
a pixel next to each other. So inner loops are long for maps of any size.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[Any]
Int8 = npt.NDArray[np.int8]
Pair = tuple[int, int]
Pads = tuple[int, int, int, int]

#: Numbers that stay in a processor's cache.
CACHED_NUMBERS = 1 << 16
#: Numbers of a part in phases, which is larger, as most of it is read one after the other.
_PARTS = 1 << 17
#: Number of windows whose geometry is kept.
_KEPT = 1024


def planes(codes: Codes) -> Codes:
    """Return a view [channels, height, width, samples] of one or more maps [..., height, width, channels]."""
    return (codes if codes.ndim > 3 else codes[np.newaxis]).transpose(3, 1, 2, 0)


def from_planes(found: Codes, dimensions: int) -> Codes:
    """Return planes as a view of one map (3 dimensions) or of several (4): the inverse of :func:`planes`."""
    maps = found.transpose(3, 1, 2, 0)
    return maps if dimensions > 3 else maps[0]


def memory_order(codes: Codes) -> list[int]:
    """Return the permutation of axes with which a transpose puts the elements in the order of memory."""
    return sorted(range(codes.ndim), key=lambda axis: -codes.strides[axis])


def tiles(size: Pair, pixels: int) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns of tiles of a map with at most so many pixels, but at least one: whole rows if they
    fit."""
    rows, columns = size
    down, parts = max(pixels // columns, 1), -(-columns // max(pixels, 1))
    ends = [columns * part // parts for part in range(parts + 1)]
    for row in range(0, rows, down):
        for first, end in itertools.pairwise(ends):
            yield slice(row, min(row + down, rows)), slice(first, end)


def copied(codes: Int8) -> Int8:
    """Return a contiguous copy of [..., samples]; the samples of a pixel are copied as one element."""
    return np.ascontiguousarray(codes.view(f"V{codes.shape[-1]}")).view(np.int8)


class PlaneWindow(NamedTuple):
    """The geometry of windows on a padded map; pairs are (vertical, horizontal)."""

    kernel: Pair
    stride: Pair
    dilation: Pair
    pads: Pads
    border: int
    #: Rows and columns of the result, and of the map with its border.
    size: Pair
    padded: Pair

    @classmethod
    @functools.lru_cache(_KEPT)
    def of(cls, size: Pair, kernel: Pair, stride: Pair, dilation: Pair, pads: Pads, border: int) -> PlaneWindow:
        """Return the windows on maps of ``size``; raise ValueError as :func:`patches`."""
        if not -128 <= border <= 127:
            raise ValueError(f"border must be between -128 and 127, not {border}")
        sizes = (("kernel", kernel, 1), ("stride", stride, 1), ("dilation", dilation, 1), ("pads", pads, 0))
        for name, value, least in sizes:
            if min(value) < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        padded = pads[0] + size[0] + pads[2], pads[1] + size[1] + pads[3]
        extent = tuple(d * (taps - 1) + 1 for taps, d in zip(kernel, dilation, strict=True))
        if extent[0] > padded[0] or extent[1] > padded[1]:
            raise ValueError(
                f"kernel must be at most the map with its borders {padded}, not {extent} with its dilation"
            )
        counts = (padded[0] - extent[0]) // stride[0] + 1, (padded[1] - extent[1]) // stride[1] + 1
        return cls(kernel, stride, dilation, pads, border, counts, padded)

    def bordered(self, stack: Codes, size: Pair | None = None) -> Codes:
        """Return planes [channels, rows, columns, samples] with their border, filled up to ``size`` if given."""
        size = size or self.padded
        if size == stack.shape[1:3]:
            return np.ascontiguousarray(stack)
        (channels, height, width, samples), (top, left, _, _) = stack.shape, self.pads
        found = np.full((channels, *size, samples), self.border, stack.dtype)
        found[:, top : top + height, left : left + width] = stack
        return found

    def seen(self, stack: Int8, groups: int) -> Int8:
        """Return a view of the codes under each tap of the kernel: [groups, kernel rows, kernel columns, channels of a
        group, rows, columns, samples]."""
        padded, channels = self.bordered(stack), len(stack) // groups
        plane, *steps, sample = padded.strides
        return np.ndarray(
            (groups, *self.kernel, channels, *self.size, stack.shape[3]),
            padded.dtype,
            padded,
            strides=(
                channels * plane,
                *(gap * step for gap, step in zip(self.dilation, steps, strict=True)),
                plane,
                *(stride * step for stride, step in zip(self.stride, steps, strict=True)),
                sample,
            ),
        )


class Phases:
    """Planes in parts, each split into its phases: every n-th row and column, where n is the stride of windows.

    Neighbours in a phase belong to neighbouring windows. So the codes under a tap of the kernel in all windows are one
    run in memory, if the columns beyond the last window count as well.

    Attributes
    ----------
    row : tuple of int
        Columns and samples of a row of a phase; results have the same columns.
    """

    def __init__(self, window: PlaneWindow, samples: int):
        self._window, (self._down, self._along) = window, window.stride
        self._height, width = (-(-whole // step) for whole, step in zip(window.padded, window.stride, strict=True))
        self.row = width, samples
        # Further rows of a phase under the last window beside its first one.
        self._more = (window.kernel[0] - 1) * window.dilation[0] // self._down

    def parts(self, stack: Int8, kind: npt.DTypeLike) -> Iterator[tuple[slice, slice, Codes]]:
        """Yield channels and rows of the result, and the phases that they are computed from: kind[channels, all
        else]."""
        (channels, _, _, samples), (width, _), rows = stack.shape, self.row, self._window.size[0]
        padded = self._window.bordered(stack, (self._height * self._down, width * self._along))
        apart = padded.reshape(channels, self._height, self._down, width, self._along, samples)
        apart = apart.transpose(0, 2, 4, 1, 3, 5)
        of_row = self._down * self._along * width * samples
        step = min(max(_PARTS // of_row - self._more, 1), rows)
        many = max(_PARTS // (of_row * (step + self._more)), 1)
        for first, row in itertools.product(range(0, channels, many), range(0, rows, step)):
            of_part = slice(first, min(first + many, channels)), slice(row, min(row + step, rows))
            taken = copied(apart[of_part[0], :, :, row : of_part[1].stop + self._more])
            yield *of_part, taken.astype(kind, copy=False).reshape(len(taken), -1)

    def run(self, rows: slice) -> int:
        """Return the length of a run for some rows of the result, up to the last window."""
        width, samples = self.row
        return ((rows.stop - rows.start - 1) * width + self._window.size[1]) * samples

    def start(self, tap: Pair, rows: slice) -> int:
        """Return the index, in a channel's phases, at which the run of a tap begins for some rows of the result."""
        (row, column), (width, samples) = (
            (place * gap for place, gap in zip(tap, self._window.dilation, strict=True)),
            self.row,
        )
        phase = row % self._down * self._along + column % self._along
        height = rows.stop - rows.start + self._more
        return ((phase * height + row // self._down) * width + column // self._along) * samples

    @classmethod
    @functools.lru_cache(_KEPT)
    def of(cls, window: PlaneWindow, samples: int) -> Phases:
        """Return the phases of windows, which are kept for the next call."""
        return cls(window, samples)

    @functools.cached_property
    def alike(self) -> list[tuple[slice, slice, Pair, Pair]]:
        """Rows and columns of the kernel whose taps read one phase, their first tap, and the distances from its run to
        those of the next row and of the next column."""
        window, (width, samples) = self._window, self.row
        pairs = [*zip(window.stride, window.dilation, strict=True)]
        down, along = (stride // math.gcd(stride, gap) for stride, gap in pairs)
        below, beside = (step * gap // stride for step, (stride, gap) in zip((down, along), pairs, strict=True))
        if beside * samples == 1:
            # Each column is separate here: ``einsum`` would choose a step along the kernel, which is no longer than one
            # along a run, for its innermost loop, which would be short.
            along = window.kernel[1]
        further = below * width * samples, beside * samples
        return [
            (slice(row, None, down), slice(column, None, along), (row, column), further)
            for row, column in np.ndindex(min(down, window.kernel[0]), min(along, window.kernel[1]))
        ]


def patches(
    codes: Codes,
    *,
    kernel: Pair,
    stride: Pair,
    dilation: Pair,
    pads: Pads,
    border: int,
    kind: npt.DTypeLike = np.int8,
) -> Codes:
    """Return the codes under the window at each position.

    Parameters
    ----------
    codes : int8[height, width, channels]
    kernel, stride, dilation : (vertical, horizontal)
    pads : (top, left, bottom, right)
    border : int
        Code of the border.
    kind : type
        Type of the result.

    Returns
    -------
    kind[output rows, output columns, kernel rows, kernel columns, channels]
        A view, which must not be written to.

    Raises
    ------
    ValueError
        If the kernel is larger than the map with its borders, a size is out of range, or the border is not an
        int8 code.
    """
    window = PlaneWindow.of(codes.shape[:2], kernel, stride, dilation, pads, border)
    height, width, channels = codes.shape
    padded = codes.astype(kind, order="C")
    if any(pads):
        padded = np.full((*window.padded, channels), border, kind)
        padded[pads[0] : pads[0] + height, pads[1] : pads[1] + width] = codes
    down, along, between = padded.strides
    # This is the result of ``as_strided``, in a tenth of its time.
    found = np.ndarray(
        (*window.size, *kernel, channels),
        padded.dtype,
        padded,
        strides=(stride[0] * down, stride[1] * along, dilation[0] * down, dilation[1] * along, between),
    )
    found.flags.writeable = False
    return found
