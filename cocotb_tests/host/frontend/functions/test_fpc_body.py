"""Fast pointwise convolutions in networks: recognised by their bodies, exact, and refused where they were altered."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from cocotb_tests.support.networks.bodies import Change, at, attribute, extra, node, operator, reads, shuffle, value
from cocotb_tests.support.networks.butterflies import (
    Network,
    fast_network,
    patterns,
    random_epilogue,
    random_stages,
    with_fast_pointwise,
)
from cocotb_tests.support.oracles.exactness import assert_answers, assert_exact, described_kinds, needs_reference
from lutterfly.examples import digits, write_fpc
from lutterfly.golden.numerics.butterfly import Density, Direction, Pattern
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.functions.fpc_body import BodyError, read_body
from lutterfly.host.graph import Convolution, FastPointwiseConvolution
from lutterfly.host.model import executed, reference
from lutterfly.host.model.arrays import describe_model
from lutterfly.host.model.functions.fpc_function import make_function
from lutterfly.host.model.model import Model


def codes(*shape: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).integers(-128, 128, (1, *shape)).astype(np.int8)}


@pytest.mark.sampled(2)
@needs_reference
@pytest.mark.parametrize(
    ("inputs", "outputs", "shape"),
    [(3, 256, (2, 3)), (256, 3, (2, 2)), (5, 7, (4, 4)), (64, 64, (5, 5)), (100, 33, (7,)), (129, 200, ())],
)
@pytest.mark.parametrize("after", ["", "HardSwish"])
@pytest.mark.parametrize("direction", ["bottom-up", "top-down"])
def test_a_layer_is_exact_with_and_without_a_table(
    inputs: int, outputs: int, shape: tuple[int, ...], after: str, direction: str
):
    network = Network((inputs, *shape))
    pattern = Pattern.of(inputs, outputs, direction, skips=[(0, 1)])
    result = network.fast_pointwise("x", pattern, spatial=len(shape))
    data = network.data(network.table(result, after) if after else result)
    graph = assert_exact(data, codes(inputs, *shape))
    (layer,) = graph.layers
    assert isinstance(layer, FastPointwiseConvolution)
    assert layer.stages.pattern == pattern
    assert (layer.table is not None) == bool(after)
    stages = f"fast pointwise convolution, {pattern.stages} stages"
    assert described_kinds(import_model(data)) == [stages + " + table" * bool(after)]


@pytest.mark.regress
@needs_reference
def test_a_network_of_other_layers_and_functions_is_exact():
    """Convolutions, depthwise ones, a sum, a concatenation, pooling and views around four of them."""
    network = Network((3, 8, 8))
    value = network.convolution("x", 3, 12, 3)
    wide = network.fast_pointwise(value, Pattern.of(12, 20, skips=[(0, 4)]), seed=1)
    deep = network.convolution(network.table(wide), 20, 20, 3, groups=20)
    one = network.fast_pointwise(deep, Pattern.of(20, 12, "top-down"), seed=2)
    total = network.quantise(network.add("Add", network.dequantise(one), network.dequantise(value)), 0.1)
    pooled = network.add("MaxPool", total, kernel_shape=[2, 2], strides=[2, 2])
    joined = network.add("Concat", pooled, network.fast_pointwise(pooled, Pattern.of(12, 7), seed=3), axis=1)
    flat = network.add("Flatten", network.add("MaxPool", joined, kernel_shape=[4, 4]))
    result = network.fast_pointwise(flat, Pattern.of(19, 10), spatial=0, seed=4)
    data = network.data(network.dequantise(result))
    graph = assert_exact(data, codes(3, 8, 8))
    assert [type(layer) for layer in graph.layers].count(FastPointwiseConvolution) == 4
    assert_answers(data, codes(3, 8, 8, seed=1))


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("first", [0, pytest.param(100, marks=pytest.mark.regress)])
def test_drawn_networks_are_exact(first: int):
    met = set()
    for seed in range(first, first + (12 if first == 0 else 300)):
        data, feeds = fast_network(seed)
        graph = assert_exact(data, feeds, covered=False)
        met |= {type(layer).__name__ for layer in graph.layers}
    assert met >= {"FastPointwiseConvolution", "Convolution", "MaxPool", "Add", "Concat"}


@needs_reference
def test_two_of_one_input_do_not_melt_into_one():
    """Their bodies begin with the same operators, which ONNX Runtime computes once."""
    network = Network((6, 3, 3))
    first, second = (network.fast_pointwise("x", Pattern.of(6, 6), seed=seed) for seed in (1, 2))
    graph = assert_exact(network.data(first, second), codes(6, 3, 3))
    assert len(graph.layers) == 2


@needs_reference
def test_a_function_that_two_nodes_call_is_two_layers():
    network = Network((6, 3, 3))
    middle = network.fast_pointwise("x", Pattern.of(6, 6), seed=1)
    node = network.nodes[-1]
    data = network.data(network.add(node.op_type, middle, domain=node.domain))
    graph = assert_exact(data, codes(6, 3, 3))
    assert len(graph.layers) == 2
    assert graph.layers[0].stages is graph.layers[1].stages


@needs_reference
def test_a_function_that_another_one_calls_is_a_layer():
    """As exporters write modules of modules."""
    network = Network((6, 3, 3))
    network.fast_pointwise("x", Pattern.of(6, 6), seed=1)
    call = network.nodes.pop()
    opsets = [helper.make_opsetid("", network.opset), helper.make_opsetid(call.domain, 1)]
    body = [helper.make_node(call.op_type, ["a"], ["b"], "mix", domain=call.domain)]
    network.functions.append(helper.make_function("com.example", "Block", ["a"], ["b"], body, opsets))
    value = network.add("Block", "x", domain="com.example")
    data = network.data(network.table(network.add("Block", value, domain="com.example")))
    graph = assert_exact(data, codes(6, 3, 3))
    assert [type(layer) for layer in graph.layers] == [FastPointwiseConvolution, FastPointwiseConvolution]
    assert len({layer.name for layer in graph.layers}) == 2


@needs_reference
@pytest.mark.parametrize("spatial", [1, 2])
def test_transposes_around_it_vanish_as_around_a_convolution(spatial: int):
    """ONNX Runtime may move them through a function that it has inlined."""
    shape = (5, 4)[:spatial]
    ahead = [0, spatial + 1, *range(1, spatial + 1)]
    after = [0, *range(2, spatial + 2), 1]
    network = Network((*shape, 6))
    first = network.fast_pointwise(network.add("Transpose", "x", perm=ahead), Pattern.of(6, 9), spatial=spatial, seed=1)
    second = network.fast_pointwise(network.table(first), Pattern.of(9, 4), spatial=spatial, seed=2)
    data = network.data(network.add("Transpose", second, perm=after))
    assert_answers(data, codes(*shape, 6))
    graph = import_model(data)
    assert graph.tensors[graph.inputs[0]].shape == (*(1, *shape)[-2:], 6)
    assert [type(layer) for layer in graph.layers] == [FastPointwiseConvolution, FastPointwiseConvolution]


@needs_reference
def test_a_dynamic_batch_and_a_float_input_stay_on_the_host():
    network = Network((4, 3, 3))
    network.inputs[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    value = network.fast_pointwise(network.quantise("x"), Pattern.of(4, 4))
    result = network.dequantise(value)
    data = network.data(network.add("Softmax", result, axis=1))
    graph = import_model(data)
    assert graph.head
    assert graph.tail
    # Head and tail need none of the functions.
    assert not graph.head.proto.functions
    assert_answers(data, {"x": np.random.default_rng(0).normal(size=(1, 4, 3, 3)).astype(np.float32)})


@pytest.mark.parametrize("domain", ["", "com.example"])
def test_another_name_does_not_matter(domain: str):
    network = Network((6, 3, 3))
    model = network.model(network.fast_pointwise("x", Pattern.of(6, 6)))
    (function,), (node,) = model.functions, model.graph.node
    function.name = node.op_type = "mixing"
    if domain:
        function.domain = node.domain = domain
        model.opset_import.add(domain=domain, version=3)
    assert isinstance(import_model(model.SerializeToString()).layers[0], FastPointwiseConvolution)


@pytest.mark.regress
@given(patterns(most=40), st.integers(0, 1 << 16), st.integers(0, 2))
def test_what_is_written_is_read_back(pattern: Pattern, seed: int, spatial: int):
    stages, epilogue = random_stages(pattern, seed), random_epilogue(pattern.outputs, seed)
    function = make_function(stages, epilogue, 5, spatial=spatial)
    shuffle(function, seed)
    body = read_body(function)
    found = body.stages
    assert (found.pattern.distances, found.pattern.densities) == (pattern.distances, pattern.densities)
    assert (found.pattern.inputs, found.pattern.outputs) == (pattern.inputs, pattern.outputs)
    assert set(found.pattern.skips) == set(pattern.skips)
    assert (found.growth_shifts, found.input_shift) == (stages.growth_shifts, stages.input_shift)
    np.testing.assert_array_equal(found.own, stages.own)
    np.testing.assert_array_equal(found.cross, stages.cross)
    for name in ("bias", "scale", "zero_point", "low", "high"):
        np.testing.assert_array_equal(getattr(body.epilogue, name), getattr(epilogue, name))
    assert body.zero_point == 5


def drop_skip(function: onnx.FunctionProto) -> None:
    node(function, "stage2_values").input[0] = "stage2_rounded"


def padded_with(number: np.ndarray) -> Change:
    """The null channels hold this number."""

    def apply(function: onnx.FunctionProto) -> None:
        constant = helper.make_node("Constant", [], ["null"], "null", value=numpy_helper.from_array(np.asarray(number)))
        function.node.insert(0, constant)
        node(function, "extended").input.append("null")

    return apply


def test_a_pad_may_name_its_zero():
    pattern = Pattern.of(5, 7)
    function = make_function(random_stages(pattern, 0), random_epilogue(7, 0), 5)
    padded_with(np.float32(0))(function)
    assert read_body(function).stages.pattern == pattern


@pytest.mark.parametrize("change", [attribute("extended", mode="constant"), attribute("result", to=3, saturate=1)])
def test_attributes_may_say_what_holds_without_them(change: Change):
    pattern = Pattern.of(5, 7)
    function = make_function(random_stages(pattern, 0), random_epilogue(7, 0), 5)
    change(function)
    assert read_body(function).stages.pattern == pattern


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (operator("rounded", "Floor"), "the result's rounding must be computed by Round, not by Floor 'rounded'"),
        (operator("stage1_rounded", "Ceil"), "the rounding of stage 1 must be computed by Round, not by Ceil"),
        (operator("stage1_values", "Max"), "the limits of stage 1 must be computed by Clip, not by Max"),
        (operator("centred", "Add"), "the zero point must be computed by Sub, not by Add 'centred'"),
        (reads("stage1_rounded", 0, "stage1_sum"), "the unit of stage 1 must be computed by Mul, not by Add"),
        (value("stage1_greatest", lambda _: np.float32(127)), "stage 1 must saturate at -32768 and 32767, not"),
        (
            value("stage1_least", lambda _: np.float32(-32767)),
            "stage 1 must saturate at -32768 and 32767, not [-32767.0, 32767.0]",
        ),
        (
            value("stage1_unit", lambda unit: unit / 4),
            "the unit of stage 1 must be 0.015625 or 0.0078125, not 0.001953125",
        ),
        (value("stage0_own", at(2, 128)), "own[0] must be between -128 and 127, not 128"),
        (value("stage0_own", at(2, 1.5)), "the weights of stage 0 must be whole numbers, not 1.5"),
        (value("stage1_own", lambda _: np.float32(63)), "the one own weight of stage 1 must be 64, not 63"),
        (value("stage1_cross", lambda array: array[:4]), "the weights of stage 1 must have the shape [8, 1, ...]"),
        (value("stage1_cross", lambda array: array[..., 0]), "must be for 2 dimensions after the channels, not for 1"),
        (
            value("stage1_order", lambda order: order[::-1]),
            "stage 1 must pair values whose indices differ in one bit",
        ),
        (
            value("stage1_order", lambda order: np.arange(8) ^ 1),
            "distances must be [1, 2, 4] in any order, each once, not [1, 1, 4]",
        ),
        (reads("stage1_other", 0, "stage0_rounded"), "Gather 'stage1_other' must read what enters stage 1"),
        (attribute("stage1_other", axis=2), "Gather 'stage1_other' must have the attributes {'axis': 1}, not"),
        (reads("stage2_with0", 1, "stage1_other"), "what stage 2 adds to its sum, 'stage1_other', must enter it or"),
        (value("input_shift", lambda _: np.float32(3)), "the shift of the codes must be a power of two between 1 and"),
        (value("zero_point", lambda _: np.float32(200)), "the zero point must be between -128 and 127, not 200"),
        (value("result_zero_point", lambda _: np.float32(0.5)), "the result's zero point must be a whole number"),
        (value("bias", at(0, 40000)), "bias must be between -32768 and 32767, not 40000"),
        (value("scale", at(0, -1)), "multiplier must be finite and not negative, not -1.0"),
        (value("scale", at(0, np.nan)), "multiplier must be finite and not negative, not nan"),
        (value("low", lambda _: np.float32(-200)), "low must be between -128 and 127, not -200"),
        (value("kept_start", lambda _: np.array([1])), "Slice 'kept' must keep the first channels of axis 1"),
        (value("null_channels", at(1, 1)), "Pad 'extended' must put zeros after the channels of axis 1"),
        (padded_with(np.float32(1)), "Pad 'extended' must put zeros after the channels of axis 1"),
        (attribute("extended", mode="edge"), "Pad 'extended' must have the attributes by default, not"),
        (attribute("result", to=3, saturate=0), "Cast 'result' must have the attributes {'to': 3}, not"),
        (reads("biased", 1, "kept"), "Add 'biased' must have a computed operand and a Constant"),
        (extra("values"), "Relu 'more' is no part of it"),
    ],
)
def test_an_altered_body_is_refused_with_what_differs(change: Change, message: str):
    network = Network((5, 3, 3), opset=19)
    pattern = Pattern.of(5, 7, densities=["full", "cross", "cross"], skips=[(0, 2)])
    model = network.model(network.fast_pointwise("x", pattern))
    change(model.functions[0])
    with pytest.raises(BodyError, match=re.escape(message)):
        read_body(model.functions[0])
    called = re.escape(
        "net.onnx: function lutterfly.FastPointwiseConv_0 of 'FastPointwiseConv_00' must have the body of a fast "
        "pointwise convolution, and has another: "
    )
    remedy = "; write it as docs/fpc.md says, or call it otherwise to have its operators taken one by one"
    with pytest.raises(ModelError, match=f"^{called}.*{re.escape(remedy)}$"):
        import_model(model.SerializeToString(), "net.onnx")


def test_a_body_without_its_skip_is_another_function():
    """Each change of a body that is still one is seen."""
    stages, epilogue = random_stages(Pattern.of(5, 7, skips=[(0, 2)]), 0), random_epilogue(7, 0)
    function = make_function(stages, epilogue, 5)
    drop_skip(function)
    with pytest.raises(BodyError, match=r"^Add 'stage2_with0' is no part of it$"):
        read_body(function)
    function.node.remove(node(function, "stage2_with0"))
    assert read_body(function).stages.pattern.skips == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda function: function.input.append("more"), "it must have one input, one output and no attributes"),
        (lambda function: function.attribute.append("axis"), "it must have one input, one output and no attributes"),
        (lambda function: function.node.__delitem__(slice(None)), "it has no stages, each with a Gather"),
        (
            lambda function: setattr(function.opset_import[0], "version", 12),
            "its operator set must be at least 13, not 12",
        ),
        (
            lambda function: node(function, "bias").ClearField("attribute"),
            "Add 'biased' must have a computed operand and a Constant",
        ),
        (
            lambda function: setattr(node(function, "bias").attribute[0].t, "data_type", onnx.TensorProto.BFLOAT16),
            "cannot reshape array of size 8 into shape (4,1,1)",
        ),
    ],
)
def test_another_signature_is_refused(change: Change, message: str):
    function = make_function(random_stages(Pattern.of(4, 4), 0), random_epilogue(4, 0), 5)
    change(function)
    with pytest.raises(BodyError, match=f"^{re.escape(message)}$"):
        read_body(function)


def test_a_function_of_another_name_and_body_is_taken_for_its_operators():
    network = Network((4, 3, 3))
    value = network.convolution("x", 4, 4, 1)
    result = network.add("Twice", value, domain="com.example")
    body = [
        helper.make_node("Constant", [], ["scale"], value_float=0.05),
        helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(np.int8(3))),
        helper.make_node("DequantizeLinear", ["a", "scale", "zero"], ["b"]),
        helper.make_node("Tanh", ["b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "scale", "zero"], ["d"]),
    ]
    opsets = [helper.make_opsetid("", network.opset)]
    network.functions.append(helper.make_function("com.example", "Twice", ["a"], ["d"], body, opsets))
    graph = import_model(network.data(result))
    assert [type(layer) for layer in graph.layers] == [Convolution]
    assert graph.layers[0].table is not None


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        (
            (4, 3, 3),
            onnx.TensorProto.UINT8,
            "must read int8 codes, and 'x' is uint8; quantise with activation_type=QuantType.QInt8",
        ),
        (
            (4, 3),
            onnx.TensorProto.INT8,
            "must read a tensor of the shape [batch, 4, ...] with 2 dimensions after its channels, and 'x' has",
        ),
    ],
)
def test_other_inputs_are_refused(shape: tuple[int, ...], dtype: int, message: str):
    network = Network(shape)
    network.inputs[0].type.tensor_type.elem_type = dtype
    name = network.fast_pointwise("x", Pattern.of(4, 4))
    model = network.model(name)
    with pytest.raises(ModelError, match=re.escape(f"net.onnx: FastPointwiseConv_0 'FastPointwiseConv_00' {message}")):
        import_model(model.SerializeToString(), "net.onnx")


def test_pixels_as_channels_are_refused():
    network = Network((4, 2, 2))
    flat = network.add("Flatten", network.convolution("x", 4, 4, 1))
    data = network.data(network.fast_pointwise(flat, Pattern.of(16, 4), spatial=0))
    message = "FastPointwiseConv_0 'FastPointwiseConv_02' reads 2x2 pixels as the channels of a single one; pool it"
    with pytest.raises(ModelError, match=re.escape(message)):
        import_model(data)


def test_densities_are_read_from_what_is_a_number_for_each_channel():
    pattern = Pattern.of(8, 8, densities=["unit", "cross", "full"])
    body = read_body(make_function(random_stages(pattern, 0), random_epilogue(8, 0), 5))
    assert body.stages.pattern.densities == (Density.UNIT, Density.CROSS, Density.FULL)


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("name", "count"), [("kws_qop", 4), ("vww_qop", 13)])
def test_mlperf_tiny_with_fast_layers_is_exact(name: str, count: int, direction: Direction, models_dir: Path):
    model = with_fast_pointwise(onnx.load(models_dir / f"{name}.onnx"), direction)
    (info,) = describe_model(Model.written(model))[0]
    feed = np.random.default_rng(0).integers(-128, 128, (1, *info.sample_shape)).astype(np.int8)
    data = model.SerializeToString()
    # The softmax at the end runs on the host.
    graph = assert_exact(data, {info.name: feed}, covered=False)
    layers = [layer for layer in graph.layers if isinstance(layer, FastPointwiseConvolution)]
    assert len(layers) == count
    assert all(layer.requantisation.shift == 3 for layer in layers)
    # They pass on what they read.
    values = reference.run(Model(data), {info.name: feed})
    assert all(len(np.unique(values[layer.output])) > 40 for layer in layers)


@pytest.mark.regress
@needs_reference
def test_the_digits_are_read_and_every_layer_is_exact():
    data, images = digits.fast_model_path().read_bytes(), digits.images()
    for image in images[:4]:
        graph = assert_exact(data, {"pixels": image[np.newaxis]})
    layers = [layer for layer in graph.layers if isinstance(layer, FastPointwiseConvolution)]
    assert [(layer.stages.pattern.inputs, layer.stages.pattern.outputs) for layer in layers] == [
        (64, 64),
        (64, 128),
        (128, 128),
    ]
    assert all(layer.requantisation.shift is not None and layer.table is None for layer in layers)
    (logits,) = executed.open_session(Model(data)).run(None, {"pixels": images})
    assert np.mean(logits.argmax(axis=1) == digits.labels()) >= 0.975


@needs_reference
def test_the_example_that_needs_no_lutterfly_is_recognised():
    data = write_fpc.model().SerializeToString()
    features = np.random.default_rng(0).normal(size=(1, 24, 8, 8)).astype(np.float32)
    graph = assert_exact(data, {"features": features})
    (layer,) = graph.layers
    assert isinstance(layer, FastPointwiseConvolution)
    assert layer.stages.pattern == Pattern.of(24, 40)
    quantised = {name: (tensor.scale, tensor.zero_point) for name, tensor in graph.tensors.items()}
    assert quantised == {"codes": (np.float32(0.02), -7), "mixed": (np.float32(0.03), 3)}
    # Random weights, and yet a layer that uses its codes.
    mixed = reference.run(Model(data), {"features": features})["mixed"]
    assert len(np.unique(mixed)) > 100
