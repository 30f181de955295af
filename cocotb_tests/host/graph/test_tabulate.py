"""Transfer tables: ONNX Runtime's result for every code, and none where it depends on more than the code."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from lutterfly.host.graph.geometry import from_codes, to_codes
from lutterfly.host.graph.tabulate import CODES, tabulate


def model(operator: str, dtype: type, *, scale: float, zero: int, **attributes) -> onnx.ModelProto:
    """DequantizeLinear, ``operator``, QuantizeLinear with the given scale and zero point at both ends."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["a"]),
        helper.make_node(operator, ["a"], ["b"], **attributes),
        helper.make_node("QuantizeLinear", ["b", "scale", "zero"], ["y"]),
    ]
    if operator == "CumSum":
        nodes[1].input.append("axis")
    values = {"scale": np.float32(scale), "zero": np.array(zero, dtype), "axis": np.int64(0)}
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [[helper.make_tensor_value_info(name, code, ["n"])] for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", *ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(("operator", "function"), [("Tanh", np.tanh), ("Neg", np.negative), ("Abs", np.abs)])
def test_a_table_holds_the_quantised_function(dtype: type, operator: str, function):
    zero, scale = 3, np.float32(1 / 64)
    part = model(operator, dtype, scale=scale, zero=zero if dtype == np.int8 else zero + 128)
    table = tabulate(part)
    values = function((CODES.astype(np.float64) - zero) * scale) / scale
    assert (table.dtype, table.shape) == (np.int8, (256,))
    np.testing.assert_array_equal(table, np.clip(np.rint(values) + zero, -128, 127))


def test_a_result_that_depends_on_the_position_is_refused():
    with pytest.raises(
        ValueError,
        match=r"^ONNX Runtime gives -?\d+ or -?\d+ for code -?\d+, depending on its "
        "position in the tensor$",
    ):
        tabulate(model("CumSum", np.int8, scale=1.0, zero=0))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_codes_and_elements_are_inverse(dtype: type):
    elements = from_codes(CODES, np.dtype(dtype))
    assert elements.dtype == dtype
    assert elements.astype(int).tolist() == list(range(-128, 128) if dtype == np.int8 else range(256))
    np.testing.assert_array_equal(to_codes(elements), CODES)
