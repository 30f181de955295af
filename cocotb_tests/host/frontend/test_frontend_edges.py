"""Unusual models: other types, constant outputs, branches, computed shapes, operators that change nothing."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.networks.generated import Maker
from cocotb_tests.support.networks.small_models import ONE_TYPE, POWERS, convolved, refusal, without_numbers
from cocotb_tests.support.oracles.exactness import (
    assert_answers,
    assert_exact,
    assert_right,
    layer_names,
    needs_reference,
)
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import describe, import_model
from lutterfly.host.session.verify import verify

pytestmark = needs_reference


def feeds(seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).integers(-128, 128, (1, 3, 6, 6), np.int8)}


def other_codes(made: Maker, tensor: str, dtype: type, scale: float = 0.05) -> str:
    """Quantise to another type."""
    made.scale, made.zero = made.constant("scale", np.float32(scale)), made.constant("zero", dtype(100))
    made.tensor = made.node("QuantizeLinear", [tensor, made.scale, made.zero])
    return made.tensor


@pytest.mark.parametrize("operators", [(), ("Relu",), ("MaxPool",), ("Tanh", "MaxPool")])
def test_int8_codes_become_uint8_codes(operators: tuple[str, ...]):
    made = convolved()
    tensor = made.dequantised()
    for operator in operators:
        tensor = made.node(operator, [tensor], **({"kernel_shape": [2, 2]} if operator == "MaxPool" else {}))
    other_codes(made, tensor, np.uint8)
    assert_exact(made.serialise(), feeds())


def test_int8_and_uint8_codes_are_joined():
    made = convolved()
    first = made.dequantised()
    other_codes(made, made.node("Tanh", [first]), np.uint8, 0.02)
    other_codes(made, made.node("Concat", [first, made.dequantised()], axis=1), np.uint8)
    assert_exact(made.serialise(), feeds())


def test_a_product_from_int8_to_uint8():
    made = convolved()
    weight, scale, zero, _ = made.weights((2, 4, 1, 1), 0, False)
    product = made.node("Conv", [made.dequantised(), made.node("DequantizeLinear", [weight, scale, zero])])
    name = made.nodes[-1].name
    other_codes(made, product, np.uint8)
    assert without_numbers(refusal(made.serialise())) == (
        f"net.onnx: ONNX Runtime computes Conv '{name}' in float, because it reads int8 and makes uint8 codes, and "
        f"float32 may round the sum to either code; {ONE_TYPE}{POWERS}"
    )


def test_products_of_both_types():
    made = convolved()
    first = next(node.name for node in made.nodes if node.op_type == "Conv")
    other_codes(made, made.node("Tanh", [made.dequantised()]), np.uint8, 0.01)
    weight, scale, zero, _ = made.weights((2, 4, 1, 1), 0, False)
    product = made.node("Conv", [made.dequantised(), made.node("DequantizeLinear", [weight, scale, zero])])
    other_codes(made, product, np.uint8)
    second = [node.name for node in made.nodes if node.op_type == "Conv"][1]
    assert refusal(made.serialise()) == (
        f"net.onnx: Conv '{first}' reads int8 codes and Conv '{second}' reads uint8 codes; {ONE_TYPE}"
    )


def with_nodes(
    made: Maker, nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto], **constants: np.ndarray
) -> bytes:
    """The model with further nodes and other outputs."""
    model = onnx.load_from_string(made.serialise())
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    return model.SerializeToString()


def test_constant_outputs():
    made = convolved()
    codes = helper.make_tensor_value_info(made.tensor, TensorProto.INT8, None)
    outputs = [
        codes,
        helper.make_tensor_value_info("computed", TensorProto.FLOAT, [1, 2]),
        helper.make_tensor_value_info("given", TensorProto.FLOAT, [1, 2]),
    ]
    outputs[0].type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())
    for size in ("batch", 4, 4, 4):
        outputs[0].type.tensor_type.shape.dim.add(**{"dim_param" if size == "batch" else "dim_value": size})
    node = helper.make_node("Neg", ["given"], ["computed"], "negate")
    assert_answers(with_nodes(made, [node], outputs, given=np.float32([[1, 2]])), feeds())


def branch(made: Maker, name: str, operator: str) -> onnx.GraphProto:
    """A branch of an If that reads codes from outside."""
    operands = [made.tensor, made.scale, made.zero]
    nodes = [
        helper.make_node("DequantizeLinear", operands, [f"{name}_in"], f"{name}_begin"),
        helper.make_node(operator, [f"{name}_in"], [name], f"{name}_end"),
    ]
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 4, 4])])


def branching(made: Maker) -> list[onnx.NodeProto]:
    """An If on the sign of a code."""
    return [
        helper.make_node("Cast", [made.tensor], ["numbers"], "cast", to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["numbers"], ["sum"], "sum", keepdims=0),
        helper.make_node("Greater", ["sum", "limit"], ["condition"], "compare"),
        helper.make_node(
            "If",
            ["condition"],
            ["result"],
            "choose",
            then_branch=branch(made, "then", "Relu"),
            else_branch=branch(made, "else", "Neg"),
        ),
    ]


def test_codes_that_a_branch_takes_from_outside():
    made = convolved()
    data = with_nodes(
        made,
        branching(made),
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, [1, 4, 4, 4])],
        limit=np.float32(0),
    )
    for seed in range(4):
        assert_answers(data, feeds(seed))
    assert [row.kind for row in describe(import_model(data))][-1] == "If"


def test_names_that_are_given_twice():
    made = convolved()
    for node in made.nodes:
        node.name = "same"
    model = onnx.load_from_string(convolved().serialise())
    for node in model.graph.node:
        node.name = "same"
    assert refusal(model.SerializeToString()) == (
        "net.onnx: two nodes must not have the name 'same', as ONNX Runtime refuses them; give each node a name of its "
        "own, or none"
    )


def test_bfloat16():
    made = convolved()
    nodes = [helper.make_node("Cast", [made.tensor], ["numbers"], "cast", to=TensorProto.BFLOAT16)]
    output = helper.make_tensor_value_info("numbers", TensorProto.BFLOAT16, [1, 4, 4, 4])
    assert refusal(with_nodes(made, nodes, [output])) == (
        "net.onnx: 'numbers' of Cast 'cast' must be of a type that NumPy has, not bfloat16; export the model with "
        "float32 instead"
    )


def computed_shape(made: Maker) -> str:
    """The shape [batch, 64], put together as exporters do."""
    dequantised = made.dequantised()
    batch = made.node("Gather", [made.node("Shape", [dequantised]), made.constant("at", np.array([0]))])
    return made.node("Concat", [batch, made.constant("rest", np.array([64]))], axis=0)


def test_a_shape_that_is_computed_from_the_batch():
    made = convolved()
    made.quantise(made.node("Reshape", [made.dequantised(), computed_shape(made)]), made.scale, made.zero, (1, 64))
    made.product("Gemm", (5, 64), 0, (1, 5), transB=1)
    graph = assert_exact(made.serialise(), feeds())
    assert [row.where for row in describe(graph)] == ["accelerator"] * 2


@pytest.mark.parametrize("form", ["qop", "qdq"])
def test_a_gather_that_takes_everything_in_order(form: str):
    made = convolved()
    flat = made.constant("flat", np.array([-1]))
    tensor = made.tensor if form == "qop" else made.dequantised()
    tensor = made.node("Reshape", [tensor, flat])
    tensor = made.node("Gather", [tensor, made.constant("all", np.arange(64).reshape(1, 64))])
    if form == "qop":
        made.tensor, made.shape = tensor, (1, 64)
    else:
        made.quantise(tensor, made.scale, made.zero, (1, 64))
    made.product("Gemm", (5, 64), 0, (1, 5), transB=1)
    graph = assert_exact(made.serialise(), feeds())
    assert [row.where for row in describe(graph)] == ["accelerator"] * 2


# Operators that change nothing, as exporters leave them, are no layers and no reason to refuse a network.

CHANNELS = np.array([0]), np.array([4]), np.array([1])
ROWS = np.array([0]), np.array([1 << 60]), np.array([2])
BACKWARDS = np.array([-1]), np.array([-1 << 60]), np.array([1]), np.array([-1])


def between(operator: str, *operands: np.ndarray, form: str, **given) -> bytes:
    """Two convolutions on four channels, and an operator between them."""
    rng, constants, nodes = np.random.default_rng(1), [], []

    def constant(value: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(constants)}"))
        return constants[-1].name

    def node(name: str, inputs: list[str], output: str, **attributes) -> str:
        nodes.append(helper.make_node(name, inputs, [output], output, **attributes))
        return output

    scale, zero_point, none = constant(np.float32(0.05)), constant(np.int8(3)), constant(np.int8(0))
    codes = [scale, zero_point]

    def convolution(source: str, output: str) -> str:
        weights = [constant(rng.integers(-127, 128, (4, 4, 3, 3)).astype(np.int8)), constant(np.float32(0.01)), none]
        if form == "qop":
            return node("QLinearConv", [source, *codes, *weights, *codes], output, pads=[1] * 4)
        values = [node("DequantizeLinear", [source, *codes], f"{output}_x")]
        values.append(node("DequantizeLinear", weights, f"{output}_w"))
        return node("QuantizeLinear", [node("Conv", values, f"{output}_y", pads=[1] * 4), *codes], output)

    middle = node(operator, [convolution("x", "a"), *map(constant, operands)], "b", **given)
    convolution(middle, "y")
    ends = [helper.make_tensor_value_info(name, TensorProto.INT8, ["n", 4, 6, 5]) for name in "xy"]
    graph = helper.make_graph(nodes, operator, ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


@pytest.mark.sampled(7)
@pytest.mark.parametrize("form", ["qop", "qdq"])
@pytest.mark.parametrize(
    ("operator", "operands", "given"),
    [
        ("Slice", CHANNELS, {}),
        ("Slice", ROWS, {}),
        ("Slice", (*CHANNELS, np.array([1])), {}),
        ("Split", (), {"axis": 1}),
        ("Concat", (), {"axis": 1}),
        ("Identity", (), {}),
    ],
)
def test_is_no_layer(operator: str, operands: tuple[np.ndarray, ...], given: dict[str, int], form: str):
    data = between(operator, *operands, form=form, **given)
    assert layer_names(import_model(data)) == ["Convolution", "Convolution"]
    assert verify(data, PRESETS["tiny"], samples=1).is_right


def test_a_slice_backwards_is_no_identity():
    assert layer_names(import_model(between("Slice", *BACKWARDS, form="qop"))) == [
        "Convolution",
        "Arrange",
        "Convolution",
    ]


# ReduceMax over rows and columns between quantised tensors: max pooling, with the bytes of ONNX Runtime.


def network(shape: tuple[int, ...], axes: tuple[int, ...], *, keeps: bool, dequantised: bool, opset: int = 18) -> bytes:
    """A pointwise convolution, ReduceMax on its codes or on what they stand for, and a table."""
    rng = np.random.default_rng(0)
    held = {"scale": np.float32(0.1), "zero": np.int8(3), "unit": np.float32(0.01), "zero w": np.int8(0)}
    held["weights"] = rng.integers(-127, 128, (shape[1], 2, *[1] * (len(shape) - 2)), np.int8)
    ends = ["scale", "zero"]
    given: dict[str, object] = {"keepdims": int(keeps)}
    operands = []
    if opset < 18:
        given["axes"] = axes
    else:
        held["axes"], operands = np.array(axes, np.int64), ["axes"]
    nodes = [helper.make_node("QLinearConv", ["x", *ends, "weights", "unit", "zero w", *ends], ["a"], "before")]
    if dequantised:
        nodes.append(helper.make_node("DequantizeLinear", ["a", *ends], ["f"]))
        nodes.append(helper.make_node("ReduceMax", ["f", *operands], ["g"], "most", **given))
    else:
        nodes.append(helper.make_node("ReduceMax", ["a", *operands], ["b"], "most", **given))
        nodes.append(helper.make_node("DequantizeLinear", ["b", *ends], ["g"]))
    nodes += [
        helper.make_node("Tanh", ["g"], ["h"], "table"),
        helper.make_node("QuantizeLinear", ["h", "unit", "zero"], ["y"]),
    ]
    values = [
        helper.make_tensor_value_info("x", TensorProto.INT8, [1, 2, *shape[2:]]),
        helper.make_tensor_value_info("y", TensorProto.INT8, [None] * (len(shape) - (0 if keeps else len(axes)))),
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "maxima", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dequantised", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes", "kernel"),
    [
        ((1, 6, 5, 7), (2, 3), "5x7"),
        ((1, 6, 5, 7), (-1,), "1x7"),
        ((1, 6, 5, 7), (2,), "5x1"),
        ((1, 6, 9), (2,), "1x9"),
    ],
)
def test_rows_and_columns(
    shape: tuple[int, ...], axes: tuple[int, ...], kernel: str, keeps: bool, dequantised: bool
) -> None:
    data = network(shape, axes, keeps=keeps, dequantised=dequantised)
    kinds = [row.kind for row in describe(import_model(data)) if row.where == "accelerator"]
    assert any(kind.startswith(f"max pooling {kernel}") for kind in kinds)
    feeds = {"x": np.random.default_rng(1).integers(-128, 128, (1, 2, *shape[2:]), np.int8)}
    assert_exact(data, feeds)


def test_axes_as_an_attribute() -> None:
    data = network((1, 6, 5, 7), (2, 3), keeps=True, dequantised=True, opset=17)
    assert "max pooling 5x7 + table" in [row.kind for row in describe(import_model(data))]


def test_channels_are_none_of_them() -> None:
    """The host computes it, as what it is."""
    rows = describe(import_model(network((1, 6, 5, 7), (1, 2), keeps=True, dequantised=True)))
    assert [row.where for row in rows if row.kind == "ReduceMax"] == ["host"]
    assert not any(row.kind.startswith("max pooling") for row in rows)


def test_a_map_larger_than_the_feature_memory() -> None:
    """The greatest of columns first, part by part, then that of rows."""
    shape = (1, 4, 60, 50)
    config = PRESETS["tiny"]
    assert np.prod(shape) > config.memory.feature_bytes
    assert_right(verify(network(shape, (2, 3), keeps=False, dequantised=True), config, samples=2))
