"""Quantisation schemes: every code of each against ONNX Runtime and exact rationals; their names."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from lutterfly.golden.transfer.schemes import FORMS, Scheme, fixed_point, name_of, parse

AFFINE = [
    Scheme(8, True, 0.05, -9),
    Scheme(8, True, 0.1, 127),
    Scheme(8, False, 0.0123, 131),
    Scheme(8, False, 3.7, 0),
    Scheme(16, True, 0.0003, -1234),
    Scheme(16, True, 0.1, -(1 << 15)),
    Scheme(16, False, 0.0021, 40_000),
    Scheme(16, False, 1 / 3, 65_535),
]
SYMMETRIC = [Scheme(8, True, 0.07, is_symmetric=True), Scheme(16, True, 0.00013, is_symmetric=True)]
FIXED = [
    *(fixed_point(m, 7 - m) for m in range(8)),
    *(fixed_point(m, 8 - m, is_signed=False) for m in range(9)),
    *(fixed_point(m, 15 - m) for m in (0, 4, 15)),
    *(fixed_point(m, 16 - m, is_signed=False) for m in (0, 16)),
    fixed_point(3, 4, is_symmetric=True),
    fixed_point(0, 15, is_symmetric=True),
]
ALL = [*AFFINE, *SYMMETRIC, *FIXED]


def numbers(scheme: Scheme) -> np.ndarray:
    """What every code stands for, halves between codes, the numbers next to these, and some beyond both ends."""
    steps = np.arange(scheme.least - 3, scheme.greatest + 4) - scheme.zero_point
    near = [steps.astype(np.float32) * np.float32(scheme.scale), (steps + 0.5).astype(np.float32) * scheme.scale]
    values = np.concatenate([np.float32(part) for part in near])
    low, high = np.float32(-np.inf), np.float32(np.inf)
    ends = np.array([0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38], np.float32)
    return np.concatenate([values, np.nextafter(values, low), np.nextafter(values, high), ends])


def runtime(operator: str, array: np.ndarray, scheme: Scheme) -> np.ndarray:
    """ONNX Runtime's result of QuantizeLinear or DequantizeLinear."""
    constants = {"scale": np.float32(scheme.scale), "zero": np.array(scheme.zero_point, scheme.dtype)}
    types = {"x": array.dtype, "y": np.dtype(np.float32) if operator[0] == "D" else scheme.dtype}
    ends = {
        name: [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), ["n"])]
        for name, dtype in types.items()
    }
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "scale", "zero"], ["y"])],
        operator,
        ends["x"],
        ends["y"],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": array})[0]


def float32(value: Fraction) -> Fraction:
    """The nearest number of 24 significant bits, halves to even."""
    if not value:
        return value
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length() - 24
    while abs(value) / Fraction(2) ** exponent >= 1 << 24:
        exponent += 1
    unit = Fraction(2) ** exponent
    return round(value / unit) * unit


def exact_code(value: float, scheme: Scheme) -> int:
    code = round(float32(Fraction(float(value)) / Fraction(scheme.scale))) + scheme.zero_point
    return min(max(code, scheme.least), scheme.greatest)


@pytest.mark.parametrize("scheme", [scheme for scheme in ALL if not scheme.is_symmetric], ids=str)
def test_codes_are_those_of_onnx_runtime(scheme: Scheme) -> None:
    values = numbers(scheme)
    np.testing.assert_array_equal(scheme.quantise(values), runtime("QuantizeLinear", values, scheme))
    found = scheme.dequantise(scheme.codes)
    assert (found.dtype, found.size) == (np.float32, 1 << scheme.bits)
    np.testing.assert_array_equal(found, runtime("DequantizeLinear", scheme.codes, scheme))


# Those of 8 bits all, and of 16 bits those that ONNX Runtime has not, and one more.
@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(scheme, marks=[pytest.mark.regress] * (scheme.bits == 16))
        for scheme in ALL
        if scheme.bits == 8 or scheme.is_symmetric or scheme == fixed_point(0, 15)
    ],
    ids=str,
)
def test_codes_are_those_of_exact_arithmetic(scheme: Scheme) -> None:
    values = numbers(scheme)
    if scheme.bits == 16:
        # All codes and their halves; of the numbers beside them, some.
        values = np.concatenate([values[: 2 << 16], values[2 << 16 :: 7]])
    found = scheme.quantise(values)
    assert found.dtype == scheme.dtype
    np.testing.assert_array_equal(found, [exact_code(value, scheme) for value in values])
    exact = [float32((int(code) - scheme.zero_point) * Fraction(scheme.scale)) for code in scheme.codes]
    assert list(map(Fraction, scheme.dequantise(scheme.codes).tolist())) == exact


@pytest.mark.parametrize("scheme", ALL, ids=str)
def test_every_code_survives_the_round_trip(scheme: Scheme) -> None:
    assert scheme.codes.dtype == scheme.dtype
    assert scheme.codes.astype(int).tolist() == list(range(scheme.least, scheme.greatest + 1))
    np.testing.assert_array_equal(scheme.quantise(scheme.dequantise(scheme.codes)), scheme.codes)


@pytest.mark.parametrize("scheme", ALL, ids=str)
def test_what_lies_beyond_the_codes_saturates(scheme: Scheme) -> None:
    low, high = scheme.limits
    beyond = np.array([low - scheme.scale, -3.4e38, high + scheme.scale, 3.4e38], np.float32)
    assert scheme.quantise(beyond).tolist() == [scheme.least, scheme.least, scheme.greatest, scheme.greatest]


@pytest.mark.parametrize(
    ("scheme", "least", "greatest", "limits"),
    [
        (fixed_point(3, 4), -128, 127, (-8, 7.9375)),
        (fixed_point(3, 4, is_symmetric=True), -127, 127, (-7.9375, 7.9375)),
        (fixed_point(4, 4, is_signed=False), 0, 255, (0, 15.9375)),
        (fixed_point(0, 15), -32_768, 32_767, (-1, 1 - 2**-15)),
        (fixed_point(0, 15, is_symmetric=True), -32_767, 32_767, (2**-15 - 1, 1 - 2**-15)),
        (Scheme(16, False, 0.5, 2), 0, 65_535, (-1, 32_766.5)),
    ],
    ids=str,
)
def test_least_and_greatest(scheme: Scheme, least: int, greatest: int, limits: tuple[float, float]) -> None:
    assert (scheme.least, scheme.greatest, scheme.limits) == (least, greatest, limits)


def test_halves_are_rounded_to_even_before_the_zero_point_is_added() -> None:
    halves = np.array([-1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    assert Scheme(8, True, 1.0, 1).quantise(halves).tolist() == [-1, 1, 1, 3, 3]


def test_the_least_code_of_a_symmetric_scheme_stands_for_nothing() -> None:
    scheme = fixed_point(3, 4, is_symmetric=True)
    with pytest.raises(ValueError, match=r"^codes must be between -127 and 127, not -128$"):
        scheme.dequantise(np.array([0, -128], np.int8))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((12, True, 1.0), "bits must be 8 or 16, not 12"),
        ((8, True, 0.0), "scale must be between 1.17549e-38 and 2.59615e+33, not 0.0"),
        ((8, True, 1e-45), "scale must be between 1.17549e-38 and 2.59615e+33, not 1e-45"),
        ((8, True, 1e300), "scale must be between 1.17549e-38 and 2.59615e+33, not 1e+300"),
        ((8, True, float("nan")), "scale must be between 1.17549e-38 and 2.59615e+33, not nan"),
        ((8, True, 1.0, 128), "zero_point must be between -128 and 127, not 128"),
        ((16, False, 1.0, -1), "zero_point must be between 0 and 65535, not -1"),
        ((8, False, 1.0, 0, True), "symmetric codes must be signed, not uint8"),
        ((8, True, 1.0, 1, True), "zero_point of symmetric codes must be 0, not 1"),
    ],
)
def test_refused_schemes(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Scheme(*arguments)


@pytest.mark.parametrize("zero_point", [-128, 127])
def test_limits_of_scales_are_legal(zero_point: int) -> None:
    for scheme in (Scheme(8, True, 2.0**-126, zero_point), Scheme(16, False, 2.0**111)):
        np.testing.assert_array_equal(scheme.quantise(scheme.dequantise(scheme.codes)), scheme.codes)


@pytest.mark.parametrize(
    ("bits", "is_signed", "message"),
    [
        ((3, 5), True, "not 9 as q3.5; q2.5 or q3.4 or q10.5 or q3.12 would do"),
        ((4, 3), False, "not 7 as uq4.3; uq5.3 or uq4.4 or uq13.3 or uq4.12 would do"),
        ((20, 20), True, "not 41 as q20.20; q7.0 would do"),
        ((8, 8), True, "not 17 as q8.8; q7.8 or q8.7 would do"),
        ((-1, 8), True, "not 8 as q-1.8; q7.8 would do"),
    ],
)
def test_refused_bits_of_fixed_point(bits: tuple[int, int], is_signed: bool, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^fixed point must have 8 or 16 bits \(.*\), {re.escape(message)}$"):
        fixed_point(*bits, is_signed=is_signed)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (np.zeros(1), TypeError, r"^values must be float32, not float64$"),
        (np.float32([1, np.nan]), ValueError, r"^values must be finite, not nan$"),
        (np.float32([-np.inf]), ValueError, r"^values must be finite, not -inf$"),
    ],
)
def test_refused_numbers(values: np.ndarray, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fixed_point(3, 4).quantise(values)


def test_codes_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^codes must be int8, not int16$"):
        fixed_point(3, 4).dequantise(np.zeros(1, np.int16))


# Names of schemes: what they mean, and that what is wrong with one is said.


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("q3.4", Scheme(8, True, 1 / 16)),
        ("q0.7", Scheme(8, True, 1 / 128)),
        ("q7.0", Scheme(8, True, 1)),
        ("q0.15", Scheme(16, True, 2.0**-15)),
        ("q7.8", Scheme(16, True, 2.0**-8)),
        ("uq4.4", Scheme(8, False, 1 / 16)),
        ("uq0.16", Scheme(16, False, 2.0**-16)),
        ("uq16.0", Scheme(16, False, 1)),
        ("q3.4:symmetric", Scheme(8, True, 1 / 16, is_symmetric=True)),
        ("int8:scale=0.05", Scheme(8, True, 0.05)),
        ("uint16:scale=0.05,zero_point=40000", Scheme(16, False, 0.05, 40_000)),
        ("int16:scale=0.1,symmetric", Scheme(16, True, 0.1, is_symmetric=True)),
        ("int8:scale=0.0625,zero_point=-3", Scheme(8, True, 1 / 16, -3)),
        ("int8:scale=2", Scheme(8, True, 2)),
    ],
)
def test_a_name_stands_for_a_scheme(name: str, scheme: Scheme) -> None:
    assert parse(name) == scheme
    assert name_of(scheme) == name


def test_fixed_point_has_one_name() -> None:
    assert name_of(parse("int8:scale=0.0625")) == "q3.4"
    assert parse("int8:zero_point=0,scale=0.0625") == fixed_point(3, 4)


@given(
    bits=st.sampled_from([8, 16]),
    is_signed=st.booleans(),
    scale=st.floats(2.0**-126, 2.0**111, width=32),
    zero_point=st.integers(0, 127),
    is_symmetric=st.booleans(),
)
def test_every_scheme_has_a_name(bits: int, is_signed: bool, scale: float, zero_point: int, is_symmetric: bool) -> None:
    is_symmetric &= is_signed
    scheme = Scheme(bits, is_signed, scale, 0 if is_symmetric else zero_point, is_symmetric)
    assert parse(name_of(scheme)) == scheme


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("int8", "int8: scale must be given, as int8:scale=0.05"),
        ("int8:", "int8:: options must be scale=S, zero_point=Z and symmetric, not nothing"),
        ("int8:scale=", "int8:scale=: scale must be a number, not nothing"),
        ("int8:scale", "int8:scale: options must be scale=S, zero_point=Z and symmetric, not scale"),
        ("int8:scale=1,zero=3", "int8:scale=1,zero=3: options must be scale=S, zero_point=Z and symmetric, not zero=3"),
        ("int8:scale=1,scale=1", "int8:scale=1,scale=1: scale must be given once, not twice"),
        ("int8:scale=1,zero_point=0.5", "int8:scale=1,zero_point=0.5: zero_point must be a whole number, not 0.5"),
        ("int8:scale=1,zero_point=nan", "int8:scale=1,zero_point=nan: zero_point must be a whole number, not nan"),
        ("uint8:scale=1,symmetric", "uint8:scale=1,symmetric: symmetric codes must be signed, not uint8"),
        ("uq4.4:symmetric", "uq4.4:symmetric: symmetric codes must be signed, not uq4.4"),
        ("q3.4:scale=1", "q3.4:scale=1: scale must be left out of fixed point, which q3.4 says all of"),
        ("q3.4:zero_point=1", "q3.4:zero_point=1: zero_point must be left out of fixed point, which q3.4 says all of"),
    ],
)
def test_refused_options(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse(name)


@pytest.mark.parametrize("name", ["", "q", "q3", "q3.", "q-1.8", "Q3.4", "q3.4 ", "int32:scale=1", "float32", "q٣.4"])
def test_other_names_are_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'scheme must be {FORMS}, not {name}')}$"):
        parse(name)


def test_bits_that_do_not_add_up_are_refused_with_some_that_do() -> None:
    with pytest.raises(ValueError, match=r"^q3\.5: fixed point must have 8 or 16 bits .* q2\.5 or q3\.4 or"):
        parse("q3.5")
