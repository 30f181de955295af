"""Differences and extremes of two activations: their layers, what stays a table, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import TINY, Maker
from cocotb_tests.support.oracles.exactness import assert_exact_on_codes as exact
from cocotb_tests.support.oracles.exactness import layer_types, needs_reference
from lutterfly.host.frontend import ModelError, describe, import_model
from lutterfly.host.graph import Add, Arrange, Convolution, ElementwiseMaximum, Pointwise

pytestmark = needs_reference
BOTH_TYPES = pytest.mark.parametrize("unsigned", [False, True])
KINDS = {"Sub": (Add, "addition"), "Max": (ElementwiseMaximum, "maximum"), "Min": (ElementwiseMaximum, "maximum")}


def combined(kind: str, *, unsigned: bool = False, relu: bool = False, scale: float = 0.03) -> Maker:
    """A convolution's result and its input, combined."""
    made = Maker(np.random.default_rng(1), "qdq", unsigned, TINY)
    made.start((1, 3, 6, 6), 0.02)
    first = made.dequantised()
    made.product("Conv", (3, 3, 1, 1), 0, (1, 3, 6, 6))
    result = made.node(kind, [first, made.dequantised()])
    made.quantise(made.node("Relu", [result]) if relu else result, *made.quantisation(scale), made.shape)
    return made


@pytest.mark.sampled(2)
@BOTH_TYPES
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_two_maps(kind: str, relu: bool, unsigned: bool) -> None:
    made = combined(kind, unsigned=unsigned, relu=relu)
    made.product("Conv", (2, 3, 1, 1), 0, (1, 2, 6, 6))
    graph = exact(made)
    layer, word = KINDS[kind]
    assert [one for one in layer_types(graph) if one is not Pointwise] == [Convolution, layer, Convolution]
    assert word in [row.kind.removesuffix(" + table") for row in describe(graph)]


@pytest.mark.parametrize("kind", ["Max", "Min"])
def test_codes_that_stand_for_the_same_numbers_need_no_table(kind: str) -> None:
    """Of a maximum; the order of a minimum's codes is turned around, in the layers around it where that can be."""
    made = Maker(np.random.default_rng(1), "qdq", False, TINY)
    made.start((1, 3, 6, 6), 0.02)
    first, ends = made.dequantised(), (made.scale, made.zero)
    made.product("Conv", (3, 3, 1, 1), 0, (1, 3, 6, 6))
    made.quantise(made.node("Identity", [made.dequantised()]), *ends, made.shape)
    made.quantise(made.node(kind, [made.dequantised(), first]), *ends, made.shape)
    graph = exact(made)
    tables = [layer.name for layer in graph.layers if isinstance(layer, Pointwise)]
    assert len(tables) == (kind == "Min")
    (layer,) = (layer for layer in graph.layers if isinstance(layer, ElementwiseMaximum))
    assert (layer.table is not None) == (kind == "Min")


@pytest.mark.sampled(2)
@BOTH_TYPES
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vector_first", [False, True])
def test_a_map_and_a_vector(vector_first: bool, kind: str, unsigned: bool) -> None:
    """The vector is there for every pixel."""
    made = Maker(np.random.default_rng(1), "qdq", unsigned, TINY)
    made.start((1, 3, 6, 6), 0.02)
    first = made.dequantised()
    made.product("Conv", (3, 3, 6, 6), 0, (1, 3, 1, 1))
    operands = [first, made.dequantised()]
    made.quantise(made.node(kind, operands[:: -1 if vector_first else 1]), *made.quantisation(0.03), (1, 3, 6, 6))
    made.product("Conv", (2, 3, 1, 1), 0, (1, 2, 6, 6))
    graph = exact(made)
    assert Arrange in layer_types(graph)
    assert KINDS[kind][0] in layer_types(graph)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_after_it_is_fused(kind: str) -> None:
    """What is between is compared as well: of a minimum it is a table of what the layer compares."""
    made = combined(kind)
    made.activation("Tanh")
    graph = exact(made)
    assert Pointwise not in layer_types(graph)[2:]
    assert graph.layers[-1].table is not None


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_of_a_tensor_and_a_function_of_it_is_a_table(kind: str) -> None:
    made = Maker(np.random.default_rng(1), "qdq", False, TINY)
    made.start((1, 3, 6, 6), 0.02)
    first = made.dequantised()
    made.activation("Sigmoid")
    made.quantise(made.node(kind, [first, made.dequantised()]), *made.quantisation(0.02), made.shape)
    assert layer_types(exact(made)) == [Pointwise]


def refusal(made: Maker) -> str:
    made.product("Conv", (2, 3, 1, 1), 0, (1, 2, 6, 6))
    with pytest.raises(ModelError) as refused:
        import_model(made.serialise())
    return str(refused.value)


def test_a_difference_that_no_tables_give_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with scales of few digits, of which many sums are near a half."""
    monkeypatch.setattr("lutterfly.host.frontend.lowering.pairs.difference_tables", lambda *_: None)
    found = refusal(combined("Sub"))
    assert "no two tables that were tried give ONNX Runtime's code for every pair of codes of Sub" in found
    assert found.endswith("choose other scales")


def test_what_is_no_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    total = np.add.outer(np.arange(-128, 128) // 2, np.arange(-128, 128) // 2).astype(np.int8)
    monkeypatch.setattr("lutterfly.host.frontend.lowering.pairs.tabulate_pairs", lambda *_: total)
    assert "ONNX Runtime computes something else for Max" in refusal(combined("Max"))
