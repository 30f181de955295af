"""A factor and an offset for each channel, folded into the product in front of them or into the one behind."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from .float_graph import FloatGraph, given
from .norms.normalisation import Float64

_MATRICES = ("Gemm", "MatMul")


def fold_in_front(graph: FloatGraph, source: str, output: str, factor: Float64, offset: Float64) -> bool:
    """Give the product that computes ``source`` the weights and bias with which it computes ``output``, if it can."""
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
    """Give the product that alone reads ``output`` the weights and bias with which it reads ``source``, if it can.

    A border of zeros is one of ``output``: where there is one, only a factor can be folded.
    """
    product = graph.reader(output)
    if product is None or product.op_type not in ("Conv", *_MATRICES) or product.input[0] != output:
        return False
    attributes = given(product)
    has_border = any(attributes.get("pads") or ()) or attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    is_vector = len(graph.shapes.get(source, ())) == 2
    fits = graph.are_constant(product.input[1:]) and not attributes.get("transA", 0)
    if not fits or (has_border and offset.any()) or is_vector != (product.op_type in _MATRICES):
        return False
    weights, bias = _operands(graph, product)
    groups = attributes.get("group", 1)
    # The channels that each output reads: those of its group.
    read = np.arange(len(factor)).reshape(groups, -1).repeat(len(weights) // groups, axis=0)
    shaped = (*read.shape, *[1] * (weights.ndim - 2))
    bias = bias + (weights * offset[read].reshape(shaped)).reshape(len(weights), -1).sum(axis=1)
    _replace(graph, product, source, product.output[0], weights * factor[read].reshape(shaped), bias)
    return True


def _operands(graph: FloatGraph, product: NodeProto) -> tuple[Float64, Float64]:
    """Weights, float64[outputs, inputs, ...], and bias, float64[outputs]."""
    attributes = given(product)
    weights = graph.constants[product.input[1]].astype(np.float64) * attributes.get("alpha", 1.0)
    if product.op_type in _MATRICES and not attributes.get("transB", 0):
        weights = weights.T
    has_bias = len(product.input) > 2 and product.input[2]
    bias = graph.constants[product.input[2]].astype(np.float64).reshape(-1) if has_bias else np.zeros(1)
    return weights, np.broadcast_to(bias * attributes.get("beta", 1.0), len(weights))


def _replace(graph: FloatGraph, product: NodeProto, source: str, output: str, weights: Float64, bias: Float64) -> None:
    operands = [graph.constant(f"{output}_folded_weights", weights), graph.constant(f"{output}_folded_bias", bias)]
    attributes = given(product)
    if product.op_type in _MATRICES:
        attributes = {"transB": 1} | ({"transA": 1} if attributes.get("transA", 0) else {})
    operator = "Gemm" if product.op_type in _MATRICES else "Conv"
    product.CopyFrom(helper.make_node(operator, [source, *operands], [output], product.name, **attributes))
