"""Constant operands with a value for each element: the host delivers them, as it does inputs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import FORMS, TINY, Maker
from cocotb_tests.support.oracles.exactness import assert_exact_on_codes as exact
from cocotb_tests.support.oracles.exactness import assert_right, layer_types, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Add, ElementwiseMaximum, ElementwiseProduct
from lutterfly.host.session.verify import verify

pytestmark = needs_reference
SHAPE = 1, 3, 6, 6
KINDS = {"Add": Add, "Mul": ElementwiseProduct, "Sub": Add, "Max": ElementwiseMaximum, "Min": ElementwiseMaximum}


def combined(kind: str, form: str, shape: tuple[int, ...], *, unsigned: bool = False, is_first: bool = False) -> Maker:
    """A convolution's result and a constant of a shape."""
    made = Maker(np.random.default_rng(1), form, unsigned, TINY)
    made.start(SHAPE, 0.02)
    made.product("Conv", (3, 3, 1, 1), 0, SHAPE)
    dtype = np.uint8 if unsigned else np.int8
    limits = np.iinfo(dtype)
    codes = made.constant("codes", made.rng.integers(limits.min, limits.max, shape, dtype, endpoint=True))
    ends = [(made.tensor, made.scale, made.zero), (codes, *made.quantisation(0.02))][:: -1 if is_first else 1]
    scale, zero = made.quantisation(0.03)
    if form == "qop" and kind in ("Add", "Mul"):
        inputs = [*ends[0], *ends[1], scale, zero]
        made.tensor = made.node(f"QLinear{kind}", inputs, domain="com.microsoft")
        made.scale, made.zero = scale, zero
    else:
        made.quantise(made.node(kind, [made.node("DequantizeLinear", end) for end in ends]), scale, zero, SHAPE)
    made.product("Conv", (2, 3, 1, 1), 0, (1, 2, 6, 6))
    return made


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize(("form", "unsigned"), [*itertools.product(FORMS, (False, True))])
@pytest.mark.parametrize("kind", ["Add", "Mul"])
def test_a_value_for_each_element(kind: str, form: str, unsigned: bool, is_first: bool) -> None:
    graph = exact(combined(kind, form, SHAPE, unsigned=unsigned, is_first=is_first))
    assert KINDS[kind] in layer_types(graph)
    assert len(graph.inputs) == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [SHAPE, (1, 1, 6, 6), (3, 6, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_on_the_core(kind: str, shape: tuple[int, ...]) -> None:
    assert_right(verify(combined(kind, "qdq", shape).serialise(), PRESETS["tiny"], samples=2))


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 1)])
def test_scalars_and_values_of_channels_are_no_inputs(shape: tuple[int, ...]) -> None:
    graph = import_model(combined("Mul", "qdq", shape).serialise())
    assert len(graph.inputs) == 1
    assert ElementwiseProduct not in layer_types(graph)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", FORMS)
def test_a_constant_in_a_concatenation(form: str) -> None:
    made = Maker(np.random.default_rng(1), form, False, TINY)
    made.start(SHAPE, 0.02)
    made.product("Conv", (3, 3, 1, 1), 0, SHAPE)
    token = made.constant("token", made.rng.integers(-128, 128, (1, 3, 1, 6), np.int8))
    ends = [(token, made.scale, made.zero), (made.tensor, made.scale, made.zero)]
    if form == "qop":
        inputs = [made.scale, made.zero, *itertools.chain.from_iterable(ends)]
        made.tensor = made.node("QLinearConcat", inputs, domain="com.microsoft", axis=2)
    else:
        parts = [made.node("DequantizeLinear", end) for end in ends]
        made.quantise(made.node("Concat", parts, axis=2), made.scale, made.zero, (1, 3, 7, 6))
    made.shape = 1, 3, 7, 6
    made.product("Conv", (2, 3, 1, 1), 0, (1, 2, 7, 6))
    data = made.serialise()
    assert len(import_model(data).inputs) == 2
    assert_right(verify(data, PRESETS["tiny"], samples=2))
