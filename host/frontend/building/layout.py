"""Layout arithmetic: how an ONNX tensor lies in a feature map, and which reshapes and transposes cost nothing.

A :class:`Place` says ``onnx = codes[height, width, channels].transpose(axes).reshape(shape)``. A reshape changes
``shape`` alone; a transpose that keeps whole axes together changes ``axes`` as well; both vanish then. What moves bytes
otherwise is noted as an ``order`` of elements, until an operator reads them that wants them where they belong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

Shape = tuple[int, ...]
Shape3 = tuple[int, int, int]

CHANNELS_FIRST: Shape3 = (2, 0, 1)
CHANNELS_LAST: Shape3 = (0, 1, 2)


@dataclass(frozen=True)
class Place:
    """An ONNX tensor of ``shape`` as a view of the graph's tensor ``tensor``; see the module.

    With an ``order``, int64[elements], ``onnx = codes.reshape(-1)[order].reshape(shape)`` instead; ``mover`` is the
    operator that changed it last.
    """

    tensor: str
    axes: Shape3
    shape: tuple[int, ...]
    order: npt.NDArray[np.int64] | None = field(default=None, compare=False, repr=False)
    mover: NodeProto | None = field(default=None, compare=False, repr=False)


def ordered_axes(axes: Shape3, feature_shape: Shape3) -> tuple[int, ...]:
    """The axes that have more than one element, in memory order of the ONNX tensor: equal means equal bytes."""
    return tuple(axis for axis in axes if feature_shape[axis] > 1)


def same_order(one: Shape3, other: Shape3, feature_shape: Shape3) -> bool:
    """Whether two orders of the axes give the same bytes."""
    return ordered_axes(one, feature_shape) == ordered_axes(other, feature_shape)


def transposed(axes: Shape3, shape: Shape, permutation: Shape, feature_shape: Shape3) -> Shape3 | None:
    """The order of the axes after a transpose.

    Parameters
    ----------
    axes, shape
        The tensor that is transposed, as in :class:`Place`.
    permutation : tuple of int
        Of ONNX' Transpose.
    feature_shape : tuple of int
        (height, width, channels).

    Returns
    -------
    tuple of int or None
        None if a dimension holds part of an axis, so that the transpose must move bytes.
    """
    groups = _axes_of_dimensions(ordered_axes(axes, feature_shape), shape, feature_shape)
    kept = [dimension for dimension in permutation if shape[dimension] > 1]
    if groups is None:
        return axes if kept == sorted(kept) else None
    moved = [axis for dimension in kept for axis in groups[dimension]]
    return (*moved, *(axis for axis in axes if axis not in moved))


def _axes_of_dimensions(ordered: Shape, shape: Shape, feature_shape: Shape3) -> list[list[int]] | None:
    """The axes that each dimension consists of, or None if a dimension is not made of whole axes."""
    groups, rest = [], list(ordered)
    for size in shape:
        group: list[int] = []
        while math.prod(feature_shape[axis] for axis in group) < size and rest:
            group.append(rest.pop(0))
        if math.prod(feature_shape[axis] for axis in group) != size:
            return None
        groups.append(group)
    return groups


def inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes one."""
    return tuple(permutation.index(axis) for axis in range(len(permutation)))


def image_shape(shape: tuple[int, ...]) -> Shape3 | None:
    """(height, width, channels) of an ONNX tensor [1, channels, height, width] or [1, channels, width], else None."""
    if len(shape) == 4 and shape[0] == 1:
        return shape[2], shape[3], shape[1]
    if len(shape) == 3 and shape[0] == 1:
        return 1, shape[2], shape[1]
    return None
