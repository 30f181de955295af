"""Operators that the frontend refuses, with the whole message: place, reason and remedy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.checkout import snippets
from cocotb_tests.support.networks.generated import FORMS, Maker
from cocotb_tests.support.networks.small_models import (
    ONE_TYPE,
    POWERS,
    convolved,
    main_name,
    maker,
    refusal,
    refusal_in_the_middle,
    without_numbers,
)
from cocotb_tests.support.oracles.exactness import assert_exact

FOLD = (
    "fold it into the weights of a layer before quantising, as `lutterfly quantize` does after convolutions and Gemm "
    "(Brevitas: brevitas.nn.utils.merge_bn)"
)


@pytest.mark.parametrize("form", FORMS)
def test_weights_with_a_zero_point(form: str):
    made = convolved(form)
    name = next(name for name in made.constants if name.startswith("wz"))
    made.constants[name] = np.full_like(made.constants[name], 3)
    weights = next(name for name in made.constants if re.fullmatch(r"w_\d+", name))
    assert refusal(made.serialise()) == (
        f"net.onnx: the zero point of the weights '{weights}' of {main_name(made)} must be 0, not 3; quantise with "
        "symmetric int8 weights (weight_type=QuantType.QInt8, extra_options={'WeightSymmetric': True})"
    )


def test_unsigned_weights():
    made = maker((1, 3, 6, 6), "qop", unsigned=True)
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 4, 4))
    for name, value in made.constants.items():
        if re.match(r"wz?_\d+", name):
            made.constants[name] = value.astype(np.uint8)
    weights = next(name for name in made.constants if re.fullmatch(r"w_\d+", name))
    assert refusal(made.serialise()) == (
        f"net.onnx: the weights '{weights}' of {main_name(made)} must be int8, not uint8; quantise with "
        "weight_type=QuantType.QInt8"
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_stack_of_weights(form: str):
    made = maker((1, 3, 4), form)
    made.product("MatMul", (4, 5), 1, (1, 3, 5))
    weights = next(name for name in made.constants if re.fullmatch(r"w_\d+", name))
    made.constants[weights] = np.stack([made.constants[weights]])
    for name in made.constants:
        if re.match(r"w[sz]_", name):
            made.constants[name] = made.constants[name].flat[0]
    for node in made.nodes:
        if node.op_type == "DequantizeLinear":
            node.ClearField("attribute")
    assert refusal(made.serialise()) == (
        f"net.onnx: the weights '{weights}' of {main_name(made)} must be one matrix, not a stack of the shape "
        "[1, 4, 5]; use a product for each"
    )


def sums(form: str = "qdq", *, relu: bool = False) -> Maker:
    """A sum of the input and a convolution of it, and a convolution after it."""
    made = maker((1, 3, 6, 6), form)
    made.constants[made.zero] = np.int8(5)
    skip = made.dequantised()
    made.product("Conv", (3, 3, 1, 1), 0, (1, 3, 6, 6))
    # Many pairs are ties.
    made.constants[made.scale] = np.float32(0.03)
    tensor = made.node("Add", [made.dequantised(), skip])
    if relu:
        tensor = made.node("Relu", [tensor])
    made.quantise(tensor, *made.quantisation(0.06, 3), (1, 3, 6, 6))
    return made


def test_a_sum_that_onnx_runtime_computes_in_float():
    made = sums(relu=True)
    add, relu = (f"{node.op_type} '{node.name}'" for node in made.nodes if node.op_type in ("Add", "Relu"))
    text = refusal_in_the_middle(made, "Add")
    assert re.sub(r"\d+ of", "N of", text) == (
        f"for N of 65536 pairs of codes ONNX Runtime gives another sum than two tables, because {relu} makes it "
        f"compute {add} in float; put QuantizeLinear and DequantizeLinear after the addition, or choose other scales"
    )


def test_a_sum_of_codes_as_integers():
    made = maker((1, 3, 6, 6), "qop")
    made.product("Conv", (3, 3, 1, 1), 0, (1, 3, 6, 6))
    leaving = made.tensor
    made.tensor = made.node("Add", [leaving, "x"])
    assert refusal_in_the_middle(made, "Add") == (
        f"it combines 2 activations ('{leaving}', 'x'); replace it, or end the quantised network before it"
    )


def test_a_quotient_of_two_feature_maps():
    made = maker((1, 3, 6, 6))
    skip = made.dequantised()
    made.product("Conv", (3, 3, 1, 1), 0, (1, 3, 6, 6))
    leaving = made.tensor
    made.quantise(made.node("Div", [made.dequantised(), skip]), *made.quantisation(0.05), made.shape)
    assert refusal_in_the_middle(made, "Div") == (
        f"it combines 2 activations ('{leaving}', 'x'); replace it, or end the quantised network before it"
    )


def average(form: str = "qdq", *, scale: float | None = None, **attributes) -> Maker:
    """A convolution to 4x4x4, then a windowed average."""
    made = convolved(form)
    tensor = made.node("AveragePool", [made.dequantised()], **attributes)
    ends = made.quantisation(scale) if scale else (made.scale, made.zero)
    made.quantise(tensor, *ends, (1, 4, *pooled_sides(attributes)))
    return made


def pooled_sides(attributes: dict) -> list[int]:
    pads, strides = attributes.get("pads", [0] * 4), attributes.get("strides", [1, 1])
    ceil = attributes.get("ceil_mode", 0) * (strides[0] - 1)
    return [
        (4 + 2 * pads[0] - kernel + ceil) // stride + 1
        for kernel, stride in zip(attributes["kernel_shape"], strides, strict=True)
    ]


AVERAGE_REMEDY = (
    "average the whole map with GlobalAveragePool, give input and output one scale and the window an odd "
    "number of elements, or use a convolution with a group for each channel"
)
BORDER = (
    "{} is a float mean of 6 elements where its window reaches into the border, and for some sums their order "
    "decides the rounding; set count_include_pad to 1, or pool without padding"
)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"kernel_shape": [2, 2]},
            "{} is a float mean of 4 elements, and for some sums their order decides the rounding; " + AVERAGE_REMEDY,
        ),
        ({"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, BORDER),
        ({"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, BORDER),
        (
            {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1},
            "{} averages fewer elements in its last windows; set ceil_mode to 0",
        ),
    ],
)
def test_averages_that_are_no_function_of_the_sum(attributes: dict, message: str):
    made = average(**attributes)
    name = made.nodes[-2].name
    assert refusal_in_the_middle(made, "AveragePool") == message.format(f"AveragePool '{name}'")


@pytest.mark.parametrize("operator", ["ReduceMean", "AveragePool"])
def test_a_float_mean_of_a_map(operator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As PyTorch exports it behind PT2E; as the remedy says, it runs."""
    made = convolved()
    if operator == "ReduceMean":
        tensor = made.node(operator, [made.dequantised(), made.constant("axes", np.array([-1, -2]))])
    else:
        tensor = made.node(operator, [made.dequantised()], kernel_shape=[4, 4])
    name = made.nodes[-1].name
    made.quantise(tensor, made.scale, made.zero, (1, 4, 1, 1))
    assert refusal_in_the_middle(made, operator) == (
        f"{operator} '{name}' is a float mean of 16 elements, and for some sums their order decides the rounding; "
        "average the map with GlobalAveragePool, which ONNX Runtime computes in integers: `lutterfly quantize` does so "
        "with the float model, and docs/frontend.md has the lines of Python that do so in a quantised file (of "
        "PyTorch's PT2E)"
    )
    if operator == "ReduceMean":
        monkeypatch.chdir(tmp_path)
        Path("net.onnx").write_bytes(made.serialise())
        next(snippet for snippet in snippets() if snippet.key == "docs/frontend.md 1").run({})
        feeds = {"x": np.random.default_rng(1).integers(-128, 128, (1, 3, 6, 6), np.int8)}
        assert_exact(Path("net.onnx").read_bytes(), feeds)


def normalised(tensor: str, made: Maker) -> str:
    """Batch normalisation of four channels."""
    return made.node("BatchNormalization", [tensor, *(made.constant("norm", np.ones(4, np.float32)) for _ in range(4))])


def test_batch_normalisation_after_a_convolution():
    made = maker((1, 3, 6, 6))
    made.quantise(normalised(float_convolution(made), made), *made.quantisation(0.3), ())
    name = made.nodes[-2].name
    assert refusal(made.serialise()) == (
        f"net.onnx: ONNX Runtime computes {main_name(made)} in float, because BatchNormalization '{name}' stands "
        f"after it; {FOLD[:-1]}, or export_qonnx, which needs no folding)"
    )


def test_an_upsampling_convolution():
    made = convolved()
    weight, scale, zero, _ = made.weights((4, 3, 2, 2), 0, False)
    operands = [made.dequantised(), made.node("DequantizeLinear", [weight, scale, zero])]
    made.quantise(made.node("ConvTranspose", operands), *made.quantisation(0.5), (1, 3, 5, 5))
    assert refusal_in_the_middle(made, "ConvTranspose") == (
        "ONNX Runtime computes it in float, and float32 may round the sum -35177 of channel 0 to the code -127 or to "
        "-126; quantise the float model with `lutterfly quantize`, which spells it as a convolution and DepthToSpace, "
        "or use scales that are powers of two"
    )


@pytest.mark.parametrize("form", FORMS)
def test_an_unsupported_operator_in_the_middle(form: str):
    made = maker((1, 20), form)
    made.product("Gemm", (8, 20), 0, (1, 8), transB=1)
    made.quantise(made.node("Softmax", [made.dequantised()]), *made.quantisation(1 / 256, -128), (1, 8))
    softmax = made.nodes[-2].name
    made.product("Gemm", (4, 8), 0, (1, 4), transB=1)
    assert refusal(made.serialise()) == (
        f"net.onnx: Softmax '{softmax}' between {main_name(made)} and {main_name(made, 1)} is not supported: the "
        "accelerator has no Softmax; quantise the float model with `lutterfly quantize`, which spells it with "
        "operators that run, or end the quantised network before it"
    )


def test_an_operand_for_each_row():
    made = convolved()
    factor = made.constant("factor", np.ones((1, 1, 4, 1), np.float32))
    made.quantise(made.node("Mul", [made.dequantised(), factor]), *made.quantisation(0.05), made.shape)
    mul = f"Mul '{made.nodes[-2].name}'"
    made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 4, 4))
    assert refusal(made.serialise()) == (
        f"net.onnx: {mul} between {main_name(made)} and {main_name(made, 1)} is not supported: operand '{factor}' of "
        f"{mul} has 4 values, and only scalars can be tabulated; replace it, or end the quantised network before it"
    )


def test_activations_quantised_per_channel():
    made = convolved()
    scale, zero = made.constant("scales", np.full(4, 0.1, np.float32)), made.constant("zeros", np.zeros(4, np.int8))
    tensor = made.node("Tanh", [made.dequantised()])
    made.tensor = made.node("QuantizeLinear", [tensor, scale, zero], axis=1)
    assert refusal(made.serialise()) == (
        f"net.onnx: the scale '{scale}' of QuantizeLinear '{made.nodes[-1].name}' must be one value, not 4; quantise "
        "activations per tensor (per_channel concerns weights alone)"
    )


def float_convolution(made: Maker, *, float_weights: bool = False) -> str:
    weight, scale, zero, _ = made.weights((4, 3, 3, 3), 0, False)
    operand = (
        made.constant("float", np.ones((4, 3, 3, 3), np.float32))
        if float_weights
        else (made.node("DequantizeLinear", [weight, scale, zero]))
    )
    return made.node("Conv", [made.dequantised(), operand])


def test_a_relu_that_onnx_runtime_cannot_fuse():
    made = maker((1, 3, 6, 6))
    made.quantise(made.node("Relu", [float_convolution(made)]), *made.quantisation(0.3, 5), ())
    relu = f"Relu '{made.nodes[-2].name}'"
    assert without_numbers(refusal(made.serialise())) == (
        f"net.onnx: ONNX Runtime computes {main_name(made)} in float, because {relu} cuts codes that the "
        "QuantizeLinear after it keeps, and float32 may round the sum to either code; quantise the output of Conv as "
        f"well, or let the range of that QuantizeLinear end where the Relu cuts{POWERS}"
    )


@pytest.mark.parametrize(("operators", "doubt"), [(["Tanh"], False), (["MaxPool", "Relu"], True)])
def test_operators_between_a_convolution_and_its_quantisation(operators: list[str], doubt: bool):
    made = maker((1, 3, 6, 6))
    tensor = float_convolution(made)
    for operator in operators:
        tensor = made.node(operator, [tensor], **({"kernel_shape": [2, 2]} if operator == "MaxPool" else {}))
    shown = " and ".join(f"{node.op_type} '{node.name}'" for node in made.nodes[-len(operators) :])
    made.quantise(tensor, *made.quantisation(0.01, -128), ())
    assert without_numbers(refusal(made.serialise())) == (
        f"net.onnx: ONNX Runtime computes {main_name(made)} in float, because {shown} "
        f"{'stands' if len(operators) == 1 else 'stand'} between it and its quantised ends"
        f"{', and float32 may round the sum to either code' * doubt}; put QuantizeLinear and DequantizeLinear between "
        f"them{POWERS * doubt}"
    )


def test_a_flatten_that_is_not_quantised():
    made = maker((1, 2, 4, 4))
    weight, scale, zero, _ = made.weights((3, 32), 0, False)
    flat = made.node("Flatten", [made.dequantised()])
    flatten = f"Flatten '{made.nodes[-1].name}'"
    operands = [flat, made.node("DequantizeLinear", [weight, scale, zero])]
    made.quantise(made.node("Gemm", operands, transB=1), *made.quantisation(0.3), ())
    assert without_numbers(refusal(made.serialise())) == (
        f"net.onnx: ONNX Runtime computes {main_name(made)} in float, because {flatten} stands between it and its "
        "quantised ends, and float32 may round the sum to either code; put QuantizeLinear and DequantizeLinear between "
        f"them{POWERS}"
    )


def test_float_weights():
    made = maker((1, 3, 6, 6))
    made.product("Conv", (3, 3, 1, 1), 0, (1, 3, 6, 6))
    made.quantise(float_convolution(made, float_weights=True), *made.quantisation(0.3), ())
    assert refusal(made.serialise()) == (
        f"net.onnx: the weights 'float_{len(made.constants) - 3}' of {main_name(made, 1)} must be int8, not float32; "
        "quantise with weight_type=QuantType.QInt8"
    )


def test_a_scaled_bias():
    made = maker((1, 8))
    made.product("Gemm", (4, 8), 0, (1, 4), transB=1, beta=0.5)
    assert refusal(made.serialise()) == (
        f"net.onnx: ONNX Runtime computes {main_name(made)} in float, because its operands are not quantised to its "
        "rules; input, output and weights need QuantizeLinear and DequantizeLinear, a bias int32 codes with the scale "
        "of input times weights, and alpha and beta must be 1 (onnxruntime.quantization does all this)"
    )


def test_a_product_of_two_activations_in_float():
    made = maker((1, 4, 4))
    product = made.node("MatMul", [made.dequantised(), made.dequantised()])
    made.quantise(made.node("Tanh", [product]), *made.quantisation(0.1), (1, 4, 4))
    assert refusal(made.serialise()) == (
        f"net.onnx: {made.nodes[-3].op_type} {made.nodes[-3].name!r} multiplies two activations in float; put "
        "QuantizeLinear and DequantizeLinear around it, of one type and with the zero point 0 before it"
    )


def test_a_gemm_of_two_activations():
    made = maker((1, 4), "qop")
    operands = [made.tensor, made.scale, made.zero] * 2
    scale, zero = made.quantisation(0.1)
    made.node("QGemm", [*operands, "", scale, zero], domain="com.microsoft", transB=1)
    made.tensor, made.scale, made.zero, made.shape = made.nodes[-1].output[0], scale, zero, (1, 1)
    assert "multiplies two activations, which only MatMul may; one operand must be a constant" in refusal(
        made.serialise()
    )


def test_pooling_between_two_decreasing_operators():
    made = convolved()
    pooled = made.node("MaxPool", [made.node("Neg", [made.dequantised()])], kernel_shape=[2, 2])
    made.quantise(made.node("Neg", [pooled]), *made.quantisation(0.5, 0), (1, 4, 3, 3))
    first, pool = (node.name for node in made.nodes[-4:-2])
    made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 3, 3))
    assert refusal(made.serialise()) == (
        f"net.onnx: Neg '{first}' between {main_name(made)} and {main_name(made, 1)} is not supported: "
        f"MaxPool '{pool}' cannot pool codes: operators before it and after it, up to the next quantised "
        "tensors, both decrease somewhere; put QuantizeLinear and DequantizeLinear around it"
    )


def test_pooling_in_one_branch():
    made = convolved()
    trunk = made.dequantised()
    pooled = made.node("MaxPool", [made.node("Abs", [trunk])], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    made.quantise(made.node("Mul", [trunk, pooled]), *made.quantisation(0.05), made.shape)
    pool = made.nodes[-3].name
    assert refusal_in_the_middle(made, "Abs") == (
        f"MaxPool '{pool}' stands in one branch alone; move it before or after the branches"
    )


@pytest.mark.regress
def test_elements_in_any_order():
    made = convolved()
    shape = made.constant("shape", np.array([1, 64])), made.constant("back", np.array([1, 4, 25, 30]))
    order = made.constant("order", np.random.default_rng(0).integers(0, 64, 3000))
    flat = made.node("Reshape", [made.dequantised(), shape[0]])
    chosen = made.node("Gather", [flat, order], axis=1)
    made.quantise(made.node("Reshape", [chosen, shape[1]]), made.scale, made.zero, (1, 4, 25, 30))
    name = made.nodes[-3].name
    made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 25, 30))
    assert re.sub(r"'QuantizeLinear_\d+_out'", "CODES", refusal(made.serialise())) == (
        f"net.onnx: Gather '{name}' moves elements of CODES (4x4x4, height x width x channels) to 25x30x4 in more than "
        "512 pieces; move whole rows, columns or channels, or move them at an end of the network"
    )


def test_a_zero_point_that_is_not_the_producers():
    made = convolved("qop")
    scale, zero = made.quantisation(0.02, 77)
    before = int(made.value(made.zero))
    made.scale, made.zero = scale, zero
    tensor = made.tensor
    made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 4, 4))
    assert refusal(made.serialise()) == (
        f"net.onnx: {main_name(made, 1)} reads '{tensor}' with the zero point 77, but it was quantised with {before}; "
        "quantise the model again"
    )


def test_operators_that_onnx_runtime_makes_one_of():
    """PyTorch's older exporter writes LayerNorm as its operators; ONNX Runtime names the one after the last of them."""
    made = maker((1, 8))
    made.product("Gemm", (6, 8), 0, (1, 6), transB=1)
    x, axes = made.node("Tanh", [made.dequantised()]), made.constant("axes", np.array([-1]))
    centred = made.node("Sub", [x, made.node("ReduceMean", [x, axes])])
    squares = made.node("Pow", [centred, made.constant("two", np.float32(2))])
    mean = made.node("ReduceMean", [squares, axes])
    variance = made.node("Add", [mean, made.constant("small", np.float32(1e-5))])
    tensor = made.node("Div", [centred, made.node("Sqrt", [variance])])
    for operator in ("Mul", "Add"):
        tensor = made.node(operator, [tensor, made.constant("affine", np.ones(6, np.float32))])
    made.quantise(tensor, *made.quantisation(0.02), made.shape)
    made.product("Gemm", (4, 6), 0, (1, 4), transB=1)
    assert "the accelerator has no LayerNormalization, which ONNX Runtime computes for " in refusal(made.serialise())


def sum_after(made: Maker, zero: str) -> str:
    """Why the sum of a convolution's result and its Tanh, which has some zero point, is refused."""
    first = made.dequantised()
    made.quantise(made.node("Tanh", [first]), made.constant("scale", np.float32(0.01)), zero, made.shape)
    total = made.node("Add", [first, made.dequantised()])
    made.quantise(total, *made.quantisation(0.02, 5), made.shape)
    return refusal_in_the_middle(made, "Add")


def test_a_sum_beside_products_in_the_other_form():
    """All activations of the file are int8; a tensor with one reader becomes uint8, and one with several does not."""
    made = convolved("qop")
    assert sum_after(made, made.constant("zero", np.int8(0))) == (
        "ONNX Runtime makes one of its operands uint8, as it does between QuantizeLinear and DequantizeLinear in files "
        "without a product in QDQ form, and computes in float; write all operators in QDQ form, or this one as "
        "QLinearAdd"
    )


def test_a_sum_of_two_types():
    made = convolved()
    assert sum_after(made, made.constant("zero", np.uint8(128))) == (f"its operands are int8 and uint8; {ONE_TYPE}")


def test_an_unknown_operator_behind_an_average():
    made = convolved("qdq")
    mean = made.node("ReduceMean", [made.dequantised(), made.constant("axes", np.array([2, 3]))])
    spread = made.node("Expand", [mean, made.constant("shape", np.array([1, 4, 4, 4]))])
    made.quantise(spread, *made.quantisation(0.02), (1, 4, 4, 4))
    assert refusal_in_the_middle(made, "Expand") == (
        "the accelerator has no Expand; replace it, or end the quantised network before it"
    )


def test_a_choice_by_indices_that_are_computed():
    made = convolved("qdq")
    tensor = made.dequantised()
    rows = made.node("Reshape", [made.node("Clip", [tensor, *limits(made)]), made.constant("shape", np.array([-1]))])
    first = made.node("Slice", [rows, *(made.constant("c", np.array([value])) for value in (0, 4))])
    made.quantise(
        made.node("Gather", [tensor, made.node("Cast", [first], to=7)], axis=1), *made.quantisation(0.02), (1, 4, 4, 4)
    )
    assert refusal_in_the_middle(made, "Gather") == (
        "the accelerator has no Gather by indices that are computed; replace it, or end the quantised network before it"
    )


def limits(made: Maker) -> list[str]:
    return [made.constant("limit", np.float32(value)) for value in (0, 3)]


def test_a_number_for_each_element():
    made = convolved("qdq")
    operand = made.constant("map", np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4))
    total = made.node("Add", [made.node("Relu", [made.dequantised()]), operand])
    made.quantise(total, *made.quantisation(0.02), (1, 4, 4, 4))
    name = next(node.name for node in made.nodes if node.op_type == "Add")
    assert refusal_in_the_middle(made, "Add") == (
        f"operand '{operand}' of Add '{name}' has 16 values, and only scalars can be tabulated; replace it, or end the "
        "quantised network before it"
    )
