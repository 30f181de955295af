"""Averages: that of a whole map has a form of its own, all others are depthwise convolutions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto, helper

from .axes import Step, as_pixels, reduced_axes, without_axes
from .float_graph import FloatGraph, Rewriting, chained, depthwise, given

#: Of a map that one window reads: its steps, and a weight word each, must fit the memories.
_MOST_PIXELS, _FEW_PIXELS = 1024, 256


def _of_map(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    shape, attributes = graph.shapes.get(node.input[0], []), given(node)
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


def _of_any_axes(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
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
    shape, attributes = graph.shapes.get(node.input[0], []), given(node)
    if len(shape) < 3 or not shape[1]:
        return None
    attributes = _without_ceiling(attributes, shape[2:])
    if not _counts_alike(attributes):
        return None
    kernel = attributes.pop("kernel_shape")
    kept = {name: attributes[name] for name in attributes.keys() - {"count_include_pad", "ceil_mode"}}
    return chained(node, [_averaging(graph, node, shape[1], kernel, **kept)])


def _averaging(graph: FloatGraph, node: NodeProto, channels: int, kernel: Sequence[int], **given: object) -> Step:
    """The step of a depthwise convolution in place of ``node``, all of whose weights are alike."""
    weights = np.full((channels, *kernel), 1 / np.prod(kernel))
    return depthwise(graph, node.output[0], weights, group=channels, **given)


def _without_ceiling(attributes: dict[str, object], sizes: list[int]) -> dict[str, object]:
    """The attributes of an AveragePool with ``ceil_mode`` 0, where that gives as many windows."""
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
    """Whether every element of every window of an AveragePool counts alike."""
    bordered = any(attributes.get("pads") or ()) or attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    return not attributes.get("ceil_mode", 0) and (not bordered or bool(attributes.get("count_include_pad", 0)))


AVERAGE_OF_MAP = Rewriting(
    "average of a whole map as GlobalAveragePool",
    "Nothing else changes: ONNX Runtime averages the codes of a whole map in integers.",
    _of_map,
    ("AveragePool", "ReduceMean"),
)
AVERAGE_OF_ANY_AXES = Rewriting(
    "average over any axes as GlobalAveragePool of a map whose pixels they are",
    "Nothing else changes: ONNX Runtime averages the codes of a whole map in integers.",
    _of_any_axes,
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
