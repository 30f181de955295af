"""What ONNX Runtime's QLinear operators on two tensors make of every pair of codes."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from lutterfly.golden.numerics.addition import PAIRS


def runtime_pairs(
    operator: str, scales: tuple[float, ...], zero_points: tuple[int, ...], *, unsigned: bool
) -> np.ndarray:
    """Codes int8[256, 256] of every pair; scales and zero points are those of both operands and of the result."""
    dtype, kind = (np.uint8, TensorProto.UINT8) if unsigned else (np.int8, TensorProto.INT8)
    shift = 128 if unsigned else 0
    constants = {f"s{i}": np.float32(scale) for i, scale in enumerate(scales)}
    constants |= {f"z{i}": np.array(zero + shift, dtype) for i, zero in enumerate(zero_points)}
    node = helper.make_node(operator, ["a", "s0", "z0", "b", "s1", "z1", "s2", "z2"], ["y"], domain="com.microsoft")
    a, b, y = (helper.make_tensor_value_info(name, kind, [256, 256]) for name in "aby")
    graph = helper.make_graph(
        [node], "pairs", [a, b], [y], [numpy_helper.from_array(value, name) for name, value in constants.items()]
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    session = onnxruntime.InferenceSession(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    feeds = {name: (codes.astype(np.int16) + shift).astype(dtype) for name, codes in zip("ab", PAIRS, strict=True)}
    return (session.run(None, feeds)[0].astype(np.int16) - shift).astype(np.int8)
