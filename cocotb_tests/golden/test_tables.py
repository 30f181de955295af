"""Tables: looking up gives what ONNX Runtime computes, once the table holds what it computes for every code."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.golden.transfer.tables import apply_table


@pytest.mark.parametrize("op", ["Tanh", "Sigmoid", "HardSwish", "Erf", "Exp"])
def test_is_the_operator(op: str) -> None:
    rng = np.random.default_rng(0)
    scales = {"sx": np.float32(0.03), "zx": np.int8(-9), "sy": np.float32(0.02), "zy": np.int8(4)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
        helper.make_node(op, ["a"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "sy", "zy"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.INT8, None) for name in "xy")
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in scales.items()]
    graph = helper.make_graph(nodes, op, [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    table = session.run(None, {"x": np.arange(-128, 128, dtype=np.int8)})[0]
    codes = rng.integers(-128, 128, (6, 5, 16), dtype=np.int8)
    np.testing.assert_array_equal(apply_table(codes, table), session.run(None, {"x": codes})[0])


TABLE = np.zeros(256, np.int8)


@pytest.mark.parametrize(
    ("codes", "table", "error", "message"),
    [
        (TABLE.view(np.uint8), TABLE, TypeError, r"^codes must be int8, not uint8$"),
        (TABLE, TABLE.view(np.uint8), TypeError, r"^table must be int8, not uint8$"),
        (TABLE, TABLE[:255], ValueError, r"^table must have the shape \(256,\), not \(255,\)$"),
    ],
)
def test_refusals(codes: np.ndarray, table: np.ndarray, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        apply_table(codes, table)
