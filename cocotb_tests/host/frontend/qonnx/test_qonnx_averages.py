"""Averages of quantised numbers in QONNX networks: the numbers of qonnx, or a refusal that names the average."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from cocotb_tests.support.networks.qonnx_networks import QonnxNetwork, assert_same
from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.graph import AveragePool

pytestmark = needs_reference

Operator = Callable[[QonnxNetwork, str], str]


def codes(net: QonnxNetwork, x: str, **given) -> str:
    """A convolution without a border, quantised."""
    return net.quant(net.conv(x, net.integers((4, 4, 3, 3))), 2.0**-5, **given)


def windows(net: QonnxNetwork, x: str, kernel: int, **given) -> str:
    channels, height, width = net.shapes[x]
    shape = channels, height - kernel + 1, width - kernel + 1
    return net.add("AveragePool", x, shape=shape, kernel_shape=[kernel, kernel], **given)


def whole(net: QonnxNetwork, x: str) -> str:
    return net.add("GlobalAveragePool", x, shape=(4, 1, 1))


def axes(net: QonnxNetwork, x: str) -> str:
    return net.add("ReduceMean", x, shape=(4,), axes=[2, 3], keepdims=0)


#: Averages of maps of 4x4 numbers, exact where their scale is a power of two, or one scale and the number odd.
AVERAGES: dict[str, tuple[Operator, float]] = {
    "windows of 4": (lambda net, x: windows(net, x, 2), 2.0**-6),
    "windows of 9": (lambda net, x: windows(net, x, 3), 2.0**-5),
    "map": (whole, 2.0**-4),
    "flattened map": (lambda net, x: net.flatten(whole(net, x)), 2.0**-5),
    "axes": (axes, 2.0**-7),
}
FORMS = {"int8": {}, "uint8": {"signed": 0}, "uint4": {"signed": 0, "bits": 4.0}, "narrow": {"narrow": 1}}


@pytest.mark.regress
@pytest.mark.parametrize(
    ("name", "form"),
    [*((name, "int8") for name in AVERAGES), *(("windows of 4", form) for form in FORMS if form != "int8")],
)
def test_averages_between_products(name: str, form: str):
    net = QonnxNetwork((4, 6, 6))
    average, scale = AVERAGES[name]
    x = net.quant(average(net, codes(net, net.quant("x", 2.0**-6), **FORMS[form])), scale, **FORMS[form])
    x = x if len(net.shapes[x]) == 1 else net.flatten(x)
    x = net.quant(net.linear(x, net.integers((3, net.shapes[x][0]))), 2.0**-3)
    graph = assert_same(net.model(x), samples=3, spread=4.0)
    assert AveragePool in map(type, graph.layers)


@pytest.mark.regress
def test_the_host_averages_at_the_ends_as_it_stands():
    """Between products these scales are refused: they decide ties."""
    net = QonnxNetwork((4, 8, 8))
    x = codes(net, net.quant("x", 2.0**-6))
    graph = assert_same(net.model(net.quant(windows(net, x, 2), 0.1)))
    assert AveragePool not in map(type, graph.layers)
    net = QonnxNetwork((4, 8, 8))
    x = net.quant(windows(net, net.quant("x", 2.0**-6), 2), 0.1)
    assert AveragePool not in map(type, import_model(net.model(codes(net, x))).layers)


QUANTISE = "put a QuantIdentity of Brevitas' default rounding, without a zero point,"
TIES = (
    "is a mean of {} numbers, and for some of their sums float32's roundings decide the code; quantise both ends with "
    "scales that are powers of two and average 2, 4, 8 ... numbers (restrict_scaling_type=POWER_OF_TWO), give both "
    "ends one scale and average an odd number, or use a convolution with a group for each channel"
)
NEAREST = f"must be rounded to the nearest number with the zero point 0, not as {{}} does it; {QUANTISE} after it"
REFUSED: dict[str, tuple[Operator, str]] = {
    "ties": (lambda net, x: net.quant(windows(net, x, 2), 0.1), "AveragePool 'AveragePool_4' " + TIES.format(4)),
    "other scale": (
        lambda net, x: net.quant(windows(net, x, 3), 2.0**-3),
        "AveragePool 'AveragePool_4' " + TIES.format(9),
    ),
    "map": (
        lambda net, x: net.conv(net.quant(whole(net, x), 0.1), net.integers((4, 4, 1, 1))),
        "GlobalAveragePool 'GlobalAveragePool_4' " + TIES.format(36),
    ),
    "Relu after": (
        lambda net, x: net.quant(net.add("Relu", windows(net, x, 2))),
        f"AveragePool 'AveragePool_4' must not be combined with Relu 'Relu_5'; {QUANTISE} between them",
    ),
    "Relu in front": (
        lambda net, x: net.quant(windows(net, net.add("Relu", x), 2)),
        f"AveragePool 'AveragePool_5' must not be combined with Relu 'Relu_4'; {QUANTISE} between them",
    ),
    "signs of it": (
        lambda net, x: net.bipolar(windows(net, x, 2)),
        "AveragePool 'AveragePool_4' " + NEAREST.format("BipolarQuant 'BipolarQuant_5'"),
    ),
    "zero point": (
        lambda net, x: net.quant(windows(net, x, 2), zero_point=3.0),
        "AveragePool 'AveragePool_4' " + NEAREST.format("Quant 'Quant_5'"),
    ),
    "rounded down": (
        lambda net, x: net.quant(windows(net, x, 2), mode="FLOOR"),
        "AveragePool 'AveragePool_4' " + NEAREST.format("Quant 'Quant_5'"),
    ),
    "border": (
        lambda net, x: net.quant(net.add("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
        (
            "AveragePool 'AveragePool_4' must have windows of equal size; set count_include_pad=True and "
            "ceil_mode=False, or pool without padding"
        ),
    ),
    "of signs": (
        lambda net, x: net.quant(windows(net, net.bipolar(net.conv(x, net.integers((4, 4, 3, 3)))), 2)),
        (
            "AveragePool 'AveragePool_7' must average numbers of several bits, not signs; use a convolution with a "
            "group for each channel"
        ),
    ),
    "of a product": (
        lambda net, x: net.quant(windows(net, net.conv(x, net.integers((4, 4, 3, 3))), 2)),
        (
            "Quant 'Quant_7': AveragePool 'AveragePool_6' in front of it must average quantised numbers, not results "
            "of a product; put a QuantIdentity in front of that"
        ),
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", REFUSED)
def test_the_average_is_named(name: str):
    net = QonnxNetwork((4, 8, 8))
    make, message = REFUSED[name]
    x = make(net, codes(net, net.quant("x", 2.0**-6)))
    data = net.model(net.quant(net.conv(x, net.integers((4, 4, 1, 1)))))
    with pytest.raises(ModelError, match=f"^{re.escape('model: ' + message)}$"):
        import_model(data)


def mean_and_deviation(net: QonnxNetwork, x: str) -> str:
    """Layer normalisation as its operators."""
    centred = net.add("Sub", x, net.add("ReduceMean", x, axes=[-1]))
    variance = net.add("ReduceMean", net.add("Mul", centred, centred), axes=[-1])
    return net.add("Div", centred, net.add("Sqrt", net.scalar("Add", variance, 1e-5)))


def layer_normalisation(net: QonnxNetwork, x: str) -> str:
    return net.add("LayerNormalization", x, net.constant(np.ones(6)), axis=-1)


_SPELLED = "quantise the float model with `lutterfly quantize`, which spells it with operators that run"
_TRAINED = (
    "train the network with batch normalisation, whose mean and deviation are constants that are folded into weights"
)
NORMALISATIONS = {
    "operator": (
        layer_normalisation,
        "LayerNormalization 'LayerNormalization_4'",
        f"the accelerator has no {{}}; {_SPELLED}",
    ),
    "its parts": (
        mean_and_deviation,
        "ReduceMean 'ReduceMean_4'",
        f"ReduceMean 'ReduceMean_4' begins a normalisation by what it reads; {_TRAINED}",
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", NORMALISATIONS)
def test_normalisation_by_what_is_read(name: str):
    net = QonnxNetwork((4, 8, 8))
    make, node, reason = NORMALISATIONS[name]
    x = net.quant(make(net, codes(net, net.quant("x", 2.0**-6))), 0.1)
    data = net.model(net.quant(net.conv(x, net.integers((4, 4, 1, 1)))))
    reason = reason.format(node.split()[0])
    message = (
        f"model: {node} between QLinearConv 'Conv_2' and QLinearConv 'Conv_{len(net.nodes) - 2}' is not supported: "
        f"{reason}, or end the quantised network before it"
    )
    with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
        import_model(data)
