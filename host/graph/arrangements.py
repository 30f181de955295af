"""Arrangements: what nearest upsampling, depth to space, space to depth and crops move where."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .boxes.pieces import MOST_PIECES, pieces_of
from .boxes.runs import channel_runs
from .channels import Selection
from .kinds.arrange import Arrange
from .kinds.rearrange import Rearrange
from .phase import Phase
from .tensor import Shape
from .window import Window

__all__ = ["MOST_PIECES", "arrange", "crop", "depth_to_space", "nearest", "phases", "space_to_depth"]


def phases(factors: tuple[int, int]) -> list[Phase]:
    """All phases of a map, row by row, of which each has every so many-th row and column."""
    return [Phase(row, column, factors) for row, column in itertools.product(*map(range, factors))]


def nearest(name: str, source: str, output: str, shape: Shape, factors: tuple[int, int]) -> Rearrange:
    """Every pixel repeated, by whole factors down and across, from an input of ``shape``."""
    pieces = tuple(Selection(0, 0, shape[2], 0, written=phase) for phase in phases(factors))
    return Rearrange(name, (source,), output, "nearest upsampling", pieces, window=Window((1, 1), up=factors))


def depth_to_space(
    name: str, source: str, output: str, shape: Shape, block: tuple[int, int], *, phases_first: bool
) -> Rearrange:
    """Channels of an input of ``shape`` become pixels.

    Parameters
    ----------
    name, source, output : str
    shape : tuple of int
    block : tuple of int
        Rows and columns that each row and column becomes.
    phases_first : bool
        Whether the channels of each pixel lie side by side (DCR), instead of the pixels of each channel (CRD).
    """
    found = phases(block)
    channels = shape[2] // len(found)
    pieces = tuple(
        Selection(0, number * channels, channels, 0, written=phase)
        if phases_first
        else Selection(0, number, channels, 0, step=len(found), written=phase)
        for number, phase in enumerate(found)
    )
    return Rearrange(name, (source,), output, "depth to space", pieces, window=Window((1, 1), up=block))


def space_to_depth(name: str, source: str, output: str, shape: Shape, block: tuple[int, int]) -> Rearrange:
    """Pixels of an input of ``shape`` become channels, those of each pixel side by side."""
    pieces = tuple(
        Selection(0, 0, shape[2], number * shape[2], read=phase) for number, phase in enumerate(phases(block))
    )
    return Rearrange(name, (source,), output, "space to depth", pieces, window=Window(block, block))


def crop(name: str, source: str, output: str, shape: Shape, pads: tuple[int, int, int, int]) -> Rearrange:
    """Some rows and columns of an input of ``shape``: those behind ``pads`` (top, left, bottom, right)."""
    window = Window((1, 1), pads=tuple(-side for side in pads))
    piece = Selection(0, 0, shape[2], 0, read=Phase(pads[0], pads[1]))
    return Rearrange(name, (source,), output, "crop", (piece,), window=window)


def arrange(
    name: str, title: str, sources: Sequence[str], output: str, shapes: Sequence[Shape], moved: npt.NDArray[np.int64]
) -> Arrange | None:
    """Any arrangement of the elements of inputs; None where it takes too many pieces.

    Parameters
    ----------
    name, title : str
        Of the layer, and what it is called; by default a shuffle, where pixels stay where they are.
    sources : sequence of str
    output : str
    shapes : sequence of tuple
        Of the inputs.
    moved : int64[height, width, channels]
        As :func:`~lutterfly.host.graph.boxes.pieces.pieces_of` takes it.
    """
    channels = _shuffled(shapes, moved)
    if channels is not None:
        runs = channel_runs(np.arange(len(channels)), channels)
        pieces = [
            Selection(0, taken[0], len(targets), targets[0], step=taken.step, spread=targets.step)
            for targets, taken in runs
        ]
        return Arrange(name, tuple(sources), output, title or "shuffle", tuple(pieces))
    pieces = pieces_of(shapes, moved)
    if pieces is None:
        return None
    window = _window(shapes, moved.shape, pieces)
    return Arrange(name, tuple(sources), output, title or "arrangement", tuple(pieces), window=window)


def _shuffled(shapes: Sequence[Shape], moved: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """Which channel of the only input each of the output is, if all pixels stay where they are."""
    (height, width, channels), first = shapes[0], moved[0, 0]
    pixels = np.arange(height * width).reshape(height, width, 1) * channels
    is_inside = len(shapes) == 1 and moved.shape[:2] == (height, width) and first.min() >= 0 and first.max() < channels
    return first if is_inside and np.array_equal(moved, pixels + first) else None


def _window(shapes: Sequence[Shape], target: Shape, pieces: Sequence[Selection]) -> Window:
    """What the rows and columns of the output are computed of: neighbours, or all where that is not less."""
    sizes = [max(shape[axis] for shape in shapes) for axis in range(2)]
    if any(shape[:2] != shapes[0][:2] for shape in shapes):
        found = [_Side(size, 1, 0, target[axis]) for axis, size in enumerate(sizes)]
    else:
        found = [_side(axis, size, target, pieces) for axis, size in enumerate(sizes)]
    before = [side.before for side in found]
    after = [
        (target[axis] // side.up - 1) * side.stride + side.kernel - shapes[0][axis] - side.before
        for axis, side in enumerate(found)
    ]
    kernel, stride, up = (tuple(sides) for sides in zip(*(side[:2] + side[3:] for side in found), strict=True))
    return Window(kernel, stride, pads=(*before, *after), up=up)


class _Side(NamedTuple):
    """A window along one axis."""

    kernel: int
    stride: int
    before: int
    up: int


def _side(axis: int, size: int, target: Shape, pieces: Sequence[Selection]) -> _Side:
    """The smallest kernel whose windows reach what each row or column of the output is computed of."""
    outputs = target[axis]
    least, most = np.full(outputs, size), np.full(outputs, -1)
    for part in pieces:
        if part.code is not None:
            continue
        rows, columns = part.within(range(target[0]), range(target[1]))
        found = part.elements(rows, columns)[axis]
        others = tuple(other for other in range(3) if other != axis)
        whole = np.broadcast_to(found, (len(rows), len(columns), part.channels))
        own = [part.written.rows(rows), part.written.columns(columns)][axis]
        least[own] = np.minimum(least[own], whole.min(axis=others))
        most[own] = np.maximum(most[own], whole.max(axis=others))
    best, taken = _Side(size, 1, 0, outputs), np.flatnonzero(most >= 0)
    if not taken.size:
        return best
    for stride, up in ((1, 1), (max(size // outputs, 1), 1), (1, max(outputs // size, 1))):
        at = np.arange(outputs) // up * stride
        first, last = int((least - at)[taken].min()), int((most - at)[taken].max())
        if outputs % up == 0 and last - first + 1 < best.kernel:
            best = _Side(last - first + 1, stride, -first, up)
    return best
