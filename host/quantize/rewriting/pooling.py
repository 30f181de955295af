"""Averages and maxima over any axes and windows, as pooling that the accelerator has or as depthwise convolutions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto, helper

from ...model.onnx_graph import attributes_of
from ...model.runtime import RUNTIME_ERRORS, plain_session
from .axes import Run, Step, as_pixels, matrices_of, reduced_axes, without_axes
from .float_graph import FloatGraph, Rewriting, chained, depthwise
from .resampling import resampled

#: Most elements of a map under one window, whose steps, with a weight word each, must fit the memories.
_MOST_PIXELS, _FEW_PIXELS = 1024, 256


def _average_of_map(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    shape, attributes = graph.shapes.get(node.input[0], []), attributes_of(node)
    if node.op_type == "AveragePool" and shape[2:] == attributes["kernel_shape"] and _counts_alike(attributes):
        return chained(node, [("GlobalAveragePool", (), {})])
    axes = reduced_axes(graph, node) if node.op_type == "ReduceMean" else []
    if len(shape) < 3 or axes != list(range(2, len(shape))):
        return None
    if attributes.get("keepdims", 1):
        return chained(node, [("GlobalAveragePool", (), {})])
    mean = f"{node.output[0]}_map"
    return [
        helper.make_node("GlobalAveragePool", [node.input[0]], [mean], node.name),
        helper.make_node("Flatten", [mean], node.output, f"{node.name}_flatten"),
    ]


def _average_of_any_axes(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    steps = as_pixels(graph, node, reduced_axes(graph, node), lambda pixels: ("GlobalAveragePool", (), {}))
    return steps and chained(node, steps)


def _of_large_map(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    channels, *sizes = graph.spatial(node.input[0]) or [0]
    if not channels or np.prod(sizes) <= _MOST_PIXELS:
        return None
    ways = itertools.product(*([part for part in range(1, size + 1) if size % part == 0] for size in sizes))
    few = [kernel for kernel in ways if np.prod(sizes) <= _FEW_PIXELS * np.prod(kernel)]
    kernel = min(few, key=lambda kernel: (np.prod(kernel), max(kernel)))
    if kernel == tuple(sizes):
        return None
    step = _averaging(graph, node, channels, kernel, strides=kernel)
    return chained(node, [step, ("GlobalAveragePool", (), {})])


def _of_axes(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    axes = reduced_axes(graph, node)
    channels, *sizes = graph.spatial(node.input[0]) or [0]
    if not channels or not axes or min(axes) < 2:
        return None
    kernel = [size if axis in axes else 1 for axis, size in enumerate(sizes, 2)]
    step = _averaging(graph, node, channels, kernel, strides=kernel)
    return chained(node, [step, *without_axes(graph, node, axes)])


def _of_windows(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    shape, attributes = graph.shapes.get(node.input[0], []), attributes_of(node)
    if len(shape) < 3 or not shape[1]:
        return None
    attributes = _without_ceiling(attributes, shape[2:])
    if not _counts_alike(attributes):
        return None
    kernel = attributes.pop("kernel_shape")
    kept = {name: attributes[name] for name in attributes.keys() - {"count_include_pad", "ceil_mode"}}
    return chained(node, [_averaging(graph, node, shape[1], kernel, **kept)])


def _averaging(graph: FloatGraph, node: NodeProto, channels: int, kernel: Sequence[int], **given: object) -> Step:
    """Return the step of a depthwise convolution with equal weights in place of ``node``."""
    weights = np.full((channels, *kernel), 1 / np.prod(kernel))
    return depthwise(graph, node.output[0], weights, group=channels, **given)


def _without_ceiling(attributes: dict[str, object], sizes: list[int]) -> dict[str, object]:
    """Return the attributes of an AveragePool with ``ceil_mode`` 0, if that gives as many windows."""
    kernel = attributes["kernel_shape"]
    rank = len(kernel)
    strides, pads = attributes.get("strides", [1] * rank), attributes.get("pads", [0] * 2 * rank)
    dilations = attributes.get("dilations", [1] * rank)
    rests = [
        (size + pads[axis] + pads[rank + axis] - dilations[axis] * (kernel[axis] - 1) - 1) % strides[axis]
        for axis, size in enumerate(sizes)
    ]
    return attributes if any(rests) or not all(sizes) else attributes | {"ceil_mode": 0}


def _counts_alike(attributes: Mapping[str, object]) -> bool:
    """Return whether every element of every window of an AveragePool has the same weight."""
    bordered = any(attributes.get("pads") or ()) or attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    return not attributes.get("ceil_mode", 0) and (not bordered or bool(attributes.get("count_include_pad", 0)))


AVERAGE_OF_MAP = Rewriting(
    "average of a whole map as GlobalAveragePool",
    "Nothing else changes: ONNX Runtime averages the codes of a whole map in integers.",
    _average_of_map,
    ("AveragePool", "ReduceMean"),
)
AVERAGE_OF_ANY_AXES = Rewriting(
    "average over any axes as GlobalAveragePool of a map whose pixels they are",
    "Nothing else changes: ONNX Runtime averages the codes of a whole map in integers.",
    _average_of_any_axes,
    ("ReduceMean",),
)
AVERAGE_OF_LARGE_MAP = Rewriting(
    "average of a large map as depthwise convolution and GlobalAveragePool",
    "Averages of windows are quantised, before they are averaged, with a scale of their own.",
    _of_large_map,
    ("GlobalAveragePool",),
)
AVERAGE_OF_AXES = Rewriting(
    "average over rows or columns as depthwise convolution",
    "Its weights are one code for all elements, and its result has a scale of its own.",
    _of_axes,
    ("ReduceMean",),
)
AVERAGE_OF_WINDOWS = Rewriting(
    "average of windows as depthwise convolution",
    "Its weights are one code for all elements, and its result has a scale of its own.",
    _of_windows,
    ("AveragePool",),
)


# The greatest value over rows or columns is a max pooling.


def _spell_minimum(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    axes = reduced_axes(graph, node)
    sizes = graph.spatial(node.input[0])[1:]
    if not sizes or not axes or min(axes) < 2:
        return None
    kernel = [size if axis in axes else 1 for axis, size in enumerate(sizes, 2)]
    pool = ("MaxPool", (), {"kernel_shape": kernel, "strides": kernel})
    return chained(node, [pool, *without_axes(graph, node, axes)])


def _maximum_of_any_axes(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    steps = as_pixels(
        graph, node, reduced_axes(graph, node), lambda pixels: ("MaxPool", (), {"kernel_shape": [pixels]})
    )
    return steps and chained(node, steps)


def _maximum_of_map(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    sizes = graph.spatial(node.input[0])[1:]
    return chained(node, [("MaxPool", (), {"kernel_shape": sizes})]) if sizes else None


def _of_negatives(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    axes = reduced_axes(graph, node)
    if not axes or 0 in axes or not graph.is_float(node.input[0]):
        return None
    return chained(node, [("Neg", (), {}), ("ReduceMax", node.input[1:], attributes_of(node)), ("Neg", (), {})])


MINIMUM = Rewriting(
    "minimum as the negative of a maximum of negatives",
    "Nothing else changes: the greatest code is that of the greatest value.",
    _of_negatives,
    ("ReduceMin",),
)
MAXIMUM_OF_MAP = Rewriting(
    "maximum of a whole map as max pooling",
    "Nothing else changes: the greatest code is that of the greatest value.",
    _maximum_of_map,
    ("GlobalMaxPool",),
)
MAXIMUM_OF_AXES = Rewriting(
    "maximum over rows or columns as max pooling",
    "Nothing else changes: the greatest code is that of the greatest value.",
    _spell_minimum,
    ("ReduceMax",),
)
MAXIMUM_OF_ANY_AXES = Rewriting(
    "maximum over any axes as max pooling of a map whose pixels they are",
    "Nothing else changes: the greatest code is that of the greatest value.",
    _maximum_of_any_axes,
    ("ReduceMax",),
)


# Average pooling to any number of rows and columns is exported by PyTorch as hundreds of nodes that gather and add.

#: Operators that move elements, add them and scale them, and so are a linear function together.
_GATHERING = ("Gather", "GatherND")
_LINEAR = (*_GATHERING, "Add", "Div", "Mul", "ReduceMean", "Squeeze", "Transpose", "Unsqueeze", "Where")


def _spell_gathered(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    source = node.input[0]
    if not graph.spatial(source):
        return None
    region = _region(graph, node)
    end = region[-1].output[0]
    channels, *sizes = graph.spatial(source)
    target = graph.spatial(end)
    inner = {name for one in region[:-1] for name in one.output}
    is_read = any(inner & set(one.input) for one in graph.nodes if one not in region)
    is_read = is_read or any(map(graph.is_output, inner))
    gathers = any(one.op_type in _GATHERING for one in region)
    if len(region) < 3 or not gathers or len(target) != 3 or len(sizes) != 2 or target[0] != channels or is_read:
        return None
    run = _runner(graph, region, source, end, channels)
    matrices = None if run is None else matrices_of(run, sizes, target[1:])
    if matrices is None or not all(matrix.any(axis=1).all() for matrix in matrices):
        return None
    for other in region[1:]:
        graph.drop(other)
    made = chained(node, resampled(graph, end, source, matrices))
    made[-1].output[0] = end
    return made


def _region(graph: FloatGraph, first: NodeProto) -> list[NodeProto]:
    """Return all linear operators that depend on a node alone, up to the last one."""
    known, found = set(first.output), [first]
    for node in graph.nodes:
        dynamic = [name for name in node.input if name and name not in graph.constants]
        if node is not first and dynamic and node.op_type in _LINEAR and known.issuperset(dynamic):
            known |= set(node.output)
            found.append(node)
    return found


def _runner(graph: FloatGraph, region: Sequence[NodeProto], source: str, end: str, channels: int) -> Run | None:
    """Return the function of the region on any number of channels, some at a time."""
    try:
        session = plain_session(graph.part(region, {source: (1, *graph.spatial(source))}, [end]))
    except RUNTIME_ERRORS:
        return None

    def run(values: np.ndarray) -> np.ndarray:
        count = values.shape[1]
        padded = np.zeros((1, -(-count // channels) * channels, *values.shape[2:]), np.float32)
        padded[:, :count] = values
        parts = [
            session.run([end], {source: np.ascontiguousarray(padded[:, at : at + channels])})[0]
            for at in range(0, padded.shape[1], channels)
        ]
        return np.concatenate(parts, axis=1)[:, :count]

    return run


GATHERED = Rewriting(
    "gathered and added elements as convolution with fixed weights",
    "Its weights are one code for the elements of a window, and its result has a scale of its own.",
    _spell_gathered,
    ("Transpose", *_GATHERING),
)
