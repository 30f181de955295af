"""Names of schemes: what they mean, and that what is wrong with one is said."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lutterfly.golden.transfer.schemes import FORMS, Scheme, fixed_point, name_of, parse


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
