"""A factor and an offset for each channel: part of the product before or behind it, else a depthwise convolution."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from .float_graph import FloatGraph, Rewriting, chained, depthwise
from .folding import fold_behind, fold_in_front
from .norms.normalisation import Float64, affine

_NORMALISATION = "BatchNormalization"
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")


def of_channels(graph: FloatGraph, operand: str, source: str) -> npt.NDArray[np.float64] | None:
    """A constant operand as a value for each channel of the tensor ``source``, or one for all; None if it is neither.

    Returns
    -------
    float64[channels] or float64[1] or None
    """
    constant, shape = graph.constants.get(operand), graph.shapes.get(source, [])
    if constant is None or constant.dtype.kind != "f" or len(shape) < 2 or constant.ndim > len(shape) or not shape[1]:
        return None
    aligned = (*[1] * (len(shape) - constant.ndim), *constant.shape)
    is_single = all(size == 1 for size in aligned)
    if not is_single and aligned != (1, shape[1], *[1] * (len(shape) - 2)):
        return None
    return constant.astype(np.float64).reshape(-1)


def _affine_of(graph: FloatGraph, node: NodeProto) -> tuple[str, Float64, Float64] | None:
    """What a node reads, and its factor and offset for each channel, or one for all."""
    one, none = np.ones(1), np.zeros(1)
    if node.op_type == _NORMALISATION:
        if not graph.are_constant(node.input[1:]) or len(node.output) > 1:
            return None
        return node.input[0], *affine(node, graph.constants)
    if node.op_type not in _ARITHMETIC:
        return None
    first, second = node.input
    is_swapped = first in graph.constants
    source, operand = (second, first) if is_swapped else (first, second)
    values = of_channels(graph, operand, source)
    if values is None or (is_swapped and node.op_type == "Div"):
        return None
    if node.op_type == "Sub":
        return source, *((-one, values) if is_swapped else (one, -values))
    if node.op_type == "Add":
        return source, one, values
    if node.op_type == "Div" and not values.all():
        return None
    return source, values if node.op_type == "Mul" else 1 / values, none


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    found = _affine_of(graph, node)
    if found is None:
        return None
    source, factor, offset = found
    shape = graph.shapes.get(source, [])
    if len(shape) < 2 or not shape[1]:
        return None
    chain = [node]
    while (reader := graph.reader(chain[-1].output[0])) is not None:
        more = _affine_of(graph, reader)
        if more is None:
            break
        chain.append(reader)
        factor, offset = factor * more[1], offset * more[1] + more[2]
    has_channels = any(one.op_type == _NORMALISATION for one in chain) or max(len(factor), len(offset)) > 1
    if not has_channels:
        return None
    factor, offset = (np.broadcast_to(values, shape[1]).astype(np.float64) for values in (factor, offset))
    output = chain[-1].output[0]
    for other in chain[1:]:
        graph.drop(other)
    if fold_in_front(graph, source, output, factor, offset) or fold_behind(graph, source, output, factor, offset):
        return []
    kernel = [1] * max(len(shape) - 2, 1)
    step = depthwise(graph, output, factor.reshape(-1, *kernel), offset, group=shape[1])
    axes = [graph.constant(f"{output}_axes", np.array([2], np.int64))] if len(shape) == 2 else []
    around = [("Unsqueeze", axes, {}), step, ("Squeeze", axes, {})] if axes else [step]
    made = chained(node, around)
    made[0].input[0], made[-1].output[0] = source, output
    return made


AFFINE = Rewriting(
    "factor and offset of channels as part of a product, or as depthwise convolution",
    "Folded, nothing else changes; else factors are int8 with a scale each, and the result has a scale of its own.",
    _spell,
    (_NORMALISATION, *_ARITHMETIC),
)
