"""Reductions over axes, phases of a map as channels, and operators along one axis as matrices."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, numpy_helper

from ...model.onnx_graph import attributes_of
from ...model.runtime import RUNTIME_ERRORS, plain_session
from .float_graph import FloatGraph

Step = tuple[str, Sequence[str], dict[str, object]]

#: Number of axes of a map: batch, channels, rows and columns.
_MOST_AXES = 4


def reduced_axes(graph: FloatGraph, node: NodeProto) -> list[int]:
    """Return the axes of a ReduceMean or ReduceMax, in order; empty if they are not known."""
    rank = len(graph.shapes.get(node.input[0], ()))
    axes = attributes_of(node).get("axes")
    if len(node.input) > 1 and node.input[1]:
        if node.input[1] not in graph.constants:
            return []
        axes = graph.constants[node.input[1]].reshape(-1).tolist()
    return sorted(int(axis) % rank for axis in axes) if rank and axes is not None else []


def without_axes(graph: FloatGraph, node: NodeProto, axes: Sequence[int]) -> list[Step]:
    """Return the steps that remove axes of one element if a node does not keep them."""
    if attributes_of(node).get("keepdims", 1):
        return []
    return [("Squeeze", [graph.constant(f"{node.output[0]}_axes", np.array(axes, np.int64))], {})]


def as_pixels(
    graph: FloatGraph, node: NodeProto, axes: Sequence[int], pool: Callable[[int], Step]
) -> list[Step] | None:
    """Return the steps of a reduction over any axes but the batch, which become the pixels of a map with the others as
    channels.

    While models are rewritten, a batch is dynamic or 1; a first axis of more is another axis, such as time.

    Parameters
    ----------
    graph : FloatGraph
    node : NodeProto
    axes : sequence of int
        The axes that go, in order.
    pool : callable
        Function of the number of pixels that returns the step that pools them.

    Returns
    -------
    list of Step or None
        The steps; None if an axis is the batch, a size is not known, or there are more axes than a map has.
    """
    shape, name = graph.shapes.get(node.input[0], []), node.output[0]
    if not axes or not all(shape[1:]) or len(shape) > _MOST_AXES:
        return None
    batch = [] if shape[0] and shape[0] > 1 else [0]
    if {*batch} & {*axes}:
        return None
    own = range(len(batch), len(shape))
    kept = [axis for axis in own if axis not in axes]
    count, channels = (int(np.prod([shape[axis] for axis in group])) for group in (axes, kept))
    result = [1 if axis in axes else shape[axis] for axis in own]
    if not attributes_of(node).get("keepdims", 1):
        result = [shape[axis] for axis in kept]
    samples = [-1] * len(batch)
    sizes = {"pixels": [*(samples or [1]), channels, count], "kept": [*samples, *result]}
    before, after = (graph.constant(f"{name}_{key}", np.array(size, np.int64)) for key, size in sizes.items())
    order = [*batch, *kept, *axes]
    turned: list[Step] = [("Transpose", (), {"perm": order})] if order != sorted(order) else []
    return [*turned, ("Reshape", [before], {}), pool(count), ("Reshape", [after], {})]


def to_space(
    graph: FloatGraph, name: str, channels: int, block: Sequence[int], sizes: Sequence[int], *, phases_first: bool
) -> list[Step]:
    """Return the steps that turn channels into pixels.

    Parameters
    ----------
    graph : FloatGraph
    name : str
        Name of a tensor, from which constants get names.
    channels : int
        Channels of the result.
    block, sizes : sequence of int
        Number of pixels that a pixel becomes, and of pixels of the input, along each axis.
    phases_first : bool
        Whether the channels of a pixel are side by side (DCR), instead of the pixels of a channel (CRD).
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


# Operators along each axis of a feature map as matrices, found by unit vectors in ONNX Runtime.

Matrix = npt.NDArray[np.float64]
#: A function of feature maps: float32[1, channels, ...] to float32[1, channels, ...].
Run = Callable[[np.ndarray], np.ndarray]

_SAME = 1e-5


def axis_matrices(graph: FloatGraph, node: NodeProto) -> list[Matrix] | None:
    """Return the matrices of a Resize along its spatial axes, see :func:`matrices_of`."""
    source, target = graph.spatial(node.input[0]), graph.spatial(node.output[0])
    if not source or len(source) != len(target) or source[0] != target[0]:
        return None
    run = _runner(graph, node, target[1:])
    return None if run is None else matrices_of(run, source[1:], target[1:])


def matrices_of(run: Run, sizes: Sequence[int], target: Sequence[int]) -> list[Matrix] | None:
    """Return the matrices of a linear function of feature maps along their spatial axes.

    Parameters
    ----------
    run : callable
        The function, of float32[1, channels, *sizes] with any number of channels.
    sizes, target : sequence of int
        Sizes of its input and of its result along each axis.

    Returns
    -------
    list of float64[outputs, inputs] or None
        The matrices; None if it is no product of matrices along the axes, or mixes channels.
    """
    matrices = []
    for axis, size in enumerate(sizes):
        # Each channel has a unit vector, repeated along the other axes.
        shape = [size if at == axis else 1 for at in range(len(sizes))]
        units = np.broadcast_to(np.eye(size).reshape(1, size, *shape), (1, size, *sizes))
        result = np.moveaxis(run(units.astype(np.float32))[0], 1 + axis, 1)
        matrices.append(result.reshape(size, target[axis], -1)[:, :, 0].T.astype(np.float64))
    values = np.random.default_rng(0).normal(size=(1, 2, *sizes)).astype(np.float32)
    wanted = values.astype(np.float64)
    for axis, matrix in enumerate(matrices):
        wanted = np.moveaxis(np.tensordot(matrix, wanted, axes=(1, 2 + axis)), 0, 2 + axis)
    found = run(values)
    return matrices if found.shape == wanted.shape and np.abs(found - wanted).max() < _SAME else None


def _runner(graph: FloatGraph, node: NodeProto, target: list[int]) -> Run | None:
    """Return the operator on any number of channels; None if ONNX Runtime does not run it."""
    copied, tensors, attributes = copy.deepcopy(node), [], attributes_of(node)
    axes = named if isinstance(named := attributes.get("axes"), list) else None
    copied.input[0], copied.output[0] = "probe", "found"
    if axes is not None:
        # Sizes and scales are given for all axes.
        if attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
            return None
        kept = [item for item in copied.attribute if item.name not in ("axes", "keep_aspect_ratio_policy")]
        del copied.attribute[:]
        copied.attribute.extend(kept)
    for at, name in enumerate(node.input[1:], 1):
        if name in graph.constants and graph.constants[name].size:
            values = graph.constants[name]
            is_sizes = at == 3
            if axes is not None and at == 2:
                every = np.ones(2 + len(target), np.float32)
                every[[axis % len(every) for axis in axes]] = values
                values = every
            tensors.append((name, None if is_sizes else values))
        elif name and at < 3:
            copied.input[at] = ""
        elif name:
            tensors.append((name, None))

    def run(values: np.ndarray) -> np.ndarray:
        held = [
            numpy_helper.from_array(
                np.array([*values.shape[:2], *target], np.int64) if constant is None else constant, name
            )
            for name, constant in tensors
        ]
        model = graph.part([copied], {"probe": values.shape}, ["found"], held)
        return plain_session(model).run(None, {"probe": values})[0]

    try:
        run(np.zeros((1, 1, *graph.spatial(node.input[0])[1:]), np.float32))
    except RUNTIME_ERRORS:
        return None
    return run
