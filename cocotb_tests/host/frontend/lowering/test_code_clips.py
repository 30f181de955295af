"""A Clip of codes becomes one of the numbers that are quantised: with any zero point, or none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_exact, needs_reference
from lutterfly.host.graph import Pointwise

PAIRS = np.array(list(itertools.product(range(-8, 8), repeat=2)), np.int8)


def network(zero_point: int | None, limits: tuple[int, int]) -> bytes:
    """A convolution whose uint8 codes are clipped, and rise above their zero point again."""
    given = [] if zero_point is None else ["zero"]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "quarter", "int8"], ["read"]),
        helper.make_node("DequantizeLinear", ["w", "eighth", "int8"], ["weights"]),
        helper.make_node("Conv", ["read", "weights"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "half", *given], ["codes"]),
        helper.make_node("Clip", ["codes", "least", "greatest"], ["cut"]),
        helper.make_node("DequantizeLinear", ["cut", "half", *given], ["numbers"]),
        helper.make_node("Relu", ["numbers"], ["positive"]),
        helper.make_node("QuantizeLinear", ["positive", "half", *given], ["y"]),
    ]
    constants = {
        "w": np.reshape([7, -5], (1, 2, 1, 1)).astype(np.int8),
        "int8": np.int8(0),
        "quarter": np.float32(0.25),
        "eighth": np.float32(0.125),
        "half": np.float32(0.5),
        "zero": np.uint8(zero_point or 0),
        "least": np.uint8(limits[0]),
        "greatest": np.uint8(limits[1]),
    }
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.INT8, ["batch", 2, 1, len(PAIRS)])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, ["batch", 1, 1, len(PAIRS)])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


@needs_reference
@pytest.mark.parametrize(("zero_point", "limits"), [(None, (2, 5)), (0, (2, 5)), (3, (4, 7)), (9, (1, 30))])
def test_clipped_codes_are_those_of_clipped_numbers(zero_point: int | None, limits: tuple[int, int]) -> None:
    graph = assert_exact(network(zero_point, limits), {"x": PAIRS.T.reshape(1, 2, 1, -1)}, covered=False)
    assert not any(isinstance(layer, Pointwise) for layer in graph.layers)
