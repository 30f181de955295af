"""Transfer tables between all pairs of schemes: ONNX Runtime's codes, and for exact operators those of fractions."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from lutterfly.golden.transfer.schemes import parse
from lutterfly.golden.transfer.tables import stored_once, transfer_table

SOURCES = ("int8:scale=0.05,zero_point=-9", "uint8:scale=0.03,zero_point=131", "q3.4", "q4.11", "uq2.14")
TARGETS = ("int8:scale=0.013,zero_point=3", "q0.7", "uint16:scale=0.00007,zero_point=20000", "q1.14", "uq1.7")


def runtime_table(operator: str, source: str, target: str) -> np.ndarray:
    """DequantizeLinear, an operator and QuantizeLinear in ONNX Runtime, on every code."""
    schemes = parse(source), parse(target)
    constants = {}
    for end, scheme in zip("st", schemes, strict=True):
        constants |= {
            f"scale_{end}": np.float32(scheme.scale),
            f"zero_{end}": np.array(scheme.zero_point, scheme.dtype),
        }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale_s", "zero_s"], ["a"]),
        helper.make_node(operator, ["a"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "scale_t", "zero_t"], ["y"]),
    ]
    ends = [
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(scheme.dtype), ["n"])]
        for name, scheme in zip("xy", schemes, strict=True)
    ]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", *ends, initializers), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": schemes[0].codes})[0]


# What NumPy and ONNX Runtime compute alike, to the bit.
@pytest.mark.parametrize(
    ("operator", "function"),
    [("Identity", lambda x: x), ("Relu", lambda x: np.maximum(x, np.float32(0))), ("Neg", np.negative)],
)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", TARGETS)
def test_tables_are_those_of_onnx_runtime(operator: str, function, source: str, target: str) -> None:
    table = transfer_table(parse(source), function, parse(target))
    assert table.dtype == parse(target).dtype
    np.testing.assert_array_equal(table, runtime_table(operator, source, target))


@pytest.mark.parametrize("source", ["q3.4:symmetric", "q3.4", "q4.11:symmetric", "uq4.4"])
@pytest.mark.parametrize("target", ["q0.7:symmetric", "q2.13:symmetric", "uq0.8"])
def test_exact_operators_are_those_of_exact_arithmetic(source: str, target: str) -> None:
    """The first entry is that of the scheme's least code: index i stands for i + min_j."""
    before, into = parse(source), parse(target)
    table = transfer_table(before, lambda x: x * np.float32(0.375), into)
    step = Fraction(before.scale) * Fraction(3, 8) / Fraction(into.scale)
    codes = (round(code * step) for code in range(before.least, before.greatest + 1))
    exact = [min(max(code, into.least), into.greatest) for code in codes]
    assert table.tolist() == exact


def test_numbers_that_no_code_stands_for_are_refused_with_the_first_input() -> None:
    message = (
        "operator must give a finite number for every code of q3.4, not nan for the code -128 (-8), the first of 128: "
        "no code stands for it; clip the operator's input or its result, or choose another source"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        transfer_table(parse("q3.4"), np.sqrt, parse("q3.4"))
    with pytest.raises(ValueError, match=r"not -inf for the code 3 \(0\), the first of 1: no code"):
        transfer_table(parse("uint8:scale=0.1,zero_point=3"), lambda x: np.log(np.abs(x)), parse("q3.4"))
    # Clipped in front or after, there is a table.
    transfer_table(parse("q3.4"), lambda x: np.sqrt(np.maximum(x, np.float32(0))), parse("q3.4"))
    table = transfer_table(parse("uq4.4"), lambda x: np.maximum(np.log(x), np.float32(-8)), parse("q3.4"))
    assert table[:2].tolist() == [-128, -44]


def test_operators_give_float32_place_by_place() -> None:
    with pytest.raises(TypeError, match=r"^operator must give float32, not float64$"):
        transfer_table(parse("q3.4"), lambda x: x.astype(np.float64), parse("q3.4"))
    with pytest.raises(ValueError, match=r"^operator must give a result for each of 256 inputs, not the shape \(1,\)$"):
        transfer_table(parse("q3.4"), lambda x: x[:1], parse("q3.4"))


def test_equal_tables_are_stored_once() -> None:
    q34, q07 = parse("q3.4"), parse("q0.7")
    tanh, relu = (transfer_table(q34, np.tanh, q07), transfer_table(q34, lambda x: np.maximum(x, np.float32(0)), q07))
    places = [tanh, relu, tanh.copy(), tanh, relu.view(np.uint8), relu[:128]]
    stored, indices = stored_once(places)
    assert indices == [0, 1, 0, 0, 2, 3]
    assert len(stored) == 4
    for place, index in zip(places, indices, strict=True):
        assert place.dtype == stored[index].dtype
        np.testing.assert_array_equal(place, stored[index])
    assert stored_once([]) == ([], [])
