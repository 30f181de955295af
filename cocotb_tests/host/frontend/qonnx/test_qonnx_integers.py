"""Products of eight bits, requantised: the scales that are written are the file's own, whatever float32 rounds."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from onnx import numpy_helper

from cocotb_tests.support.networks.qonnx_networks import QonnxNetwork, assert_graph, executed_by_qonnx, random_feeds
from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.qonnx import rewrite, thresholds
from lutterfly.host.frontend.qonnx.fit import find_line
from lutterfly.host.model.model import Model

pytestmark = needs_reference

INPUT_SCALE, WEIGHT_SCALE = np.float32(0.0123), np.float32(0.00371)


def product(seed: int, inputs: int, bits: float, *, signed: int, spread: float = 4e4) -> tuple[bytes, list[Fraction]]:
    """A fully connected layer up to a quantiser, and what each channel adds to its sum, in codes, exactly."""
    net = QonnxNetwork((inputs,), seed=seed)
    bias = (net.rng.normal(size=16) * spread * INPUT_SCALE * WEIGHT_SCALE).astype(np.float32)
    x = net.linear(net.quant("x", INPUT_SCALE), net.integers((16, inputs), WEIGHT_SCALE), bias=bias)
    x = x if signed else net.add("Relu", x)
    x = net.quant(x, output_scale(inputs, bits), bits=bits, signed=signed)
    return net.model(x), [exact(value) / exact(output_scale(inputs, bits)) for value in bias]


def output_scale(inputs: int, bits: float) -> np.float32:
    """With which a quarter of the greatest sum has the greatest code."""
    return np.float32(inputs * 2.0 ** (12 - bits)) * INPUT_SCALE * WEIGHT_SCALE


def exact(value: np.float32) -> Fraction:
    return Fraction(float(value))


def written(data: bytes) -> dict[str, np.ndarray]:
    """The constants of the one quantised product."""
    model = rewrite(Model(data), "model").proto
    (node,) = [node for node in model.graph.node if node.op_type == "QGemm"]
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {"weights": values[node.input[3]], "scale": values[node.input[4]], "bias": values[node.input[6]]}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("signed", [0, 1])
@pytest.mark.parametrize("bits", [2.0, 4.0, 8.0])
@pytest.mark.parametrize("inputs", [50, 400, 4000])
def test_scale_and_bias_are_the_files(inputs: int, bits: float, signed: int):
    # float32 rounds 4,000 products by some per cent of the difference between one sum and the next.
    data, biases = product(int(bits), inputs, bits, signed=signed)
    slope = exact(INPUT_SCALE) * exact(WEIGHT_SCALE) / exact(output_scale(inputs, bits))
    found = written(data)
    moving = found["weights"].any(axis=1)
    assert moving.sum() > 12
    for scale, bias, real in zip(found["scale"], found["bias"], biases, strict=True):
        if scale == 1:
            continue
        # One unit in the last place, and half a sum, but for what float32 has rounded.
        assert abs(exact(scale) - slope) <= slope * Fraction(2) ** -23
        assert abs(int(bias) - real / slope) <= Fraction(1, 2) + Fraction(1, 32)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
def test_codes_are_those_of_exact_arithmetic_or_next_to_a_tie(seed: int):
    data, biases = product(seed, 400, 8.0, signed=seed % 2)
    slope = exact(INPUT_SCALE) * exact(WEIGHT_SCALE) / exact(output_scale(400, 8.0))
    found, least = written(data), -128 * (seed % 2)
    rng, differing = np.random.default_rng(seed), 0
    for channel in range(16):
        largest = int(np.abs(found["weights"][channel].astype(np.int64)).sum()) * 128
        for total in rng.integers(-largest, largest, 200):
            real = slope * int(total) + biases[channel]
            code = min(max(round(real), least), 127 if least else 255)
            entering = np.float32(total + found["bias"][channel])
            own = int(np.clip(np.rint(entering * found["scale"][channel]), least, 127 if least else 255))
            if own != code:
                differing += 1
                assert abs(own - code) == 1
                assert abs(abs(real - code) - Fraction(1, 2)) < slope
    # A code has a thousand sums.
    assert differing < 16


def test_results_are_those_of_qonnx_but_for_ties():
    data, _ = product(1, 400, 8.0, signed=1)
    graph, one = import_model(data), output_scale(400, 8.0)
    assert len(graph.notes) == 1
    for seed in range(4):
        feeds = random_feeds(data, seed)
        ((name, results),) = executed_by_qonnx(data, feeds).items()
        np.testing.assert_allclose(assert_graph(graph, feeds)[name], results, atol=one, rtol=0)


def test_channels_of_one_code():
    # Sums reach 3,000,000, and batch normalisation multiplies two channels by 0.
    net = QonnxNetwork((200,))
    x = net.linear(net.quant("x", 2.0**-5), net.quant(net.constant(np.full((8, 200), 1.9)), 2.0**-6, narrow=1))
    factors = [1.0, 0.0, -1.0, 2.0, 0.0, 1.0, -2.0, 1.0]
    numbers = [factors, np.arange(8) / 4 - 1, np.zeros(8), np.ones(8)]
    x = net.add("BatchNormalization", x, *map(net.constant, numbers), epsilon=0.0)
    data = net.model(net.quant(x, 2.0**-5))
    graph = import_model(data)
    for value in (-4.0, 0.1, 4.0):
        feeds = {"x": np.full((1, 200), value, np.float32)}
        ((name, results),) = executed_by_qonnx(data, feeds).items()
        found = assert_graph(graph, feeds)[name]
        np.testing.assert_array_equal(found[0, [1, 4]], [-0.75, 0.0])
        np.testing.assert_allclose(found, results, atol=2.0**-5, rtol=0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bits", [2.0, 3.0, 8.0])
@pytest.mark.parametrize("operator", ["Tanh", "Abs"])
def test_functions_that_are_no_line(operator: str, bits: float):
    # Of two bits every code is next to another.
    net = QonnxNetwork((40,))
    x = net.linear(net.quant("x", 2.0**-5), net.integers((4, 40)))
    x = net.quant(net.add(operator, x), 2.0 ** (2 - bits), bits=bits)
    message = (
        "model: Quant 'Quant_4': channel 0 must be a scale and a bias of 32 bits of the product's sums, and is not; "
        "keep to batch normalisation and Relu in front of it"
    )
    with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
        import_model(net.model(x))


def test_a_bias_that_32_bits_do_not_hold():
    # The second channel's sums change its code once, at half a code.
    net = QonnxNetwork((4,))
    scales = np.array([[2.0**-6], [2.0**-32]])
    x = net.linear(net.quant("x", 2.0**-7), net.integers((2, 4), scales), bias=np.array([0.0, 2.0**-7]))
    message = (
        "model: Quant 'Quant_3': channel 1 must be a scale and a bias of 32 bits of the product's sums, and is not"
    )
    with pytest.raises(ModelError, match=f"^{re.escape(message)}"):
        import_model(net.model(net.quant(x, 2.0**-6)))


@pytest.mark.parametrize("bits", [1.0, 2.0, 8.0])
def test_limits_between_sums_that_are_evaluated_first(bits: int, monkeypatch):
    # What Clip leaves is less than lies between two of the first sums.
    monkeypatch.setattr(thresholds, "_MOST", 1 << 8)
    net = QonnxNetwork((4000,))
    x = net.linear(net.quant("x", INPUT_SCALE), net.integers((16, 4000), WEIGHT_SCALE))
    x = net.add("Clip", x, net.constant(0.0), net.constant(0.6))
    one = np.float32(0.6 / (2**bits - 1))
    found = written(net.model(net.quant(x, one, bits=bits, signed=0)))
    slope = exact(INPUT_SCALE) * exact(WEIGHT_SCALE) / exact(one)
    for scale in found["scale"]:
        assert abs(exact(scale) - slope) <= slope * Fraction(2) ** -14


@pytest.mark.parametrize(("low", "high"), [(-np.inf, np.inf), (0.0, np.inf), (-np.inf, 20.0), (-7.0, 6.0)])
@pytest.mark.parametrize("slope", [0.00104, -0.3, 7.0])
def test_lines_that_are_cut_off(slope: float, low: float, high: float):
    # Sums two apart beside wide gaps, rounded to some per cent of a step.
    sums = np.unique(np.concatenate([np.linspace(-40000, 40000, 999).astype(np.int64), np.arange(-50, 50, 2)]))
    rng = np.random.default_rng(0)
    if slope == 7:
        low, high = low * 10, high * 10
    real = np.clip(slope * sums + 0.7 + rng.uniform(-0.05, 0.05, len(sums)) * min(abs(slope), 1), low, high)
    found = find_line(sums, real)
    assert found.slope == pytest.approx(slope, rel=1e-3)
    assert found.departure(sums, real, (-128, 127)) < 0.2
    assert found.departure(sums, real + np.abs(sums) * abs(slope), (-128, 127)) > 1


@pytest.mark.parametrize(
    ("real", "slope", "at_zero"),
    [
        ([0.0, 0.0, 0.3, 1.0], 0.7, -1.1),
        ([0.0, 0.5, 1.0, 1.0], 0.5, 0.0),
        ([0.0, 0.0, 1.0, 1.0], 1.0, -1.0),
        ([2.0, 2.0, 2.0, 2.0], 0.0, 2.0),
        ([1.0, 0.5, 0.0, 0.0], -0.5, 1.0),
    ],
)
def test_lines_of_few_sums(real: list[float], slope: float, at_zero: float):
    found = find_line(np.arange(4), np.array(real))
    assert (found.slope, found.at_zero) == pytest.approx((slope, at_zero))
    assert found.departure(np.arange(4), np.array(real), (-9, 9)) == pytest.approx(0)
