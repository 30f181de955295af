"""Batch normalisation of vectors, folded into the fully connected layer in front of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, numpy_helper

Float64 = npt.NDArray[np.float64]


def fold_into_gemm(model: onnx.ModelProto) -> None:
    """Fold every BatchNormalization that alone reads a Gemm with constant weights into its weights and its bias.

    ONNX Runtime folds those after convolutions. PyTorch's older exporter leaves those of a Linear to whoever reads the
    file.
    """
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    readers = Counter(name for node in graph.node for name in node.input)
    readers.update(value.name for value in graph.output)
    makers = {node.output[0]: node for node in graph.node if node.op_type == "Gemm"}
    for node in [node for node in graph.node if node.op_type == "BatchNormalization"]:
        gemm = makers.get(node.input[0])
        is_constant = gemm is not None and all(name in constants for name in (*node.input[1:], *gemm.input[1:]) if name)
        if is_constant and readers[node.input[0]] == 1:
            graph.initializer.extend(_fold(gemm, node, constants))
            gemm.output[0] = node.output[0]
            graph.node.remove(node)


def affine(node: NodeProto, constants: Mapping[str, np.ndarray]) -> tuple[Float64, Float64]:
    """Factor and offset of each channel, float64[channels], that a BatchNormalization comes to."""
    scale, bias, mean, variance = (constants[name].astype(np.float64) for name in node.input[1:5])
    epsilon = next((onnx.helper.get_attribute_value(item) for item in node.attribute if item.name == "epsilon"), 1e-5)
    factor = scale / np.sqrt(variance + epsilon)
    return factor, bias - mean * factor


def _fold(gemm: NodeProto, node: NodeProto, constants: Mapping[str, np.ndarray]) -> list[onnx.TensorProto]:
    """Give a Gemm new operands, and return them: weights float32[outputs, features], bias float32[outputs]."""
    given = {item.name: onnx.helper.get_attribute_value(item) for item in gemm.attribute}
    factor, offset = affine(node, constants)
    weights = constants[gemm.input[1]].astype(np.float64) * given.get("alpha", 1.0)
    weights = weights if given.get("transB", 0) else weights.T
    bias = constants[gemm.input[2]].astype(np.float64) if len(gemm.input) > 2 and gemm.input[2] else np.zeros(1)
    bias = bias.reshape(-1) * given.get("beta", 1.0) * factor + offset
    operands = {f"{node.output[0]}_weights": weights * factor[:, None], f"{node.output[0]}_bias": bias}
    rest = {"transA": given["transA"]} if given.get("transA", 0) else {}
    replaced = onnx.helper.make_node("Gemm", [gemm.input[0], *operands], gemm.output, gemm.name, transB=1, **rest)
    gemm.CopyFrom(replaced)
    return [numpy_helper.from_array(array.astype(np.float32), name) for name, array in operands.items()]
