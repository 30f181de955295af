"""The frontend: quantised ONNX models in every accepted form give graphs with ONNX Runtime's bytes."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import FORMS, TINY, Maker, layer
from cocotb_tests.support.networks.small_models import convolved, maker
from cocotb_tests.support.oracles.exactness import assert_exact, needs_reference, tabled_names
from lutterfly.examples import digits
from lutterfly.host.frontend import describe, import_model
from lutterfly.host.graph import Convolution, MaxPool, Pointwise, Window
from lutterfly.host.graph.evaluate import evaluate, from_onnx, to_onnx
from lutterfly.host.model import executed, reference
from lutterfly.host.model.model import Model

pytestmark = needs_reference


def codes(shape: tuple[int, ...], seed: int = 0, dtype: type = np.int8) -> dict[str, np.ndarray]:
    limits = np.iinfo(dtype)
    return {"x": np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape, dtype)}


def region(operators: list[str], form: str = "qdq", *, scale: float = 0.02) -> Maker:
    """A convolution, then ``operators`` between DequantizeLinear and QuantizeLinear."""
    made = convolved(form)
    tensor = made.dequantised()
    for operator in operators:
        attributes = {"kernel_shape": [2, 2]} if operator == "MaxPool" else {}
        tensor = made.node(operator, [tensor], **attributes)
    made.quantise(tensor, *made.quantisation(scale, -20), ())
    return made


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", digits.FORMS)
def test_the_demo_network(form: str):
    data = digits.model_path(form).read_bytes()
    graph = assert_exact(data, {"pixels": digits.images()[:1]})
    assert tabled_names(graph) == [
        "Convolution + table",
        "Convolution",
        "MaxPool",
        "Convolution",
        "MaxPool",
        "Convolution + table",
        "Convolution",
    ]
    assert graph.model.data == data
    assert [(row.kind, row.where) for row in describe(graph)] == [
        ("QuantizeLinear", "host"),
        ("convolution 3x3 + table", "accelerator"),
        ("convolution 3x3", "accelerator"),
        ("max pooling 2x2 stride 2x2", "accelerator"),
        ("convolution 3x3", "accelerator"),
        ("max pooling 2x2 stride 2x2", "accelerator"),
        ("fully connected + table", "accelerator"),
        ("fully connected", "accelerator"),
        ("DequantizeLinear", "host"),
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", digits.FORMS)
def test_head_and_tail_around_the_middle_give_the_answer(form: str):
    data, pixels = digits.model_path(form).read_bytes(), digits.images()[:1]
    graph = import_model(data)
    (entry,) = graph.inputs
    tensor = graph.tensors[entry]
    head = executed.open_session(graph.head).run(None, {"pixels": pixels})[0]
    values = evaluate(graph, {entry: from_onnx(tensor.views[0], tensor.shape, head)})
    (leaving,) = graph.outputs
    result = to_onnx(graph.tensors[leaving].views[0], values[leaving])
    logits = executed.open_session(graph.tail).run(["logits"], {graph.tensors[leaving].views[0].name: result})[0]
    assert logits.tobytes() == reference.run(Model(data), {"pixels": pixels}, ["logits"])["logits"].tobytes()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("operators", [["Tanh"], ["Erf"], ["Neg"], ["Relu", "Tanh"]])
def test_a_pointwise_chain_fuses_as_a_table_into_the_convolution(form: str, operators: list[str]):
    graph = assert_exact(region(operators, form).serialise(), codes((1, 3, 6, 6)))
    assert tabled_names(graph) == ["Convolution + table"]
    assert graph.layers[0].inner != graph.layers[0].output


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        (["Tanh", "MaxPool"], ["Convolution + table", "MaxPool"]),
        (["MaxPool", "Tanh"], ["Convolution", "MaxPool + table"]),
        (["Neg", "MaxPool"], ["Convolution + table", "MaxPool"]),
        (["MaxPool", "Neg"], ["Convolution", "MaxPool + table"]),
        (["Exp", "MaxPool", "Neg"], ["Convolution", "MaxPool + table"]),
        (["MaxPool", "Tanh", "MaxPool"], ["Convolution", "MaxPool + table", "MaxPool"]),
        (["Tanh", "MaxPool", "Flatten"], ["Convolution + table", "MaxPool"]),
        (["Flatten", "Tanh"], ["Convolution + table"]),
    ],
)
def test_pooling_inside_a_region_works_on_codes(form: str, operators: list[str], expected: list[str]):
    assert tabled_names(assert_exact(region(operators, form).serialise(), codes((1, 3, 6, 6)))) == expected


@pytest.mark.parametrize("form", FORMS)
def test_a_table_stays_a_layer_where_the_codes_in_front_of_it_are_needed(form: str):
    made = convolved(form)
    before = made.tensor
    made.activation("Tanh")
    graph = assert_exact(made.serialise([before, made.tensor]), codes((1, 3, 6, 6)))
    assert tabled_names(graph) == ["Convolution", "Pointwise + table"]
    assert graph.outputs == [before, made.tensor]


@pytest.mark.parametrize("form", FORMS)
def test_branches_read_the_same_tensor(form: str):
    made = convolved(form)
    trunk = made.tensor, made.scale, made.zero, made.shape
    made.product("Conv", (4, 4, 3, 3), 0, (1, 4, 2, 2))
    first = made.tensor
    made.tensor, made.scale, made.zero, made.shape = trunk
    made.activation("Sigmoid")
    made.product("Conv", (4, 4, 1, 1), 0, (1, 4, 4, 4))
    graph = assert_exact(made.serialise([first, made.tensor]), codes((1, 3, 6, 6)))
    assert tabled_names(graph) == ["Convolution", "Convolution", "Pointwise + table", "Convolution"]


@pytest.mark.parametrize("form", FORMS)
def test_a_transpose_in_front_makes_the_input_nhwc(form: str):
    made = maker((1, 5, 6, 3), form)
    made.tensor, made.shape = made.node("Transpose", ["x"], perm=[0, 3, 1, 2]), (1, 3, 5, 6)
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 3, 4))
    graph = assert_exact(made.serialise(), codes((1, 5, 6, 3)))
    tensor = graph.tensors["x"]
    assert (graph.inputs, tensor.shape) == (["x"], (5, 6, 3))
    assert [view.axes for view in tensor.views] == [(0, 1, 2), (2, 0, 1)]


@pytest.mark.parametrize("form", FORMS)
def test_an_input_vector_that_becomes_a_map(form: str):
    made = maker((1, 60), form)
    made.tensor, made.shape = made.node("Reshape", ["x", made.constant("shape", np.array([-1, 3, 4, 5]))]), (1, 3, 4, 5)
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 2, 3))
    assert assert_exact(made.serialise(), codes((1, 60))).tensors["x"].shape == (4, 5, 3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("last", [False, True])
def test_flattened_weights_follow_the_order_of_the_map(form: str, last: bool):
    made = convolved(form, channels=5)
    if last:
        made.tensor, made.shape = made.node("Transpose", [made.tensor], perm=[0, 2, 3, 1]), (1, 4, 4, 5)
    made.flatten()
    made.product("Gemm", (7, 80), 0, (1, 7), transB=1)
    graph = assert_exact(made.serialise(), codes((1, 3, 6, 6)))
    assert (graph.layers[-1].weights.shape, graph.layers[-1].window) == ((7, 4, 4, 5), Window((4, 4)))


@pytest.mark.parametrize("form", FORMS)
def test_squeeze_and_a_pointwise_convolution_on_a_flat_tensor(form: str):
    made = maker((1, 3, 3, 3), form)
    made.product("Conv", (5, 3, 2, 2), 0, (1, 5, 2, 2))
    made.tensor = made.node("Reshape", [made.tensor, made.constant("shape", np.array([-1, 20, 1, 1]))])
    made.shape = (1, 20, 1, 1)
    made.product("Conv", (6, 20, 1, 1), 0, (1, 6, 1, 1))
    made.tensor, made.shape = made.node("Squeeze", [made.tensor, made.constant("axes", np.array([2, 3]))]), (1, 6)
    made.product("Gemm", (3, 6), 0, (1, 3), transB=1)
    graph = assert_exact(made.serialise(), codes((1, 3, 3, 3)))
    assert [item.window.kernel for item in graph.layers] == [(2, 2), (2, 2), (1, 1)]


@pytest.mark.parametrize("form", FORMS)
def test_a_pointwise_convolution_whose_window_lies_on_the_border_returns_its_bias(form: str):
    made = maker((1, 5, 2, 2), form)
    made.product("Conv", (6, 5, 2, 2), 0, (1, 6, 1, 1))
    made.product("Conv", (7, 6, 1, 1), 0, (1, 7, 1, 1), pads=[0, 1, 0, 0], strides=[3, 2])
    graph = assert_exact(made.serialise(), codes((1, 5, 2, 2)))
    assert graph.layers[-1].window.pads == (0, 1, 0, 0)


@pytest.mark.parametrize("form", FORMS)
def test_a_matrix_product_on_rows_is_a_pointwise_convolution(form: str):
    made = maker((1, 6, 8), form)
    made.product("MatMul", (8, 5), 1, (1, 6, 5))
    made.product("MatMul", (5, 4), 1, (1, 6, 4))
    graph = assert_exact(made.serialise(), codes((1, 6, 8)))
    assert [graph.tensors[item.output].shape for item in graph.layers] == [(1, 6, 5), (1, 6, 4)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("alpha", [0.3, 1.7])
@pytest.mark.parametrize(("form", "bias"), [("qop", True), ("qop", False), ("qdq", False)])
def test_alpha_of_a_quantised_gemm(form: str, bias: bool, alpha: float):
    made = maker((1, 20), form)
    made.product("Gemm", (8, 20), 0, (1, 8), bias=bias, transB=1, alpha=alpha)
    for seed in range(20):
        assert_exact(made.serialise(), codes((1, 20), seed))


def tell_tale(input_scale: np.float32, weight_scale: np.float32, output_scale: np.float32, alpha: np.float32) -> int:
    """An accumulator whose code tells the order apart in which the scales are multiplied, or 0."""
    scale = (alpha * input_scale) * weight_scale / output_scale
    others = {alpha * input_scale * (weight_scale / output_scale), alpha * weight_scale * (input_scale / output_scale)}
    if scale in others:
        return 0
    halves = np.rint((np.arange(-120, 120) + 0.5) / np.float64(scale)).astype(np.int32)
    found = np.rint(halves.astype(np.float32) * scale)
    apart = np.all([np.rint(halves.astype(np.float32) * other) != found for other in others], axis=0)
    return int(halves[apart][0]) if apart.any() else 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("operator", ["Conv", "Gemm", "MatMul"])
@pytest.mark.parametrize("form", FORMS)
def test_scales_are_multiplied_in_onnx_runtimes_order(form: str, operator: str):
    rng, features, compared = np.random.default_rng(0), 128, 0
    while compared < 6:
        input_scale, weight_scale = rng.uniform(0.001, 0.1, 2).astype(np.float32)
        output_scale = np.float32(input_scale * weight_scale * rng.uniform(5000, 9000))
        alpha = np.float32(0.7 if (form, operator) == ("qop", "Gemm") else 1)
        total = tell_tale(input_scale, weight_scale, output_scale, alpha)
        if total == 0:
            continue
        made = Maker(np.random.default_rng(compared), form, False, TINY)
        made.start((1, features, 1, 1) if operator == "Conv" else (1, features), float(input_scale))
        made.constants[made.zero] = np.int8(0)
        # All inputs are 127 but the last, which is 1: the weights reach every accumulator.
        rest, kernel = total % 127, np.zeros(features, np.int8)
        quotient = (total - rest) // 127
        for at in range(features - 1):
            kernel[at] = np.clip(quotient, -128, 127)
            quotient -= int(kernel[at])
        kernel[-1] = rest
        assert quotient == 0
        feeds = np.full(made.shape, 127, np.int8)
        feeds.reshape(-1)[-1] = 1
        put_product(made, operator, kernel, weight_scale, output_scale, float(alpha))
        graph = assert_exact(made.serialise(), {"x": feeds})
        assert graph.layers[0].multiplier[0] == (alpha * input_scale) * weight_scale / output_scale
        compared += 1


def put_product(
    made: Maker, operator: str, kernel: np.ndarray, weight_scale: np.float32, output_scale: np.float32, alpha: float
) -> None:
    """Append a product with one result and no bias."""
    shape = {"Conv": (1, -1, 1, 1), "Gemm": (1, -1), "MatMul": (-1, 1)}[operator]
    names = [made.constant("operand", value) for value in (kernel.reshape(shape), weight_scale, np.int8(0))]
    scale, zero = made.quantisation(output_scale, 0)
    attributes = {"transB": 1} | ({"alpha": alpha} if alpha != 1 else {}) if operator == "Gemm" else {}
    if made.form == "qdq":
        operands = [made.dequantised(), made.node("DequantizeLinear", names)]
        made.quantise(made.node(operator, operands, **attributes), scale, zero, ())
    elif operator == "Gemm":
        ends = [made.tensor, made.scale, made.zero, *names, "", scale, zero]
        made.tensor = made.node("QGemm", ends, domain="com.microsoft", **attributes)
    else:
        made.tensor = made.node(f"QLinear{operator}", [made.tensor, made.scale, made.zero, *names, scale, zero])


@pytest.mark.parametrize("operators", [["Relu"], ["MaxPool"], ["Relu", "MaxPool"]])
def test_what_onnx_runtime_moves_after_a_convolution_in_qdq_form(operators: list[str]):
    made = maker((1, 3, 6, 6))
    scale, zero = made.quantisation(0.5, -128)
    tensor = unquantised_convolution(made)
    for operator in operators:
        tensor = made.node(operator, [tensor], **({"kernel_shape": [2, 2]} if operator == "MaxPool" else {}))
    made.quantise(tensor, scale, zero, ())
    graph = assert_exact(made.serialise(), codes((1, 3, 6, 6)))
    assert tabled_names(graph) == ["Convolution", "MaxPool"][: 1 + operators.count("MaxPool")]


def unquantised_convolution(made: Maker, *, bias: np.ndarray | None = None) -> str:
    """A convolution on dequantised operands; its float result."""
    weight, scale, zero, _ = made.weights((4, 3, 3, 3), 0, False)
    operands = [made.dequantised(), made.node("DequantizeLinear", [weight, scale, zero])]
    return made.node("Conv", operands if bias is None else [*operands, made.constant("bias", bias)])


def test_onnx_runtime_quantises_a_float_bias():
    made = maker((1, 3, 6, 6))
    tensor = unquantised_convolution(made, bias=np.float32([0.5, -3, 7.25, 0]))
    made.quantise(tensor, *made.quantisation(0.3), ())
    graph = assert_exact(made.serialise(), codes((1, 3, 6, 6)))
    assert graph.layers[0].bias[[0, 3]].tolist() == [round(0.5 / (0.02 * 0.01 * scale_ratio(graph))), 0]


def scale_ratio(graph) -> float:
    """Scale of the weights in units of 0.01, from the multiplier."""
    item = graph.layers[0]
    return float(item.multiplier[0]) * graph.tensors[item.output].scale / (0.02 * 0.01)


@pytest.mark.parametrize("codes_of_bias", [False, True])
def test_matrix_product_and_addition_become_one_layer(codes_of_bias: bool):
    made = maker((1, 12))
    weight, scale, zero, scales = made.weights((12, 5), 1, False)
    product = made.node("MatMul", [made.dequantised(), made.node("DequantizeLinear", [weight, scale, zero])])
    if codes_of_bias:
        stored = [np.arange(-200, 300, 100, np.int32), np.float32(0.02) * scales[0], np.int32(0)]
        bias = made.node("DequantizeLinear", [made.constant("bias", value) for value in stored])
    else:
        bias = made.constant("bias", np.float32([0.1, 0.2, -0.3, 0, 1]))
    made.quantise(made.node("Add", [product, bias]), *made.quantisation(0.3), ())
    assert tabled_names(assert_exact(made.serialise(), codes((1, 12)))) == ["Convolution"]


def test_requantisation_that_is_an_output_as_well_is_a_table():
    made = convolved()
    leaving = made.tensor
    made.quantise(made.dequantised(), *made.quantisation(0.05, 3), made.shape)
    made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 4, 4))
    graph = assert_exact(made.serialise([leaving, made.tensor]), codes((1, 3, 6, 6)))
    assert tabled_names(graph) == ["Convolution", "Pointwise + table", "Convolution"]


def test_equal_quantisation_is_nothing():
    made = convolved()
    made.quantise(made.node("Identity", [made.dequantised()]), made.scale, made.zero, made.shape)
    made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 4, 4), bias=False)
    assert tabled_names(assert_exact(made.serialise(), codes((1, 3, 6, 6)))) == ["Convolution", "Convolution"]


def test_a_shift_of_the_zero_point_alone_is_a_table():
    """It changes no code, but the border of the convolution after it."""
    made = convolved()
    made.constants[made.zero] = np.int8(5)
    scale = made.value(made.scale)
    shifted = made.node("Add", [made.dequantised(), made.constant("shift", scale * np.float32(3))])
    made.quantise(shifted, *made.quantisation(float(scale), 2), made.shape)
    made.product("Conv", (2, 4, 3, 3), 0, (1, 2, 4, 4), pads=[1, 1, 1, 1])
    assert tabled_names(assert_exact(made.serialise(), codes((1, 3, 6, 6)))) == ["Convolution + table", "Convolution"]


def test_a_tail_keeps_softmax_and_what_follows_it():
    made = maker((1, 20))
    made.product("Gemm", (8, 20), 0, (1, 8), transB=1)
    leaving = made.tensor
    made.quantise(made.node("Softmax", [made.dequantised()], axis=-1), *made.quantisation(1 / 256, -128), (1, 8))
    made.activation("Tanh")
    graph = assert_exact(made.serialise(), codes((1, 20)), covered=False)
    assert (tabled_names(graph), graph.outputs) == (["Convolution"], [leaving])
    assert [row.kind for row in describe(graph)][1:] == ["QLinearSoftmax", "DequantizeLinear", "Tanh", "QuantizeLinear"]


def test_a_tail_computes_again_what_it_needs_of_the_head():
    made = maker((1, 3, 6, 6))
    made.tensor = made.node("QuantizeLinear", ["x", made.scale, made.zero])
    echo = made.dequantised()
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 4, 4))
    data = made.serialise([made.tensor, echo], input_type=np.float32)
    pixels = {"x": np.random.default_rng(0).uniform(-2, 2, (1, 3, 6, 6)).astype(np.float32)}
    graph = assert_exact(data, pixels)
    assert graph.outputs == [made.tensor]
    tail = executed.open_session(graph.tail)
    assert [value.name for value in tail.get_inputs()] == ["x"]
    assert tail.run([echo], pixels)[0].tobytes() == reference.run(Model(data), pixels)[echo].tobytes()


def test_dead_channels_and_saturated_ones():
    made = maker((1, 8), "qop")
    weights, bias = np.full((3, 8), 127, np.int8), np.array([1 << 30, -(1 << 30), 0], np.int32)
    scales = np.array([1e-30, 1e-30, 5], np.float32)
    operands = [weights, scales, np.zeros(3, np.int8), bias]
    names = [made.constant("operand", value) for value in operands]
    output, zero = made.quantisation(0.1, 5)
    made.tensor = made.node(
        "QGemm", [made.tensor, made.scale, made.zero, *names, output, zero], domain="com.microsoft", transB=1
    )
    for seed in range(4):
        assert_exact(made.serialise(), codes((1, 8), seed))


def test_windows_reach_only_as_far_as_they_must():
    made = maker((1, 1, 5, 5), "qop")
    made.tensor = made.node("MaxPool", ["x"], kernel_shape=[2, 3], strides=[3, 2], pads=[1, 0, 1, 1], ceil_mode=1)
    made.tensor = made.node("Identity", [made.tensor])
    graph = assert_exact(made.serialise(), codes((1, 1, 5, 5)), covered=False)
    (item,) = graph.layers
    assert isinstance(item, MaxPool)
    assert item.window == Window((2, 3), (3, 2), (1, 1), (1, 0, 0, 2))


@pytest.mark.parametrize("unsigned", [False, True])
def test_layers_carry_what_the_compiler_needs(unsigned: bool):
    generated = layer("conv1d", 3, form="qdq", unsigned=unsigned)
    graph = import_model(generated.model)
    (item,) = graph.layers
    assert isinstance(item, Convolution)
    channels = graph.tensors[item.output].shape[2]
    assert item.weights.dtype == np.int8
    assert (item.bias.dtype, item.bias.shape) == (np.int32, (channels,))
    assert (item.multiplier.dtype, item.multiplier.shape) == (np.float32, (channels,))
    assert item.window.kernel[0] == 1
    assert graph.tensors[item.input].views[0].unsigned == unsigned
    assert -128 <= graph.tensors[item.input].zero_point <= 127


def test_a_network_of_tables_alone():
    generated = layer("Tanh", 0, form="qdq")
    graph = assert_exact(generated.model, generated.feeds(0))
    assert isinstance(graph.layers[0], Pointwise)
