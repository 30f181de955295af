"""Weights and zero points, one for each product: ONNX Runtime makes weights unsigned only where none is shared."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

#: Where products and DequantizeLinear keep weights; a scale and a zero point follow.
_WEIGHTS = {"QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3, "DequantizeLinear": 0}
#: From this operator set on ONNX Runtime (1.32) does not make the weights of a QLinearMatMul unsigned.
_SIGNED_PRODUCTS = 21
#: From an int8 code to the uint8 code of the same value.
_TO_UNSIGNED = 1 << 7


def own_zero_points(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model in which no two readers share constant weights, dequantised or not, or the zero point of such.

    Exporters write one zero point for all weights, and equal weights once. ONNX Runtime (1.32) makes an unsigned copy
    of both for each product, names it after the tensor, and fails on the second copy of one name.
    """
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    constants = {tensor.name: tensor for tensor in copied.graph.initializer}
    for node in copied.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    fixed, taken = set(constants), set()
    for node in copied.graph.node:
        # What is computed from constants will be one.
        if fixed.issuperset(name for name in node.input if name):
            fixed |= set(node.output)
    nodes = _own_dequantisers(copied, fixed)
    del copied.graph.node[:]
    copied.graph.node.extend(nodes)
    for node in copied.graph.node:
        for position in _operands(node, fixed, constants):
            name = node.input[position]
            if name in taken:
                tensor = copied.graph.initializer.add()
                tensor.CopyFrom(constants[name])
                tensor.name = node.input[position] = f"{name} of {node.output[0]}"
                constants[tensor.name] = tensor
            taken.add(name)
    if any(not opset.domain and opset.version >= _SIGNED_PRODUCTS for opset in copied.opset_import):
        _make_unsigned(copied, constants)
    return copied


def _make_unsigned(model: onnx.ModelProto, constants: dict[str, onnx.TensorProto]) -> None:
    """Give every QLinearMatMul of uint8 activations uint8 weights of the same values, beside those that others read."""
    for node in model.graph.node:
        if node.op_type != "QLinearMatMul" or _type(constants, node.input[2]) != onnx.TensorProto.UINT8:
            continue
        positions = (3, 5)
        if any(_type(constants, node.input[at]) != onnx.TensorProto.INT8 for at in positions):
            continue
        for at in positions:
            codes = numpy_helper.to_array(constants[node.input[at]]).astype(np.int16) + _TO_UNSIGNED
            node.input[at] = f"{node.input[at]} of {node.output[0]}, unsigned"
            model.graph.initializer.append(numpy_helper.from_array(codes.astype(np.uint8), node.input[at]))


def _type(constants: dict[str, onnx.TensorProto], name: str) -> int | None:
    return constants[name].data_type if name in constants else None


def _own_dequantisers(model: onnx.ModelProto, fixed: set[str]) -> list[NodeProto]:
    """The nodes, and for each reader of dequantised weights beyond the first a DequantizeLinear in front of it."""
    sources = {
        node.output[0]: node
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in fixed
    }
    nodes, taken = [], set()
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            if name in taken:
                own = NodeProto()
                own.CopyFrom(sources[name])
                own.name = own.output[0] = node.input[position] = f"{name} of {node.output[0]}, {position}"
                nodes.append(own)
            elif name in sources:
                taken.add(name)
        nodes.append(node)
    return nodes


def _operands(node: NodeProto, fixed: set[str], constants: dict[str, onnx.TensorProto]) -> list[int]:
    """Positions of constant weights, and of their zero point."""
    first = _WEIGHTS.get(node.op_type)
    if first is None or node.input[first] not in fixed:
        return []
    return [at for at in (first, first + 2) if at < len(node.input) and node.input[at] in constants]
