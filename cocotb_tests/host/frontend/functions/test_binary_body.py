"""Binary convolutions in networks: recognised by their bodies, exact, packed where they can be, refused if altered."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.networks.binary_networks import BinaryNetwork, binary_network, random_layer
from cocotb_tests.support.networks.bodies import (
    Change,
    assert_refused,
    at,
    attribute,
    call_from_another,
    codes,
    extra,
    node,
    operator,
    reads,
    rename,
    shuffle,
    value,
)
from cocotb_tests.support.oracles.exactness import assert_answers, assert_exact, described_kinds, needs_reference
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.functions import binary_body
from lutterfly.host.frontend.functions.binary_body import read_body
from lutterfly.host.frontend.functions.body import BodyError
from lutterfly.host.graph import BinaryConvolution, Concat, Convolution, MaxPool, Pointwise
from lutterfly.host.model.functions.binary_function import make_function

SAME = {"pads": (1, 1, 1, 1)}


@pytest.mark.sampled(6)
@needs_reference
@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "shape"),
    [
        (1, 1, (1, 1), (2, 3)),
        (3, 300, (1, 1), (2, 2)),
        (300, 3, (5, 5), (6, 5)),
        (64, 33, (3, 3), (5, 5)),
        (8, 9, (2, 4), (7, 4)),
        (300, 20, (), ()),
        (1, 1, (), ()),
    ],
)
@pytest.mark.parametrize("is_codes", [False, True])
def test_a_layer_is_exact(inputs: int, outputs: int, kernel: tuple, shape: tuple, is_codes: bool):
    network = BinaryNetwork((inputs, *shape))
    result = network.binary("x", inputs, outputs, kernel, codes=is_codes, input_zero_point=3)
    graph = assert_exact(network.data(result), codes(inputs, *shape))
    kind = "fully connected" if kernel in ((), (1, 1)) and shape == () else f"convolution {'x'.join(map(str, kernel))}"
    # The result is an output of the network: its signs are codes.
    assert described_kinds(graph) == ["table + signs", f"binary {kind}" + " + table" * (not is_codes)]
    assert {tensor.bits for tensor in graph.tensors.values() if tensor.views} == {8}


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("first", [0, pytest.param(1000, marks=pytest.mark.regress)])
def test_drawn_networks_are_exact(first: int):
    met = set()
    for seed in range(first, first + (40 if first == 0 else 1500)):
        data, feeds = binary_network(seed)
        graph = assert_exact(data, feeds)
        bits = {name: tensor.bits for name, tensor in graph.tensors.items()}
        met |= {(type(layer).__name__, bits[layer.input], bits[layer.output]) for layer in graph.layers}
    assert met >= {
        ("BinaryConvolution", 1, 1),
        ("BinaryConvolution", 1, 8),
        ("Convolution", 8, 1),
        ("Pointwise", 8, 1),
        ("MaxPool", 1, 1),
        ("Concat", 8, 8),
        ("Add", 8, 8),
    }
    # What the accelerator has.
    assert {kind for kind in met if kind[1] == 1} <= {(name, 1, bits) for name in _ON_BITS for bits in _ON_BITS[name]}
    assert {name for name, _, bits in met if bits == 1} <= {"BinaryConvolution", "Convolution", "Pointwise", "MaxPool"}


_ON_BITS = {"BinaryConvolution": (1, 8), "MaxPool": (1,)}


@needs_reference
@pytest.mark.parametrize("first", [0, pytest.param(100, marks=pytest.mark.regress)])
def test_wide_networks_are_exact(first: int):
    for seed in range(first, first + (2 if first == 0 else 60)):
        assert_exact(*binary_network(seed, most_channels=300, side=5))


@needs_reference
def test_maps_that_binary_layers_alone_read_are_packed():
    """Also through pooling, and flattened."""
    network = BinaryNetwork((3, 8, 8))
    first = network.convolution("x", 3, 12, 3)
    second = network.binary(first, 12, 20, input_zero_point=3, pad_value=-1, **SAME)
    third = network.binary(second, 20, 33, pad_value=0, **SAME)
    pooled = network.add("MaxPool", third, kernel_shape=[2, 2], strides=[2, 2])
    fourth = network.binary(pooled, 33, 16, (2, 2), input_zero_point=1)
    result = network.binary(network.add("Flatten", fourth), 16 * 9, 10, (), codes=True)
    graph = assert_exact(network.data(result), codes(3, 8, 8))
    assert described_kinds(graph) == [
        "convolution 3x3 + table + signs",
        "binary convolution 3x3 + signs",
        "binary convolution 3x3 + signs",
        "max pooling 2x2 stride 2x2",
        "binary convolution 2x2 + signs",
        "binary fully connected",
    ]
    assert [graph.tensors[name].bits for name in (second, third, pooled, fourth, result)] == [1, 1, 1, 1, 8]
    # Zero points of 0 need no table.
    assert [layer.table is None for layer in graph.layers] == [False, *[True] * 5]


@needs_reference
def test_a_map_that_others_read_stays_codes_and_its_signs_are_taken_once():
    network = BinaryNetwork((6, 5, 5))
    middle = network.binary("x", 6, 9)
    parts = [network.binary(middle, 9, 4), network.binary(middle, 9, 7)]
    beside = network.convolution(middle, 9, 5, 3, zero_point=0)
    graph = assert_exact(network.data(*parts, beside), codes(6, 5, 5))
    assert graph.tensors[middle].bits == 8
    signs = [layer for layer in graph.layers if isinstance(layer, Pointwise)]
    assert [layer.inputs for layer in signs] == [("x",), (middle,)]
    assert {layer.inputs for layer in graph.layers if layer.output in parts} == {(signs[1].output,)}


@needs_reference
def test_signs_at_other_zero_points_are_others():
    network = BinaryNetwork((6, 5, 5))
    parts = [network.binary("x", 6, 4, input_zero_point=zero) for zero in (-9, 0, -9)]
    graph = assert_exact(network.data(*parts), codes(6, 5, 5))
    tables = [layer.table for layer in graph.layers if isinstance(layer, Pointwise) and layer.inputs == ("x",)]
    assert [table is None for table in tables] == [False, True]


@needs_reference
@pytest.mark.parametrize("zero_point", [-1, 2])
def test_a_map_of_signs_that_all_count_as_one_is_not_packed(zero_point: int):
    """From -1 on everything is +1, from 2 on nothing."""
    network = BinaryNetwork((6, 5, 5))
    middle = network.binary("x", 6, 9)
    graph = assert_exact(network.data(network.binary(middle, 9, 4, input_zero_point=zero_point)), codes(6, 5, 5))
    assert all(tensor.bits == 8 for tensor in graph.tensors.values() if tensor.views)


@needs_reference
def test_a_pooling_that_is_read_as_codes_pools_codes():
    network = BinaryNetwork((6, 6, 6))
    middle = network.binary("x", 6, 9, **SAME)
    pooled = network.add("MaxPool", middle, kernel_shape=[2, 2], strides=[2, 2])
    parts = [network.binary(pooled, 9, 4), network.binary(middle, 9, 4)]
    graph = assert_exact(network.data(*parts, pooled), codes(6, 6, 6))
    (pool,) = (layer for layer in graph.layers if isinstance(layer, MaxPool))
    assert [graph.tensors[name].bits for name in (pool.input, pool.output)] == [8, 8]


@needs_reference
@pytest.mark.parametrize("groups", [1, 6])
def test_only_dense_convolutions_take_signs(groups: int):
    network = BinaryNetwork((6, 5, 5))
    middle = network.convolution("x", 6, 6, 3, groups=groups)
    graph = assert_exact(network.data(network.binary(middle, 6, 4, input_zero_point=3)), codes(6, 5, 5))
    expected = "convolution 3x3 + table + signs" if groups == 1 else "depthwise 3x3"
    assert described_kinds(graph)[0] == expected
    assert isinstance(graph.layers[1], BinaryConvolution if groups == 1 else Pointwise)


@needs_reference
def test_an_average_of_one_channel_takes_no_signs():
    """It has one group, as a dense convolution."""
    network = BinaryNetwork((1, 3, 3))
    pooled = network.quantise(network.add("GlobalAveragePool", network.dequantise("x")))
    graph = assert_exact(network.data(network.binary(pooled, 1, 4, (1, 1), input_zero_point=3)), codes(1, 3, 3))
    assert [type(layer).__name__ for layer in graph.layers] == ["AveragePool", "Pointwise", "BinaryConvolution"]


@needs_reference
def test_tables_in_front_of_signs_are_composed_with_them():
    network = BinaryNetwork((6, 5, 5))
    middle = network.table(network.convolution("x", 6, 9, 3), "HardSwish")
    graph = assert_exact(network.data(network.binary(middle, 9, 4, input_zero_point=3)), codes(6, 5, 5))
    assert described_kinds(graph) == ["convolution 3x3 + table + signs", "binary convolution 3x3 + table"]
    assert isinstance(graph.layers[0], Convolution)


@needs_reference
def test_a_concatenation_of_signs_joins_codes():
    network = BinaryNetwork((6, 5, 5))
    joined = network.add("Concat", network.binary("x", 6, 3), network.binary("x", 6, 4), axis=1)
    graph = assert_exact(network.data(network.binary(joined, 7, 4)), codes(6, 5, 5))
    (concat,) = (layer for layer in graph.layers if isinstance(layer, Concat))
    assert [graph.tensors[name].bits for name in (*concat.inputs, concat.output)] == [8, 8, 8]


@needs_reference
def test_layouts_around_it_vanish_as_around_a_convolution():
    network = BinaryNetwork((5, 4, 6))
    first = network.binary(network.add("Transpose", "x", perm=[0, 3, 1, 2]), 6, 9, **SAME)
    second = network.binary(first, 9, 4)
    data = network.data(network.add("Transpose", second, perm=[0, 2, 3, 1]))
    assert_answers(data, codes(5, 4, 6))
    graph = import_model(data)
    assert graph.tensors[graph.inputs[0]].shape == (5, 4, 6)
    assert described_kinds(graph) == [
        "signs",
        "binary convolution 3x3 + signs",
        "binary convolution 3x3 + table",
        "Transpose",
    ]


@needs_reference
@needs_reference
def test_a_layout_that_moves_values_is_a_layer():
    network = BinaryNetwork((6, 4, 5))
    turned = network.add("Transpose", network.binary("x", 6, 9, **SAME), perm=[0, 2, 1, 3])
    graph = assert_exact(network.data(network.binary(turned, 4, 3)), codes(6, 4, 5))
    assert "arrangement" in map(graph.kind_of, graph.layers)


@needs_reference
def test_a_pointwise_one_on_what_was_flattened_is_fully_connected():
    network = BinaryNetwork((6, 3, 4))
    middle = network.binary("x", 6, 5, **SAME)
    shape = network.constant([1, 60, 1, 1], np.int64)
    result = network.binary(network.add("Reshape", middle, shape), 60, 7, (1, 1))
    graph = assert_exact(network.data(result), codes(6, 3, 4))
    assert graph.layers[-1].window.kernel == (3, 4)
    assert graph.tensors[middle].bits == 1


@needs_reference
def test_float_ends_stay_on_the_host():
    network = BinaryNetwork((4, 3, 3))
    network.inputs[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    middle = network.binary(network.quantise("x"), 4, 4, (1, 1), input_zero_point=3)
    last = network.binary(middle, 4, 6, (1, 1))
    data = network.data(network.add("Softmax", network.dequantise(last, zero_point=0), axis=1))
    graph = import_model(data)
    assert graph.head
    assert graph.tail
    assert_answers(data, {"x": np.random.default_rng(0).normal(size=(1, 4, 3, 3)).astype(np.float32)})


@needs_reference
def test_a_function_that_another_one_calls_is_a_layer():
    network = BinaryNetwork((6, 3, 3))
    network.binary("x", 6, 6, **SAME)
    call_from_another(network)
    result = network.add("Block", network.add("Block", "x", domain="com.example"), domain="com.example")
    graph = assert_exact(network.data(result), codes(6, 3, 3))
    assert [type(layer) for layer in graph.layers] == [Pointwise, BinaryConvolution, BinaryConvolution]


@pytest.mark.parametrize("domain", ["", "com.example"])
def test_another_name_does_not_matter(domain: str):
    network = BinaryNetwork((6, 3, 3))
    model = network.model(network.binary("x", 6, 6))
    rename(model, domain)
    assert isinstance(import_model(model.SerializeToString()).layers[1], BinaryConvolution)


@needs_reference
def test_the_example_of_the_manual_is_a_network_of_two_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    manual = (Path(__file__).parents[4] / "docs" / "binary.md").read_text()
    example = manual.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/binary.md", "exec"), {})
    graph = assert_exact((tmp_path / "two_layers.onnx").read_bytes(), {"codes": codes(3, 8, 8)["x"]})
    assert described_kinds(graph) == ["table + signs", "binary convolution 3x3 + signs", "binary fully connected"]


@given(st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_what_is_written_is_read_back(seed: int):
    rng = np.random.default_rng(seed)
    kernel = (*rng.integers(1, 4, 2).tolist(),) if rng.integers(3) else ()
    shape = (*rng.integers(1, 10, 2).tolist(), *kernel)
    known = random_layer(rng, shape, codes=bool(rng.integers(2)))
    expected = known | {"input_zero_point": int(rng.integers(-128, 128))}
    if kernel:
        expected["pads"] = tuple(rng.integers(0, 3, 4).tolist())
        expected["pad_value"] = int(rng.integers(-1, 2)) if any(expected["pads"]) else 1
        expected["strides"], expected["dilations"] = (tuple(rng.integers(1, 4, 2).tolist()) for _ in range(2))
    if "scale" in known:
        expected |= {"zero_point": int(rng.integers(-128, 128)), "low": -100, "high": 101}
    function = make_function(**expected)
    shuffle(function, seed)
    body = read_body(function)
    np.testing.assert_array_equal(body.weights, known["weights"])
    np.testing.assert_array_equal(body.bias, known["bias"])
    np.testing.assert_array_equal(body.scale, known.get("scale"))
    found = {"pads": body.geometry.pads, "strides": body.geometry.strides, "dilations": body.geometry.dilations}
    found |= {"input_zero_point": body.zero_point, "pad_value": body.pad_value, "zero_point": body.result_zero_point}
    found |= {"low": body.low, "high": body.high}
    assert all(found[name] == expected[name] for name in found if name in expected)


def altered(change: Change, **known: object) -> onnx.ModelProto:
    """A network of one layer whose function is altered."""
    network = BinaryNetwork((5, 4, 4), opset=19)
    given = {"codes": True, "pads": (1, 0, 2, 1), "pad_value": -1, "input_zero_point": 4} | known
    model = network.model(network.binary("x", 5, 7, **given))
    change(model.functions[0])
    return model


def both(*changes: Change) -> Change:
    def apply(function: onnx.FunctionProto) -> None:
        for change in changes:
            change(function)

    return apply


def constants_first(function: onnx.FunctionProto) -> None:
    function.node.sort(key=lambda entry: entry.op_type != "Constant")


as_floats = value("weights", lambda array: array.astype(np.float32))


def without(name: str) -> Change:
    def apply(function: onnx.FunctionProto) -> None:
        function.node.remove(node(function, name))

    return apply


def as_one_number(name: str) -> Change:
    """A constant of channels as one number for all."""
    return value(name, lambda array: array.reshape(-1)[0])


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("change", "known"),
    [
        (constants_first, {}),
        (as_floats, {}),
        (both(as_floats, reads("products", 1, "weights"), without("kernel")), {}),
        (attribute("padded", mode="constant"), {}),
        (attribute("products", strides=[1, 1], dilations=[1, 1], group=1, kernel_shape=[3, 3], pads=[0] * 4), {}),
        (attribute("products", auto_pad="VALID"), {}),
        (attribute("products"), {}),
        (value("pad_value", lambda number: number.reshape(1)), {}),
        (value("pad_value", lambda _: np.float32(0)), {}),
        (as_one_number("scale"), {}),
        (as_one_number("bias"), {}),
        (value("bias", at(0, 1 << 30)), {}),
        (value("scale", at(0, 0)), {}),
        (value("threshold", lambda number: number.reshape(1)), {"codes": False}),
    ],
)
@needs_reference
def test_a_body_that_is_written_otherwise_is_recognised(change: Change, known: dict):
    model = altered(change, **known)
    graph = assert_exact(model.SerializeToString(), codes(5, 4, 4))
    assert any(isinstance(layer, BinaryConvolution) for layer in graph.layers)


NOT_INT32 = (
    "Add 'biased' must add the bias to inner products that Cast has made int32: ONNX Runtime multiplies the scale into "
    "the weights"
)
ITSELF = (
    "Conv 'products' must not pad by itself, with 0 that a binary map cannot hold; pad with a Pad node in front, whose "
    "value is +1 or -1, or 0 for nothing"
)
PAD_VALUE = "Pad 'padded' must name its value, +1 or -1, or 0 for a border that counts as nothing, not "
ORDER = "Where 'values' must give the Constants +1 and -1, in this order"
WEIGHTS = "the weights of Conv 'products' must be "


@pytest.mark.parametrize(
    ("change", "message", "known"),
    [
        (operator("rounded", "Floor"), "the result's rounding must be computed by Round, not by Floor 'rounded'", {}),
        (operator("clipped", "Max"), "the limits of the result must be computed by Clip, not by Max 'clipped'", {}),
        (operator("biased", "Sub"), "the sum of product and bias must be computed by Add, not by Sub 'biased'", {}),
        (operator("scaled", "Div"), "the result's scale must be computed by Mul, not by Div 'scaled'", {}),
        (operator("reached", "Greater"), "the signs of the codes must be computed by GreaterOrEqual, not by", {}),
        (operator("products", "ConvTranspose"), "the inner products must be computed by Conv or MatMul, not by", {}),
        (reads("biased", 0, "products"), NOT_INT32, {}),
        (reads("biased", 1, "numbers"), "Add 'biased' must have a computed operand and a Constant", {}),
        (reads("products", 0, "reached"), "the signs of the codes must be computed by Where, not by", {}),
        (
            both(constants_first, reads("floats", 0, "plus")),
            "Cast 'floats' must read the input 'codes', not 'plus'",
            {},
        ),
        (
            both(as_floats, value("weights", at(3, 0.5))),
            WEIGHTS + "+1 and -1, not 0.5 at [0, 0, 1, 0]; export their signs",
            {},
        ),
        (value("weights", at(3, -128)), WEIGHTS + "+1 and -1, not -128 at [0, 0, 1, 0]; export their signs", {}),
        (value("weights", at(9, 0)), WEIGHTS + "+1 and -1, not 0 at [0, 1, 0, 0]; export their signs", {}),
        (both(as_floats, value("weights", at(0, np.nan))), WEIGHTS + "+1 and -1, not nan at [0, 0, 0, 0]", {}),
        (value("weights", lambda array: array[..., 0]), WEIGHTS + "[outputs, inputs, kernel rows, kernel columns]", {}),
        (reads("products", 1, "values"), "Conv 'products' must have weights that are a Constant, and no bias", {}),
        (attribute("products", pads=[1, 1, 1, 1]), ITSELF, {}),
        (attribute("products", auto_pad="SAME_UPPER"), ITSELF, {}),
        (attribute("products", group=5), "Conv 'products' must have one group; write a function for each", {}),
        (attribute("products", kernel_shape=[2, 2]), "Conv 'products' must have the attributes of a convolution", {}),
        (value("pad_value", lambda _: np.float32(0.5)), PAD_VALUE + "[0.5]", {}),
        (value("pad_value", lambda _: np.float32(-128)), PAD_VALUE + "[-128.0]", {}),
        (lambda function: node(function, "padded").input.pop(), PAD_VALUE + "none", {}),
        (attribute("padded", mode="edge"), "Pad 'padded' must have the attributes by default, not", {}),
        (value("pads", at(1, 1)), "Pad 'padded' must put a border around rows and columns alone, not [0, 1, 1, 0,", {}),
        (value("pads", at(2, -1)), "Pad 'padded' must put a border around rows and columns alone, not [0, 0, -1,", {}),
        (value("pads", lambda pads: pads[:4]), "Pad 'padded' must have the sizes of a border for each of four", {}),
        (value("minus", lambda _: np.float32(0)), ORDER, {}),
        (value("plus", lambda _: np.float32(-1)), ORDER, {}),
        (value("plus", lambda _: np.ones(2, np.float32)), ORDER, {}),
        (reads("values", 2, "floats"), ORDER, {}),
        (value("zero_point", lambda _: np.float32(0.5)), "the zero point must be a whole number, not 0.5", {}),
        (value("zero_point", lambda _: np.float32(200)), "the zero point must be between -128 and 127, not 200", {}),
        (value("result_zero_point", lambda _: np.float32(0.5)), "the result's zero point must be a whole number", {}),
        (value("bias", lambda array: array.astype(np.float32) / 2), "the bias must be int32, not float32", {}),
        (value("bias", lambda array: array[:3]), "the bias must have the shape [7, 1, ...]", {}),
        (value("bias", lambda array: array[..., 0]), "the bias must be for 2 dimensions after the channels, not", {}),
        (value("scale", at(0, -1)), "multiplier must be finite and not negative, not -1.0", {}),
        (value("scale", at(0, np.inf)), "multiplier must be finite and not negative, not inf", {}),
        (value("low", lambda _: np.float32(-200)), "low must be between -128 and 127, not -200", {}),
        (attribute("result", to=3, saturate=0), "Cast 'result' must have the attributes {'to': 3}, not", {}),
        (
            value("threshold", lambda _: np.int32(2)),
            "the threshold of the result must be 0, not 2: the bias moves it",
            {"codes": False},
        ),
        (
            both(operator("signs", "Mul"), lambda function: node(function, "signs").input.pop()),
            "the limits of the result must be computed by Clip, not by Mul 'signs'",
            {"codes": False},
        ),
        (extra("values"), "Relu 'more' is no part of it", {}),
    ],
)
def test_an_altered_body_is_refused_with_what_differs(change: Change, message: str, known: dict):
    called = "BinaryConv_0 of 'BinaryConv_00' must have the body of a binary convolution"
    assert_refused(altered(change, **known), read_body, message, called=called, page="docs/binary.md")


def test_more_weights_than_float32_adds_up_exactly_are_refused(monkeypatch: pytest.MonkeyPatch):
    (function,) = altered(lambda function: None).functions
    count = read_body(function).weights[0].size
    monkeypatch.setattr(binary_body, "EXACT", count)
    assert read_body(function).weights[0].size == count
    monkeypatch.setattr(binary_body, "EXACT", count - 1)
    with pytest.raises(BodyError, match=rf" must be at most {count - 1} for an output, not {count}$"):
        read_body(function)


def test_an_unknown_function_of_the_domain_is_refused_with_both_differences():
    model = altered(operator("rounded", "Floor"))
    model.functions[0].name = model.graph.node[0].op_type = "Mixing"
    message = (
        "net.onnx: function lutterfly.Mixing of 'BinaryConv_00' must have the body of a fast pointwise convolution or "
        "binary convolution, and has another: fast pointwise convolution: it has no stages, each with a Gather; "
        "binary convolution: the result's rounding must be computed by Round, not by Floor 'rounded'; write it as "
        "docs/fpc.md or docs/binary.md says"
    )
    with pytest.raises(ModelError, match=f"^{re.escape(message)}"):
        import_model(model.SerializeToString(), "net.onnx")


def test_what_is_read_must_be_int8_codes_of_its_channels():
    network = BinaryNetwork((6, 4, 4))
    network.inputs[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    data = network.data(network.binary("x", 6, 4))
    with pytest.raises(
        ModelError, match=r"^model: BinaryConv_0 'BinaryConv_00' must read int8 codes, and 'x' is uint8"
    ):
        import_model(data)
