"""Factors and offsets for each channel or along the last axis, and PRelu, folded into products or as products."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, helper

from ...model.onnx_graph import attributes_of
from .axes import Step
from .float_graph import FloatGraph, Rewriting, chained, depthwise

# A batch normalisation is a factor and an offset for each channel.

Float64 = npt.NDArray[np.float64]


def affine(node: NodeProto, constants: Mapping[str, np.ndarray]) -> tuple[Float64, Float64]:
    """Return factor and offset of each channel, float64[channels], of a BatchNormalization."""
    scale, bias, mean, variance = (constants[name].astype(np.float64) for name in node.input[1:5])
    factor = scale / np.sqrt(variance + attributes_of(node).get("epsilon", 1e-5))
    return factor, bias - mean * factor


# A factor and an offset for each channel are folded into the product before or after them.

_MATRICES = ("Gemm", "MatMul")


def fold_in_front(graph: FloatGraph, source: str, output: str, factor: Float64, offset: Float64) -> bool:
    """Change weights and bias of the product that computes ``source`` so that it computes ``output``, if possible."""
    product = graph.maker(source)
    if product is None or product.op_type not in ("Conv", *_MATRICES) or not graph.are_constant(product.input[1:]):
        return False
    if product.op_type == "MatMul" and len(graph.shapes.get(source, ())) != 2:
        return False
    weights, bias = _operands(graph, product)
    weights = weights * factor.reshape(-1, *[1] * (weights.ndim - 1))
    _replace(graph, product, product.input[0], output, weights, bias * factor + offset)
    return True


def fold_behind(graph: FloatGraph, source: str, output: str, factor: Float64, offset: Float64) -> bool:
    """Change weights and bias of the only product that reads ``output`` so that it reads ``source``, if possible.

    A padding with zeros pads ``output``; where there is one, only a factor can be folded.
    """
    product = graph.reader(output)
    if product is None or product.op_type not in ("Conv", *_MATRICES) or product.input[0] != output:
        return False
    attributes = attributes_of(product)
    has_border = any(attributes.get("pads") or ()) or attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    is_vector = len(graph.shapes.get(source, ())) == 2
    fits = graph.are_constant(product.input[1:]) and not attributes.get("transA", 0)
    if not fits or (has_border and offset.any()) or is_vector != (product.op_type in _MATRICES):
        return False
    weights, bias = _operands(graph, product)
    groups = attributes.get("group", 1)
    # Each output reads the channels of its group.
    read = np.arange(len(factor)).reshape(groups, -1).repeat(len(weights) // groups, axis=0)
    shaped = (*read.shape, *[1] * (weights.ndim - 2))
    bias = bias + (weights * offset[read].reshape(shaped)).reshape(len(weights), -1).sum(axis=1)
    _replace(graph, product, source, product.output[0], weights * factor[read].reshape(shaped), bias)
    return True


def _operands(graph: FloatGraph, product: NodeProto) -> tuple[Float64, Float64]:
    """Return weights, float64[outputs, inputs, ...], and bias, float64[outputs]."""
    attributes = attributes_of(product)
    weights = graph.constants[product.input[1]].astype(np.float64) * attributes.get("alpha", 1.0)
    if product.op_type in _MATRICES and not attributes.get("transB", 0):
        weights = weights.T
    has_bias = len(product.input) > 2 and product.input[2]
    bias = graph.constants[product.input[2]].astype(np.float64).reshape(-1) if has_bias else np.zeros(1)
    return weights, np.broadcast_to(bias * attributes.get("beta", 1.0), len(weights))


def _replace(graph: FloatGraph, product: NodeProto, source: str, output: str, weights: Float64, bias: Float64) -> None:
    operands = [graph.constant(f"{output}_folded_weights", weights), graph.constant(f"{output}_folded_bias", bias)]
    attributes = attributes_of(product)
    if product.op_type in _MATRICES:
        attributes = {"transB": 1} | ({"transA": 1} if attributes.get("transA", 0) else {})
    operator = "Gemm" if product.op_type in _MATRICES else "Conv"
    graph.replace(product, helper.make_node(operator, [source, *operands], [output], product.name, **attributes))


_NORMALISATION = "BatchNormalization"
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")


def of_channels(graph: FloatGraph, operand: str, source: str) -> npt.NDArray[np.float64] | None:
    """Return a constant operand as a value for each channel of the tensor ``source``, or one for all; None if it is
    neither.

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
    """Return a node's operand, and its factor and offset for each channel, or one for all."""
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


def _spell_affine(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
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
    _spell_affine,
    (_NORMALISATION, *_ARITHMETIC),
)


# Factors and offsets along the last axis become part of the product of rows before them, or a product of their own.


def affine_rows(graph: FloatGraph, name: str, shape: list[int], factor: np.ndarray, offset: np.ndarray) -> list[Step]:
    """Return the steps of ``x * factor + offset`` along the last axis of a tensor: a product with a diagonal matrix.

    Parameters
    ----------
    graph : FloatGraph
    name : str
        Name of a tensor, from which their constants get names.
    shape : list of int
        Shape of the tensor that is read; its batch may be 0.
    factor, offset : array
        float[elements].
    """
    rows, back = (
        graph.constant(f"{name}_{kind}", np.array([-1, *sizes], np.int64))
        for kind, sizes in (("rows", shape[-1:]), ("back", shape[1:]))
    )
    matrix, added = graph.constant(f"{name}_factors", np.diag(factor)), graph.constant(f"{name}_offsets", offset)
    return [("Reshape", [rows], {}), ("Gemm", [matrix, added], {}), ("Reshape", [back], {})]


def _spell_last_axis(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    source = next((name for name in node.input if name not in graph.constants), "")
    shape = graph.shapes.get(source, [])
    factor = next((graph.constants[name] for name in node.input if name in graph.constants), np.zeros(0))
    if len(shape) < 3 or shape[-1] < 2 or not factor.size == shape[-1] == factor.shape[-1] or factor.ndim > len(shape):
        return None
    factor = factor.reshape(-1).astype(np.float64)
    last = graph.maker(source)
    if last is not None and _fold(graph, last, factor):
        last.output[0] = node.output[0]
        graph.index()
        return []
    made = chained(node, affine_rows(graph, node.output[0], shape, factor, np.zeros(len(factor))))
    made[0].input[0] = source
    return made


def _fold(graph: FloatGraph, last: NodeProto, factor: np.ndarray) -> bool:
    """Multiply the weights of a product of rows, and the bias that ``last`` adds; or of a product whose rows it
    reshapes."""
    if last.op_type == "Add":
        added = [at for at, name in enumerate(last.input) if graph.constants.get(name, factor[:0]).size == len(factor)]
        product = graph.maker(last.input[1 - added[0]]) if added else None
        if product is None or not _fold(graph, product, factor):
            return False
        offset = graph.constants[last.input[added[0]]].astype(np.float64)
        last.input[added[0]] = graph.constant(f"{last.output[0]}_folded_offsets", offset * factor)
        graph.index()
        return True
    if last.op_type == "MatMul" and last.input[1] in graph.constants:
        weights = graph.constants[last.input[1]].astype(np.float64)
        last.input[1] = graph.constant(f"{last.output[0]}_folded_weights", weights * factor)
        graph.index()
        return True
    rows = last.input[0]
    sizes = graph.shapes.get(rows, [])
    # The rows must have two axes, as a convolution's result has its channels on another axis than the last.
    keeps = last.op_type == "Reshape" and len(sizes) == 2 and sizes[1] == len(factor)
    return keeps and fold_in_front(graph, rows, rows, factor, np.zeros(len(factor)))


LAST_AXIS = Rewriting(
    "factors along the last axis as part of a product",
    "Folded into a product in front, nothing else changes; else its weights are int8, and its result has a scale.",
    _spell_last_axis,
    ("Mul",),
)


# PRelu with a slope for each channel is the sum of the positive part and of the negative part times the slope.


def _spell_prelu(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    is_vector = len(graph.shapes.get(node.input[0], ())) == 2
    if not is_vector and not graph.spatial(node.input[0]):
        return None
    slopes = of_channels(graph, node.input[1], node.input[0])
    if slopes is None or len(slopes) == 1 or (slopes == slopes[0]).all():
        return None
    source, output = node.input[0], node.output[0]
    zero = graph.constant(f"{output}_zero", np.zeros(()))
    # The elements of a vector become channels of one pixel.
    kernel = [1] if is_vector else [1] * (len(graph.shapes[source]) - 2)
    axes = [graph.constant(f"{output}_axes", np.array([2], np.int64))] if is_vector else []
    operator, operands, attributes = depthwise(graph, output, slopes.reshape(-1, *kernel), group=len(slopes))
    # With slopes of at least 0 results keep the signs of inputs, so that the clip can follow the convolution, where the
    # requantiser computes it without a table.
    is_cut_behind = bool((slopes >= 0).all())
    order = [(operator, operands, attributes), ("Clip", ["", zero], {})]
    order = order if is_cut_behind else order[::-1]
    around = [("Unsqueeze", axes, {}), *order, ("Squeeze", axes, {})] if is_vector else order
    negative, made = source, []
    for kind, others, attributes in around:
        made.append(
            helper.make_node(kind, [negative, *others], [f"{output}_{kind}"], f"{node.name}_{kind}", **attributes)
        )
        negative = made[-1].output[0]
    positive = helper.make_node("Relu", [source], [f"{output}_Relu"], f"{node.name}_Relu")
    return [*made, positive, helper.make_node("Add", [positive.output[0], negative], [output], node.name)]


PRELU = Rewriting(
    "PRelu of channels as Relu, depthwise convolution and addition",
    "Slopes are int8 with a scale each, and positive and negative values are quantised apart before they are added.",
    _spell_prelu,
    ("PRelu",),
)
