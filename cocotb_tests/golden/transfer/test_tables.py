"""Tables of functions, whole or by half: every entry is what ONNX Runtime computes, or exact fractions give."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.golden.transfer.schemes import parse
from lutterfly.golden.transfer.tables import apply_table, halve, stored_once, transfer_table


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


# Half tables: which functions have one, and that it gives every entry of the whole table.


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def table(source: str, function, target: str) -> np.ndarray:
    return transfer_table(parse(source), function, parse(target)).astype(np.int64)


@pytest.mark.parametrize(
    ("source", "function", "target", "total"),
    [
        # Saturates above zero only: 127 there, and -128 below.
        ("q3.4", np.tanh, "q0.7", 0),
        ("q3.12", np.tanh, "q0.15", 0),
        ("q3.4", np.tanh, "q0.7:symmetric", 0),
        # Saturates below zero where the stored side is the one above.
        ("q3.4", lambda x: -np.tanh(x), "q0.7", 0),
        ("q3.4", sigmoid, "uq0.8", 256),
        ("q3.12", sigmoid, "uq0.8", 256),
        ("q3.4", np.tanh, "uint8:scale=0.0078125,zero_point=128", 256),
        ("q3.4", lambda x: -x, "q3.4", 0),
        ("q3.4", np.abs, "uq4.4", None),
        ("q3.4", np.abs, "q3.4", None),
        ("q3.12", np.cos, "q0.15", None),
        ("uint8:scale=0.05,zero_point=128", np.tanh, "q0.7", 0),
        ("q3.4", lambda x: x * np.float32(0), "q3.4", None),
        # Neither, but below zero it saturates throughout.
        ("q3.4", lambda x: np.maximum(x, np.float32(0)), "q3.4", 1),
        # Saturates everywhere but in the middle.
        ("q3.4", lambda x: x * np.float32(1e9), "q3.4", -1),
    ],
)
def test_even_and_odd_functions_have_a_half(source: str, function, target: str, total: int | None) -> None:
    whole = table(source, function, target)
    half = halve(whole)
    assert half is not None
    assert len(half.stored) == len(whole) // 2
    assert half.total == total
    np.testing.assert_array_equal(half.expand(), whole)
    assert min(half.stored) >= whole.min()
    assert max(half.stored) <= whole.max()


@pytest.mark.parametrize(
    ("source", "function", "target"),
    [
        ("q3.4", lambda x: x * sigmoid(x), "q3.4"),
        ("q3.4", np.exp, "q3.4"),
        ("q3.4", lambda x: np.maximum(x, np.float32(0.1) * x), "q3.4"),
        # Another middle than that of the codes.
        ("int8:scale=0.05,zero_point=-9", np.tanh, "q0.7"),
        ("uq1.7", np.tanh, "q0.7"),
    ],
)
def test_other_functions_have_none(source: str, function, target: str) -> None:
    assert halve(table(source, function, target)) is None


@pytest.mark.parametrize("entry", [0, 1, 100, 127, 129, 254, 255])
def test_one_entry_that_differs_is_enough(entry: int) -> None:
    whole = table("q3.4", lambda x: x, "q6.9")
    assert halve(whole) is not None
    whole[entry] += 1
    half = halve(whole)
    # The least code's partner lies beyond the table, so that it may be anything.
    assert (half is None) == (entry != 0)
    if half:
        np.testing.assert_array_equal(half.expand(), whole)


def test_the_middle_is_free() -> None:
    whole = table("q3.4", np.tanh, "q0.7")
    whole[128] = 77
    np.testing.assert_array_equal(halve(whole).expand(), whole)


@pytest.mark.parametrize("seed", range(20))
def test_small_tables(seed: int) -> None:
    """What is found is right, and what is odd or even by construction is found."""
    rng = np.random.default_rng(seed)
    below = rng.integers(-9, 10, 8)
    other = below if seed % 2 else np.clip(seed - below, -9, 9)
    whole = np.concatenate([below[::-1], rng.integers(-9, 10, 1), other[:7]])
    half = halve(whole)
    if seed % 2 or np.ptp(below[:7] + other[:7]) == 0:
        assert half is not None
    if half is not None:
        np.testing.assert_array_equal(half.expand(), whole)


@pytest.mark.parametrize("entries", [0, 2, 3, 255, 257])
def test_refused_numbers_of_entries(entries: int) -> None:
    with pytest.raises(ValueError, match=f"^entries must be a power of two, at least 4, not {entries}$"):
        halve(np.zeros(entries, np.int64))


# Transfer tables between all pairs of schemes: ONNX Runtime's codes, and for exact operators those of fractions.

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
