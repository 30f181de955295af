"""Products of uint8 activations add up exactly, on processors whose kernels for int8 weights saturate as well."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.host.model.executed import open_session, own_zero_points
from lutterfly.host.model.model import Model

DEPTH, COLUMNS = 64, 3


def products(operators: int, activations: type, *, count: int = 1) -> onnx.ModelProto:
    """``count`` products of one tensor with the same weights, whose sums of pairs are beyond 16 bits."""
    weights = np.random.default_rng(0).choice(np.array([-128, 127], np.int8), (DEPTH, COLUMNS))
    constants = {
        "scale": np.float32(1),
        "zero": activations(0),
        "weights": weights,
        "weight zero": np.int8(0),
        "result scale": np.float32(128 * 128 * DEPTH / 100),
    }
    reads = ["x", "scale", "zero", "weights", "scale", "weight zero", "result scale", "zero"]
    names = [f"y{number}" for number in range(count)]
    code = helper.np_dtype_to_tensor_dtype(np.dtype(activations))
    graph = helper.make_graph(
        [helper.make_node("QLinearMatMul", reads, [name], name=f"product {name}") for name in names],
        "products",
        [helper.make_tensor_value_info("x", code, [1, DEPTH])],
        [helper.make_tensor_value_info(name, code, [1, COLUMNS]) for name in names],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", operators)], ir_version=10)


def weight_types(model: onnx.ModelProto) -> set[int]:
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return {types[node.input[at]] for node in model.graph.node for at in (3, 5)}


@pytest.mark.parametrize("operators", [20, 21, 22])
@pytest.mark.parametrize("count", [1, 2])
def test_sums_of_uint8_activations_are_exact(operators: int, count: int) -> None:
    model = products(operators, np.uint8, count=count)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    activations = np.full((1, DEPTH), 255, np.uint8)
    sums = activations.astype(np.int64) @ constants["weights"].astype(np.int64)
    expected = np.clip(np.rint(sums / constants["result scale"]), 0, 255).astype(np.uint8)
    assert 0 < expected.max() < 255
    for result in open_session(Model.written(model)).run(None, {"x": activations}):
        np.testing.assert_array_equal(result, expected)


def test_weights_become_unsigned_where_onnx_runtime_would_leave_them() -> None:
    assert weight_types(own_zero_points(products(21, np.uint8, count=2))) == {TensorProto.UINT8}
    assert weight_types(own_zero_points(products(20, np.uint8, count=2))) == {TensorProto.INT8}


def test_weights_of_int8_activations_stay_signed() -> None:
    assert weight_types(own_zero_points(products(21, np.int8))) == {TensorProto.INT8}


def test_unsigned_weights_stand_beside_those_that_another_node_reads() -> None:
    model = products(21, np.uint8)
    reader = helper.make_node("DequantizeLinear", ["weights", "scale", "weight zero"], ["z"])
    model.graph.node.insert(0, reader)
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [DEPTH, COLUMNS]))
    onnx.checker.check_model(own_zero_points(model), full_check=True)
    feeds = {"x": np.zeros((1, DEPTH), np.uint8)}
    dequantised = open_session(Model.written(model)).run(["z"], feeds)[0]
    weights = next(tensor for tensor in model.graph.initializer if tensor.name == "weights")
    np.testing.assert_array_equal(dequantised, numpy_helper.to_array(weights))
