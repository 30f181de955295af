"""Axes that an operator takes away, and the phases of a map that lie as channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import NodeProto

from .float_graph import FloatGraph, given

Step = tuple[str, Sequence[str], dict[str, object]]

#: Batch, channels, rows and columns.
_MOST_AXES = 4


def reduced_axes(graph: FloatGraph, node: NodeProto) -> list[int]:
    """The axes that a ReduceMean or ReduceMax works on, in order; empty if they are not known."""
    rank = len(graph.shapes.get(node.input[0], ()))
    axes = given(node).get("axes")
    if len(node.input) > 1 and node.input[1]:
        if node.input[1] not in graph.constants:
            return []
        axes = graph.constants[node.input[1]].reshape(-1).tolist()
    return sorted(int(axis) % rank for axis in axes) if rank and axes is not None else []


def without_axes(graph: FloatGraph, node: NodeProto, axes: Sequence[int]) -> list[Step]:
    """What takes axes of one element away that a node was not to keep."""
    if given(node).get("keepdims", 1):
        return []
    return [("Squeeze", [graph.constant(f"{node.output[0]}_axes", np.array(axes, np.int64))], {})]


def as_pixels(
    graph: FloatGraph, node: NodeProto, axes: Sequence[int], pool: Callable[[int], Step]
) -> list[Step] | None:
    """A reduction over any axes but the batch: these become the pixels of a map, the others its channels.

    Parameters
    ----------
    graph : FloatGraph
    node : NodeProto
    axes : sequence of int
    pool : callable
        From the pixels to the step that pools them.

    Returns
    -------
    list of Step or None
        None where an axis is the batch, a size is not known, or there are more axes than a map has.
    """
    shape, name = graph.shapes.get(node.input[0], []), node.output[0]
    if not axes or not axes[0] or not all(shape[1:]) or len(shape) > _MOST_AXES:
        return None
    kept, pixels = [axis for axis in range(1, len(shape)) if axis not in axes], [shape[axis] for axis in axes]
    count = int(np.prod(pixels))
    result = [1 if axis in axes else shape[axis] for axis in range(1, len(shape))]
    if not given(node).get("keepdims", 1):
        result = [shape[axis] for axis in kept]
    sizes = {"pixels": [-1, int(np.prod([shape[axis] for axis in kept])), count], "kept": [-1, *result]}
    before, after = (graph.constant(f"{name}_{key}", np.array(size, np.int64)) for key, size in sizes.items())
    order = [0, *kept, *axes]
    turned: list[Step] = [("Transpose", (), {"perm": order})] if order != sorted(order) else []
    return [*turned, ("Reshape", [before], {}), pool(count), ("Reshape", [after], {})]


def to_space(
    graph: FloatGraph, name: str, channels: int, block: Sequence[int], sizes: Sequence[int], *, phases_first: bool
) -> list[Step]:
    """What makes pixels of channels.

    Parameters
    ----------
    graph : FloatGraph
    name : str
        Of a tensor, after which constants are called.
    channels : int
        Of the result.
    block, sizes : sequence of int
        Pixels that a pixel becomes, and pixels that there are, along each axis.
    phases_first : bool
        Whether the channels of a pixel lie side by side (DCR), instead of the pixels of a channel (CRD).
    """
    if all(size == 1 for size in block):
        return []
    if len(block) == 2 and block[0] == block[1]:
        mode = "DCR" if phases_first else "CRD"
        return [("DepthToSpace", (), {"blocksize": block[0], "mode": mode})]
    rank = len(block)
    split = [*block, channels] if phases_first else [channels, *block]
    at_channels, first = (1 + rank, 1) if phases_first else (1, 2)
    order = [0, at_channels]
    for axis in range(rank):
        order += [2 + rank + axis, first + axis]
    shapes = [0, *split, *sizes], [0, channels, *(size * more for size, more in zip(sizes, block, strict=True))]
    before, after = (
        graph.constant(f"{name}_{part}", np.array(shape, np.int64))
        for part, shape in zip(("split", "joined"), shapes, strict=True)
    )
    return [("Reshape", [before], {}), ("Transpose", (), {"perm": order}), ("Reshape", [after], {})]
