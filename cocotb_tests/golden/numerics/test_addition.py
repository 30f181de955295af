"""Sums and differences of two quantised tensors against ONNX Runtime, on all 65,536 pairs of codes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import needs_reference, runtime_pairs
from lutterfly.golden.elements import ADDEND_BITS
from lutterfly.golden.engines.add import ENTRY_BITS
from lutterfly.golden.numerics.addition import UNSIGNED_OFFSET, add, difference_tables, sum_tables

PAIRS = np.meshgrid(np.arange(-128, 128, dtype=np.int8), np.arange(-128, 128, dtype=np.int8), indexing="ij")


def random_quantisation(seed: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Scales of both operands and the result, every second time with few decimals, so that ties are many; zero
    points."""
    rng = np.random.default_rng(seed)
    scales = np.exp(rng.uniform(-6, 0, 3)) if seed % 2 else rng.integers(1, 101, 3) / 1000
    zero_points = [int(rng.choice([-128, 127, 0, rng.integers(-128, 128)])) for _ in range(3)]
    return tuple(scales.tolist()), tuple(zero_points)


@needs_reference
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("first_seed", [0, pytest.param(20, marks=pytest.mark.regress)])
def test_every_pair_is_qlinear_add(first_seed: int, unsigned: bool) -> None:
    for seed in range(first_seed, first_seed + (20 if first_seed == 0 else 200)):
        scales, zero_points = random_quantisation(seed)
        first, second, fraction = sum_tables(scales, zero_points, unsigned=unsigned)
        result = add(*PAIRS, first, second, fraction, offset=UNSIGNED_OFFSET if unsigned else 0)
        np.testing.assert_array_equal(result, runtime_pairs("QLinearAdd", scales, zero_points, unsigned=unsigned))


def test_tables_use_the_bits_that_they_have() -> None:
    for seed in range(50):
        first, second, fraction = sum_tables(*random_quantisation(seed))
        largest = max(np.abs(first).max(), np.abs(second).max(), np.abs(first[[0, -1], None] + second[[0, -1]]).max())
        assert largest < 1 << ENTRY_BITS - 1
        assert fraction == 32 or 2 * largest >= (1 << ENTRY_BITS - 1) - 8


FIRST, SECOND = np.zeros(256, np.int64), np.zeros(256, np.int64)


@pytest.mark.parametrize(("sum_in_halves", "code"), [(1, 0), (3, 2), (5, 2), (-1, 0), (-3, -2), (-5, -2), (300, 127)])
def test_halves_go_to_the_even_code(sum_in_halves: int, code: int) -> None:
    first = np.full(256, sum_in_halves << 20)
    assert add(np.zeros(1, np.int8), np.zeros(1, np.int8), first, SECOND, 21).tolist() == [code]


def test_sums_are_rounded_to_24_bits_before_they_are_rounded_to_codes() -> None:
    # 100.5 - 2**-28 has 35 bits; the nearest float32 is 100.5, which rounds to 100. 101.5 - 2**-28 becomes 102.
    codes = np.array([0], np.int8)
    for whole, code in ((100, 100), (101, 102)):
        first = np.full(256, (2 * whole + 1 << 27) - 1)
        assert add(codes, codes, first, SECOND, 28).tolist() == [code]


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"first_codes": np.zeros(3, np.uint8)}, TypeError, r"^first_codes must be int8, not uint8$"),
        ({"second": SECOND.astype(np.int32)}, TypeError, r"^second must be int64, not int32$"),
        (
            {"second_codes": np.zeros(4, np.int8)},
            ValueError,
            r"^second_codes must have the shape of first_codes \(3,\), not \(4,\)$",
        ),
        ({"first": FIRST[:255]}, ValueError, r"^first must have the shape \(256,\), not \(255,\)$"),
        ({"first": FIRST + (1 << 35)}, ValueError, r"^first must have entries of 36 bits$"),
        ({"fraction": 33}, ValueError, r"^fraction must be between 0 and 32, not 33$"),
        ({"low": 5, "high": 4}, ValueError, r"^low must be at most high \(4\), not 5$"),
    ],
)
def test_refusals(changed: dict[str, object], error: type[Exception], message: str) -> None:
    codes = np.zeros(3, np.int8)
    arguments = {"first_codes": codes, "second_codes": codes, "first": FIRST, "second": SECOND, "fraction": 32}
    with pytest.raises(error, match=message):
        add(**arguments | changed)


# Difference of two quantised tensors against ONNX Runtime between dequantising and quantising, on all pairs.


def runtime_difference(scales: tuple[float, ...], zero_points: tuple[int, ...]) -> np.ndarray:
    """Codes int8[256, 256] of every pair."""
    constants = {f"s{i}": np.float32(scale) for i, scale in enumerate(scales)}
    constants |= {f"z{i}": np.array(zero, np.int8) for i, zero in enumerate(zero_points)}
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "s0", "z0"], ["fa"]),
        helper.make_node("DequantizeLinear", ["b", "s1", "z1"], ["fb"]),
        helper.make_node("Sub", ["fa", "fb"], ["fy"]),
        helper.make_node("QuantizeLinear", ["fy", "s2", "z2"], ["y"]),
    ]
    a, b, y = (helper.make_tensor_value_info(name, TensorProto.INT8, [256, 256]) for name in "aby")
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "difference", [a, b], [y], initializers)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(
        None, dict(zip("ab", PAIRS, strict=True))
    )[0]


def random_difference(seed: int) -> tuple[tuple[float, float, float], tuple[int, int, int]]:
    """Scales of any size, or powers of two with many ties, and zero points."""
    rng = np.random.default_rng(seed)
    first, second = np.exp(rng.uniform(-6, 0, 2))
    result = np.hypot(first, second) * rng.uniform(0.3, 2)
    if seed % 2:
        first, second, result = 2.0 ** -rng.integers(1, 6, 3)
    zero_points = tuple(int(rng.choice([-128, 127, 0, rng.integers(-128, 128)])) for _ in range(3))
    return (float(first), float(second), float(result)), zero_points


@needs_reference
@pytest.mark.parametrize("first_seed", [0, pytest.param(40, marks=pytest.mark.regress)])
def test_every_pair_is_onnx_runtimes(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + (40 if first_seed == 0 else 400)):
        scales, zero_points = random_difference(seed)
        expected = runtime_difference(scales, zero_points)
        tables = difference_tables(scales, zero_points, expected)
        assert tables is not None, (scales, zero_points)
        limits = {"low": int(expected.min()), "high": int(expected.max())}
        np.testing.assert_array_equal(add(*PAIRS, *tables, offset=zero_points[2], **limits), expected)
        assert max(np.abs(table).max() for table in tables[:2]) < 1 << ADDEND_BITS - 1


def test_entries_are_moved_where_a_pair_is_rounded_otherwise() -> None:
    """The pair that is nearest to a half; what is a code away is not a matter of rounding."""
    scales, zero_points = (0.31830988, 0.69314718, 1.0), (5, -7, 0)
    differences = [codes.astype(np.int64) - zero for codes, zero in zip(PAIRS, zero_points, strict=False)]
    values = differences[0] * float(np.float32(scales[0])) - differences[1] * float(np.float32(scales[1]))
    right = np.clip(np.rint(values), -128, 127).astype(np.int8)
    inside = np.where(np.abs(values) < 100, np.abs(values - np.floor(values) - 0.5), 1)
    nearest = np.unravel_index(inside.argmin(), inside.shape)
    other = right.copy()
    other[nearest] += 1 if right[nearest] == np.floor(values[nearest]) else -1
    plain, moved = (difference_tables(scales, zero_points, wanted) for wanted in (right, other))
    assert plain is not None
    assert moved is not None
    np.testing.assert_array_equal(add(*PAIRS, *moved), other)
    assert (moved[0] != plain[0]).sum() + (moved[1] != plain[1]).sum() == 1
    assert difference_tables(scales, zero_points, np.roll(right, 1, axis=0)) is None
