"""The greatest value over rows or columns as max pooling."""

from __future__ import annotations

from onnx import NodeProto

from .axes import as_pixels, reduced_axes, without_axes
from .float_graph import FloatGraph, Rewriting, chained, given


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    axes = reduced_axes(graph, node)
    sizes = graph.spatial(node.input[0])[1:]
    if not sizes or not axes or min(axes) < 2:
        return None
    kernel = [size if axis in axes else 1 for axis, size in enumerate(sizes, 2)]
    pool = ("MaxPool", (), {"kernel_shape": kernel, "strides": kernel})
    return chained(node, [pool, *without_axes(graph, node, axes)])


def _of_any_axes(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    steps = as_pixels(
        graph, node, reduced_axes(graph, node), lambda pixels: ("MaxPool", (), {"kernel_shape": [pixels]})
    )
    return steps and chained(node, steps)


def _of_map(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    sizes = graph.spatial(node.input[0])[1:]
    return chained(node, [("MaxPool", (), {"kernel_shape": sizes})]) if sizes else None


def _of_negatives(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    axes = reduced_axes(graph, node)
    if not axes or 0 in axes or not graph.is_float(node.input[0]):
        return None
    return chained(node, [("Neg", (), {}), ("ReduceMax", node.input[1:], given(node)), ("Neg", (), {})])


MINIMUM = Rewriting(
    "minimum as the negative of a maximum of negatives",
    "Nothing else changes: the greatest code is that of the greatest value.",
    _of_negatives,
    ("ReduceMin",),
)
MAXIMUM_OF_MAP = Rewriting(
    "maximum of a whole map as max pooling",
    "Nothing else changes: the greatest code is that of the greatest value.",
    _of_map,
    ("GlobalMaxPool",),
)
MAXIMUM_OF_AXES = Rewriting(
    "maximum over rows or columns as max pooling",
    "Nothing else changes: the greatest code is that of the greatest value.",
    _spell,
    ("ReduceMax",),
)
MAXIMUM_OF_ANY_AXES = Rewriting(
    "maximum over any axes as max pooling of a map whose pixels they are",
    "Nothing else changes: the greatest code is that of the greatest value.",
    _of_any_axes,
    ("ReduceMax",),
)
