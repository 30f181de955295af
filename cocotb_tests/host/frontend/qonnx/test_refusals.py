"""QONNX networks that are refused: by the name of the node, with the remedy."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cocotb_tests.support.networks.qonnx_networks import DOMAIN, QonnxNetwork, assert_same
from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.host.frontend import ModelError, import_model

pytestmark = needs_reference


def refused(data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=f"^{re.escape('model: ' + message)}"):
        import_model(data)


def after(quantiser, shape: tuple[int, ...] = (4, 6, 6)) -> bytes:
    """A network whose input is quantised in some way, and a binary product after it."""
    net = QonnxNetwork(shape)
    return net.model(net.bipolar(net.conv(quantiser(net), net.signs((3, 4, 3, 3)))))


QUANTISERS = {
    "per channel": (
        lambda net: net.quant("x", [[[0.5]], [[0.25]], [[0.5]], [[1]]]),
        "Quant 'Quant_0': the scale 'c0' must be one constant, not of 4 values; quantise activations per tensor",
    ),
    "negative": (
        lambda net: net.bipolar("x", -1.0),
        "BipolarQuant 'BipolarQuant_0': the scale 'c0' must be positive, not -1.0; quantise again",
    ),
    "zero": (
        lambda net: net.quant("x", 0.0),
        "Quant 'Quant_0': the scale 'c0' must be positive, not 0.0; quantise again",
    ),
    "infinite": (
        lambda net: net.quant("x", np.inf),
        "Quant 'Quant_0': the scale 'c0' must be positive, not inf; quantise again",
    ),
    "nine bits": (
        lambda net: net.quant("x", bits=9.0),
        "Quant 'Quant_0': the quantised activation must have at most 8 bits, not the numbers -256 to 255;",
    ),
    "no bits": (
        lambda net: net.quant("x", bits=0.0),
        "Quant 'Quant_0': the bit width must be at least 1, not 0; quantise with 2 to 8 bits",
    ),
    "half a bit": (
        lambda net: net.quant("x", bits=2.5),
        "Quant 'Quant_0': the bit width must be a whole number, not 2.5; quantise with whole ones",
    ),
    "bits per channel": (
        lambda net: net.quant("x", bits=[[[8.0]], [[4.0]], [[8.0]], [[2.0]]]),
        "Quant 'Quant_0': the bit width 'c2' must be one constant, not of 4 values; export it as one",
    ),
    "zero point of a half": (
        lambda net: net.quant("x", zero_point=0.5),
        "Quant 'Quant_0': the zero point must be a whole number, not 0.5; quantise with whole ones",
    ),
    "zero point outside": (
        lambda net: net.quant("x", zero_point=128.0),
        "Quant 'Quant_0': the zero point must be a number between -128 and 127, not 128; quantise again",
    ),
    "zero point of one bit": (
        lambda net: net.quant("x", zero_point=1.0, bits=1.0),
        "Quant 'Quant_0': the zero point must be 0 with one bit, not 1; use BipolarQuant",
    ),
    "rounding": (
        lambda net: net.quant("x", mode="HALF_UP"),
        "Quant 'Quant_0': the rounding mode must be ROUND, HALF_EVEN, CEIL, FLOOR, not HALF_UP;",
    ),
    "operator": (
        lambda net: net.add("Trunc", "x", net.constant(1.0), domain=DOMAIN),
        "the operator of 'Trunc_0' must be Quant or BipolarQuant, not Trunc;",
    ),
}


@pytest.mark.parametrize("name", QUANTISERS)
def test_quantisers(name: str):
    quantiser, message = QUANTISERS[name]
    refused(after(quantiser), message)


def test_an_old_operator_set():
    net = QonnxNetwork((4,), opset=12)
    data = net.model(net.bipolar(net.linear(net.bipolar("x"), net.signs((3, 4)))))
    refused(data, "the operator set must be at least 13, not 12; export the network with opset_version=13 or later")


def weighted(weights, **given) -> bytes:
    net = QonnxNetwork((4, 6, 6))
    return net.model(net.bipolar(net.conv(net.bipolar("x"), weights(net), **given)))


def test_several_scales_of_a_channel():
    data = weighted(lambda net: net.signs((3, 4, 3, 3), [[[[1.0]], [[0.5]], [[1.0]], [[1.0]]]]))
    refused(
        data,
        "Conv 'Conv_2': the weights 'bipolarquant_1' of output channel 0 must be whole numbers times one scale, not "
        "several (0.5, 1.0); quantise them per tensor or per output channel",
    )


def test_a_negative_scale_of_weights():
    data = weighted(lambda net: net.signs((3, 4, 3, 3), -0.5))
    refused(data, "BipolarQuant 'BipolarQuant_1': the scale 'c2' must be positive, not -0.5; quantise again")


def test_weights_of_sixteen_bits():
    data = weighted(lambda net: net.integers((3, 4, 3, 3), bits=16.0))
    refused(data, "Conv 'Conv_2': the weights 'quant_1' must be whole numbers of 8 bits times their scale, not ")


def test_weights_that_are_computed():
    net = QonnxNetwork((4,))
    x = net.bipolar("x")
    product = net.add("MatMul", x, net.add("Transpose", x, perm=[1, 0]), shape=(1,))
    refused(
        net.model(net.bipolar(product)),
        "MatMul 'MatMul_2' must multiply quantised activations with constant weights, and its results must be "
        "quantised before others are added, which they are not up to BipolarQuant 'BipolarQuant_3'; put QuantIdentity "
        "between",
    )


def test_a_border_by_another_name():
    net = QonnxNetwork((4, 6, 6))
    weights = net.signs((3, 4, 3, 3))
    x = net.add("Conv", net.bipolar("x"), weights, shape=(3, 6, 6), auto_pad="SAME_UPPER")
    refused(
        net.model(net.bipolar(x)),
        "Conv 'Conv_2' must have its border in pads, not auto_pad SAME_UPPER; export it with explicit pads",
    )


def test_volumes():
    net = QonnxNetwork((2, 4, 4, 4))
    weights = net.signs((3, 2, 2, 2, 2))
    x = net.add("Conv", net.bipolar("x"), weights, shape=(3, 3, 3, 3))
    refused(net.model(net.bipolar(x)), "Conv 'Conv_2' must have one or two spatial dimensions, not 3; reshape the map")


def test_factors_of_a_matrix_product():
    net = QonnxNetwork((4,))
    x = net.add("Gemm", net.bipolar("x"), net.signs((4, 4)), shape=(4,), alpha=2.0)
    refused(
        net.model(net.bipolar(x)),
        "Gemm 'Gemm_2' must have alpha 1, beta 1 and transA 0, not {'alpha': 2.0, 'beta': 1.0, 'transA': 0}; export it "
        "without them",
    )


def test_products_of_matrices():
    net = QonnxNetwork((5, 4))
    x = net.add("MatMul", net.bipolar("x"), net.signs((4, 3)), shape=(5, 3))
    refused(
        net.model(net.bipolar(x)),
        "MatMul 'MatMul_2' must multiply a vector with a matrix, not the shapes [[1, 5, 4], [4, 3]]; flatten the "
        "features",
    )


def test_a_function_that_is_no_threshold():
    net = QonnxNetwork((9,))
    x = net.add("Abs", net.linear(net.bipolar("x"), net.signs((3, 9))))
    refused(
        net.model(net.bipolar(net.scalar("Sub", x, 4.0))),
        "BipolarQuant 'BipolarQuant_5': channel 0 must change its sign at one sum at most, not at -3, 5: that is no "
        "threshold; keep to operators that rise or fall in front of it",
    )


def test_what_float32_may_decide_otherwise():
    # 600 products of 0.1 and batch normalisation: some threshold is near enough to a sum.
    net = QonnxNetwork((600,))
    x = net.norm(net.linear(net.bipolar("x"), net.signs((300, 600), 0.1)), 2.5)
    data = net.model(net.bipolar(x))
    with pytest.raises(
        ModelError, match=r"^model: BipolarQuant 'BipolarQuant_4': channel \d+ must decide farther from "
    ):
        import_model(data)


def test_codes_that_float32_may_round_otherwise():
    net = QonnxNetwork((600,))
    x = net.norm(net.linear(net.bipolar("x"), net.signs((30, 600), 0.1)), 2.5)
    with pytest.raises(
        ModelError, match=r"^model: Quant 'Quant_4': channel \d+ must round farther from a tie than float3"
    ):
        import_model(net.model(net.quant(x)))


@pytest.mark.parametrize("mode", ["FLOOR", "CEIL"])
def test_results_that_are_rounded_otherwise(mode: str):
    net = QonnxNetwork((9,))
    x = net.quant(net.linear(net.quant("x"), net.integers((3, 9))), mode=mode)
    refused(
        net.model(x),
        f"Quant 'Quant_3': results of Gemm 'Gemm_2' must be rounded to the nearest number, not by {mode.capitalize()}; "
        "quantise with FloatToIntImplType.ROUND",
    )


@pytest.mark.parametrize("operator", ["Tanh", "Div"])
def test_other_operators_after_sums_that_round(operator: str):
    net = QonnxNetwork((9,))
    x = net.linear(net.bipolar("x"), net.signs((3, 9), 0.1))
    x = net.add("Tanh", x) if operator == "Tanh" else net.add("Div", net.constant(1.0), x, shape=(3,))
    refused(
        net.model(net.bipolar(net.scalar("Sub", x, 0.05))),
        f"BipolarQuant 'BipolarQuant_5': {operator} '{operator}_3' in front of it must rise or fall with its input "
        "(batch normalisation, Relu, products and sums with constants), as results of the product are not exact in "
        "float32; use scales that are powers of two",
    )


def test_other_operators_after_exact_sums_are_tried():
    net = QonnxNetwork((9,))
    x = net.add("Tanh", net.linear(net.bipolar("x"), net.signs((3, 9))))
    import_model(net.model(net.bipolar(net.scalar("Sub", x, 0.5))))


def test_an_operand_for_each_position():
    net = QonnxNetwork((4, 6, 6))
    x = net.conv(net.bipolar("x"), net.signs((3, 4, 3, 3)))
    x = net.scalar("Add", x, net.rng.normal(size=(3, 4, 4)))
    refused(
        net.model(net.bipolar(x)),
        "BipolarQuant 'BipolarQuant_4' must depend on each channel's value alone, and operators in front of it have a "
        "value for each position; give them one for each channel",
    )


def test_an_operand_for_each_channel_after_a_layout():
    net = QonnxNetwork((4, 6, 6))
    x = net.flatten(net.conv(net.bipolar("x"), net.signs((3, 4, 3, 3))))
    x = net.norm(x, 3.0)
    refused(
        net.model(net.bipolar(x)),
        "BipolarQuant 'BipolarQuant_5': BatchNormalization 'BatchNormalization_4' must have one value 'c3' for all "
        "channels, not several, as Flatten 'Flatten_3' moves channels before; put it in front",
    )


def test_an_operand_for_all_channels_after_a_layout():
    net = QonnxNetwork((4, 6, 6))
    x = net.flatten(net.conv(net.bipolar("x"), net.signs((3, 4, 3, 3))))
    assert_same(net.model(net.bipolar(net.scalar("Sub", x, 3.5))))


def test_pooling_of_numbers_that_fall():
    net = QonnxNetwork((4, 6, 6))
    x = net.scalar("Mul", net.pool(net.conv(net.bipolar("x"), net.signs((3, 4, 3, 3)))), -1.0)
    refused(
        net.model(net.quant(x, 0.5)),
        "Quant 'Quant_5': MaxPool 'MaxPool_3' must pool what rises with its codes, not channel 0, which falls; put the "
        "pooling after the batch normalisation",
    )


def test_pooling_in_front_of_signs_of_codes():
    net = QonnxNetwork((4, 6, 6))
    refused(
        net.model(
            net.conv(net.bipolar(net.norm(net.pool(net.add("Neg", net.quant("x"))), 1.0)), net.signs((3, 4, 1, 1)))
        ),
        "BipolarQuant 'BipolarQuant_4': MaxPool 'MaxPool_2' must not stand between it and quantised values with other "
        "operands for each channel; put it in front of the quantiser before",
    )


def summed() -> tuple[QonnxNetwork, str]:
    net = QonnxNetwork((4, 6, 6))
    return net, net.add("Add", net.quant("x"), net.quant(net.scalar("Mul", "x", 2.0)))


def test_signs_of_sums():
    net, total = summed()
    refused(
        net.model(net.bipolar(total)),
        "BipolarQuant 'BipolarQuant_4': the sum 'Add_3' in front of it must be quantised to 8 bits before other "
        "operators; put a QuantIdentity after it",
    )


def test_products_of_sums():
    net, total = summed()
    refused(
        net.model(net.bipolar(net.conv(total, net.signs((3, 4, 1, 1))))),
        "Conv 'Conv_5' must multiply quantised activations with constant weights, and its results must be quantised "
        "before others are added, which they are not up to BipolarQuant 'BipolarQuant_6'; put QuantIdentity between",
    )


def test_results_that_are_added_before_they_are_quantised():
    net = QonnxNetwork((4, 6, 6))
    x = net.bipolar("x")
    y = net.conv(x, net.signs((4, 4, 3, 3)), pads=[1] * 4)
    refused(
        net.model(net.quant(net.add("Add", x, y))),
        "Conv 'Conv_2' must multiply quantised activations with constant weights, and its results must be quantised "
        "before others are added, which they are not up to Quant 'Quant_4'; put QuantIdentity between",
    )


def test_sums_that_round_otherwise_in_integers():
    # Halves of a code are ties, and float32 does not hold 0.3 or its sums.
    net = QonnxNetwork((4, 6, 6))
    first, second = net.quant("x", 0.3), net.quant(net.scalar("Mul", "x", 2.0), 0.3)
    with pytest.raises(ModelError) as caught:
        import_model(net.model(net.quant(net.add("Add", first, second), 0.6)))
    assert re.match(
        r"model: Quant 'Quant_4': the sum in front of it must be the same number in ONNX Runtime's quantised sums, "
        r"and is not for \d+ of 65536 pairs of codes, first -?\d+ and -?\d+; quantise operands and sum with scales "
        r"that are powers of two$",
        str(caught.value),
    )


def test_maps_without_a_pixel():
    net = QonnxNetwork((4, 3, 1))
    x = net.conv(net.bipolar("x"), net.signs((3, 4, 1, 1)))
    x = net.add("MaxPool", x, shape=(3, 1, 0), kernel_shape=[3, 3], strides=[2, 2])
    refused(
        net.model(net.bipolar(x)),
        "MaxPool 'MaxPool_3' must give at least one number, not the shape [1, 3, 1, 0]; export the network for larger "
        "inputs",
    )


@pytest.mark.parametrize(("least", "sign", "is_taken"), [(-128, 1.0, True), (-127, -1.0, True), (-128, -1.0, False)])
def test_weights_that_have_no_contrary(least: int, sign: float, is_taken: bool):
    """A negative scale of the batch normalisation turns a channel's weights round: 128 has no place in int8."""
    net = QonnxNetwork((4, 6, 6))
    codes = net.rng.integers(-20, 20, (3, 4, 3, 3))
    codes[1, 2, 0, 1] = least
    weights = net.quant(net.constant(codes * 2.0**-6), 2.0**-6)
    x = net.scalar("Mul", net.conv(net.bipolar("x"), weights), [[[1.0]], [[sign]], [[1.0]]])
    data = net.model(net.bipolar(x))
    if is_taken:
        assert_same(data)
        return
    refused(
        data,
        "BipolarQuant 'BipolarQuant_4': the weights of channel 1, whose batch normalisation has a negative scale, must "
        "be at least -127, not -128; quantise them with narrow_range=True",
    )
