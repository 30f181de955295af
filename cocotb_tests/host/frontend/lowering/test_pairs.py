"""Products, differences and extremes of two activations: their layers, what stays a table, and refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import FORMS, TINY, Maker
from cocotb_tests.support.networks.small_models import ONE_TYPE
from cocotb_tests.support.oracles.exactness import assert_exact_on_codes as exact
from cocotb_tests.support.oracles.exactness import layer_types, needs_reference
from lutterfly.host.frontend import ModelError, describe, import_model
from lutterfly.host.graph import Add, Arrange, Convolution, ElementwiseMaximum, ElementwiseProduct, MaxPool, Pointwise

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
    """Of what a convolution follows: the host cannot compute it."""
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


# Products of two activations: of maps, and of a map and a vector over its channels; and refusals.

Ends = tuple[str, str, str]
FORMS_AND_TYPES = pytest.mark.parametrize(("form", "unsigned"), [*itertools.product(FORMS, (False, True))])


def maker(form: str, *, unsigned: bool = False) -> Maker:
    made = Maker(np.random.default_rng(1), form, unsigned, TINY)
    made.start((1, 3, 6, 6), 0.02)
    return made


def ends(made: Maker) -> Ends:
    return made.tensor, made.scale, made.zero


def multiply(made: Maker, first: Ends, second: Ends, shape: tuple[int, ...], *, relu: bool = False) -> None:
    scale, zero = made.quantisation(0.015, -128 if relu else None)
    if made.form == "qop":
        made.tensor = made.node("QLinearMul", [*first, *second, scale, zero], domain="com.microsoft")
        made.scale, made.zero, made.shape = scale, zero, shape
        return
    product = made.node("Mul", [made.node("DequantizeLinear", operand) for operand in (first, second)])
    made.quantise(made.node("Relu", [product]) if relu else product, scale, zero, shape)


def excited(made: Maker, *, swap: bool, shape: tuple[int, ...] = (1, 3, 1, 1), relu: bool = False) -> None:
    """A map by what a convolution makes of its greatest elements."""
    trunk = ends(made)
    made.pool((1, 3, 1, 1), kernel_shape=(6, 6))
    made.product("Conv", (3, 3, 1, 1), 0, (1, 3, 1, 1))
    if shape != (1, 3, 1, 1):
        tensor = made.node("Reshape", [made.tensor, made.constant("shape", np.array(shape))])
        made.tensor, made.shape = tensor, shape
    multiply(made, *(trunk, ends(made))[:: -1 if swap else 1], (1, 3, 6, 6), relu=relu)


@pytest.mark.sampled(2)
@FORMS_AND_TYPES
@pytest.mark.parametrize("relu", [False, True])
def test_two_maps_are_multiplied(relu: bool, form: str, unsigned: bool) -> None:
    made = maker(form, unsigned=unsigned)
    trunk = ends(made)
    made.product("Conv", (3, 3, 1, 1), 0, (1, 3, 6, 6))
    multiply(made, trunk, ends(made), (1, 3, 6, 6), relu=relu)
    made.product("Conv", (2, 3, 1, 1), 0, (1, 2, 6, 6))
    graph = exact(made)
    assert layer_types(graph) == [Convolution, ElementwiseProduct, Convolution]
    assert graph.layers[1].inputs == ("x", graph.layers[0].output)
    assert not graph.layers[1].is_by_vector
    assert [row.kind for row in describe(graph)][1] == "product"


@pytest.mark.sampled(1)
@FORMS_AND_TYPES
@pytest.mark.parametrize("swap", [False, True])
def test_a_map_is_multiplied_by_a_vector(swap: bool, form: str, unsigned: bool) -> None:
    made = maker(form, unsigned=unsigned)
    excited(made, swap=swap)
    graph = exact(made)
    assert layer_types(graph) == [MaxPool, Convolution, ElementwiseProduct]
    # The map first, whatever the file says.
    assert graph.layers[2].inputs == ("x", graph.layers[1].output)
    assert graph.layers[2].spread == (6, 6)
    assert [row.kind for row in describe(graph)][2] == "product by vector"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", FORMS)
def test_a_table_after_a_product_is_fused(form: str) -> None:
    made = maker(form)
    excited(made, swap=False)
    made.activation("Tanh")
    graph = exact(made)
    assert layer_types(graph) == [MaxPool, Convolution, ElementwiseProduct]
    assert graph.layers[2].table is not None


@pytest.mark.parametrize("form", FORMS)
def test_a_factor_for_each_column_is_there_for_all(form: str) -> None:
    made = maker(form)
    trunk = ends(made)
    made.pool((1, 3, 1, 1), kernel_shape=(6, 6))
    made.product("Conv", (6, 3, 1, 1), 0, (1, 6, 1, 1))
    row = made.node("Reshape", [made.tensor, made.constant("shape", np.array([1, 1, 1, 6]))])
    multiply(made, trunk, (row, made.scale, made.zero), (1, 3, 6, 6))
    assert layer_types(exact(made)) == [MaxPool, Convolution, Arrange, ElementwiseProduct]


def test_factors_that_make_the_map_larger_are_refused() -> None:
    made = maker("qop")
    made.product("Conv", (3, 3, 1, 1), 0, (1, 3, 6, 6))
    trunk = ends(made)
    made.pool((1, 3, 1, 6), kernel_shape=(6, 1))
    row = made.tensor
    made.tensor, made.scale, made.zero = trunk
    made.pool((1, 3, 6, 1), kernel_shape=(1, 6))
    multiply(made, (row, *trunk[1:]), ends(made), (1, 3, 6, 6))
    found = refusal(made)
    assert "its operands have the shapes [1, 3, 1, 6] and [1, 3, 6, 1], and none has that of its result" in found
    assert "give one of them the shape of the result" in found


def test_a_product_that_no_scaling_gives_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """There was none among the 6,000 sets of scales that were tried."""
    monkeypatch.setattr("lutterfly.host.frontend.lowering.pairs.product_scaling", lambda *_: None)
    made = maker("qop")
    excited(made, swap=False)
    found = refusal(made)
    assert "no scaling that was tried gives ONNX Runtime's code for every product of QLinearMul" in found
    assert found.endswith("choose another scale for its result")


def test_operands_of_two_types_are_refused() -> None:
    made = maker("qdq")
    trunk = ends(made)
    made.pool((1, 3, 1, 1), kernel_shape=(6, 6))
    made.product("Conv", (3, 3, 1, 1), 0, (1, 3, 1, 1))
    gate = made.node("Sigmoid", [made.dequantised()])
    made.quantise(gate, made.constant("scale", np.float32(1 / 255)), made.constant("zero", np.uint8(0)), made.shape)
    multiply(made, trunk, ends(made), (1, 3, 6, 6))
    assert f"its operands are int8 and uint8; {ONE_TYPE}" in refusal(made)
