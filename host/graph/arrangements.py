"""Arrangements: what nearest upsampling, depth to space, space to depth and crops move where."""

from __future__ import annotations

import itertools

from .channels import Selection
from .kinds.rearrange import Rearrange
from .phase import Phase
from .tensor import Shape
from .window import Window


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
    return Rearrange(name, (source,), output, "crop", (Selection(0, 0, shape[2], 0),), window=window)
