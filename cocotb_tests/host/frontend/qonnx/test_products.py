"""Requantised products of QONNX networks: scales and codes are those of exact arithmetic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from onnx import numpy_helper

from cocotb_tests.support.networks.qonnx_networks import QonnxNetwork, assert_graph, executed_by_qonnx, random_feeds
from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.golden.numerics.requant import pack_parameters, requantise
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.qonnx import rewrite, thresholds
from lutterfly.host.frontend.qonnx.fit import find_line
from lutterfly.host.graph import Convolution
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


# Requantised products of drawn QONNX networks: the codes of all sums, against qonnx' quantiser on exact numbers.
#
# The generator knows what the fit has to find: the product of the scales, and the batch normalisation's factor and
# shift.

#: What float32 adds to the distance from a tie, in codes: it holds a number of 8 bits to 2**-16, through six roundings.
_ROUNDED = 2.0**-13


@dataclass
class Drawn:
    """A product up to a quantiser, and the numbers that it was made of.

    Attributes
    ----------
    data : bytes
    weights : int64[channels, terms]
    factor, shift : float64[channels]
        What is quantised is ``factor * sum + shift``, Relu after it if ``relu``.
    codes : tuple of int
        Least and greatest of the activation's.
    scale, zero_point, bits, signed, narrow : of the quantiser
    """

    data: bytes
    weights: np.ndarray
    factor: np.ndarray
    shift: np.ndarray
    relu: bool
    codes: tuple[int, int]
    scale: np.float32
    zero_point: float
    bits: float
    signed: int
    narrow: int

    def wanted(self, sums: np.ndarray, channel: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers as qonnx' quantiser rounds them, less the zero point, and what it rounds, in codes."""
        from qonnx.custom_op.general.quant import quant  # noqa: PLC0415

        real = self.factor[channel] * sums + self.shift[channel]
        real = np.maximum(real, 0) if self.relu else real
        scale = np.float64(self.scale)
        parameters = scale, np.float64(self.zero_point), np.float64(self.bits)
        values = quant(real, *parameters, self.signed, self.narrow, "ROUND")
        return np.rint(values / scale).astype(np.int64), real / scale

    def sums(self, channel: int) -> np.ndarray:
        """All sums between which the wanted code, which rises or falls, may change: four around every tie; the ends."""
        low, high = (np.minimum if at else np.maximum for at in (1, 0))
        ends = [self.weights[channel] * code for code in self.codes]
        least, greatest = low(*ends).sum(), high(*ends).sum()
        ties = (np.arange(-260, 260) + 0.5) * np.float64(self.scale)
        at = np.floor((ties - self.shift[channel]) / self.factor[channel]).clip(least - 9.0, greatest + 9.0)
        near = np.add.outer(at.astype(np.int64), np.arange(-3, 5)).reshape(-1)
        sums = np.unique(np.concatenate([near, [least, greatest], np.linspace(least, greatest, 999).astype(np.int64)]))
        return sums[(sums >= least) & (sums <= greatest)]


def draw(seed: int) -> Drawn:
    rng = np.random.default_rng(seed)
    powers, per_channel, normalised, relu, convolution, biased = rng.random(6) < 0.5
    bits, weight_bits, input_bits = rng.integers(2, 9), rng.integers(2, 9), rng.integers(2, 9)
    signed, narrow, outputs = int(rng.random() < 0.5), int(rng.random() < 0.3), int(rng.integers(1, 6))
    inputs = int(rng.choice([1, 3, 20, 150, 700]))

    def scale(count: int = 1) -> np.ndarray:
        values = 2.0 ** rng.uniform(-9, -2, count)
        return (2.0 ** np.rint(np.log2(values)) if powers else values).astype(np.float32)

    net = QonnxNetwork((inputs, 1, 2) if convolution else (inputs,), seed=seed)
    read, weight = scale()[0], scale(outputs if per_channel else 1)
    x = net.quant("x", read, bits=float(input_bits), narrow=1)
    shape = (outputs, inputs, 1, 1) if convolution else (outputs, inputs)
    scales = weight.reshape(-1, *[1] * (len(shape) - 1)) if per_channel else weight[0]
    operand = net.integers(shape, scales, float(weight_bits))
    weights = np.rint(quantised(net, operand, weight_bits, scales) / scales).astype(np.int64).reshape(outputs, -1)
    unit = np.float64(read) * np.broadcast_to(weight, outputs).astype(np.float64)
    greatest = (1 << input_bits - 1) - 1
    spread = unit.max() * max(np.abs(weights).sum(axis=1).max(), 1) * greatest / 4
    bias = (rng.normal(size=outputs) * spread / 8).astype(np.float32) if biased else None
    if powers and biased:
        bias = (np.rint(bias / unit) * unit).astype(np.float32)
    x = net.conv(x, operand, bias=bias) if convolution else net.linear(x, operand, bias=bias)
    factor, shift = unit, np.zeros(outputs) if bias is None else bias.astype(np.float64)
    if normalised:
        x = net.norm(x, float(spread))
        gain, offset, mean, variance = (numpy_helper.to_array(item).astype(np.float64) for item in net.constants[-4:])
        gain = gain / np.sqrt(variance + np.float64(np.float32(1e-5)))
        factor, shift = factor * gain, (shift - mean) * gain + offset
        spread = 1.0
    x = net.add("Relu", x) if relu else x
    made = np.float32(spread * rng.uniform(0.3, 3) / 2.0 ** (bits - 1))
    made = np.float32(2.0 ** np.rint(np.log2(made))) if powers else made
    zero_point = float(rng.integers(-2 * signed, 3)) if rng.random() < 0.2 else 0.0
    x = net.quant(x, made, zero_point, float(bits), signed=signed, narrow=narrow)
    given = bool(relu), (-greatest, greatest), made, zero_point, float(bits), signed, narrow
    return Drawn(net.model(x), weights, factor, shift, *given)


def quantised(net: QonnxNetwork, name: str, bits: int, scales: np.ndarray) -> np.ndarray:
    """Weights as qonnx quantises them."""
    from qonnx.custom_op.general.quant import quant  # noqa: PLC0415

    node = next(node for node in net.nodes if node.output[0] == name)
    values = next(numpy_helper.to_array(item) for item in net.constants if item.name == node.input[0])
    return quant(values, np.asarray(scales, np.float32), np.float32(0), np.float32(bits), 1, 1, "ROUND")


def found_codes(layer: Convolution, drawn: Drawn, zero_point: int, channel: int, sums: np.ndarray) -> np.ndarray:
    """Codes of a channel less their zero point, as the accelerator requantises its sums."""
    own = layer.weights[channel].reshape(-1).astype(np.int64)
    weights = drawn.weights[channel]
    factor = next(sign for sign in (1, -1, 0) if (own == sign * weights).all())
    parameters = pack_parameters(layer.bias[channel : channel + 1], layer.multiplier[channel : channel + 1])
    codes = requantise(
        (factor * sums).astype(np.int32)[:, None], parameters, zero_point, layer.epilogue.low, layer.epilogue.high
    )[:, 0]
    return codes if layer.table is None else layer.table[codes.astype(np.int64) + 128]


def compare(seed: int) -> tuple[str, int]:
    """Compare every channel of a drawn network; whether it was accepted, and how many codes were compared."""
    drawn = draw(seed)
    try:
        graph = import_model(drawn.data)
    except ModelError as error:
        if "32 bits of the product's sums" not in str(error):
            raise
        return "refused", 0
    (layer,) = (layer for layer in graph.layers if isinstance(layer, Convolution))
    result = graph.tensors[layer.output].zero_point
    inner = graph.tensors[layer.inner].zero_point
    compared = 0
    for channel in range(len(drawn.weights)):
        sums = drawn.sums(channel)
        wanted, real = drawn.wanted(sums, channel)
        found = found_codes(layer, drawn, inner, channel, sums).astype(np.int64) - result
        wrong = found != wanted
        compared += len(sums)
        if graph.notes:
            # A whole bias is off by up to half a sum, and float32 rounds what it computes.
            distance = np.abs(real - np.floor(real) - 0.5)[wrong]
            assert (np.abs(found - wanted) <= 1).all(), (seed, channel)
            step = abs(drawn.factor[channel]) / np.float64(drawn.scale)
            assert (distance <= step / 2 + _ROUNDED).all(), (seed, channel, distance.max(), step)
        else:
            assert not wrong.any(), (seed, channel, sums[wrong][:4], found[wrong][:4], wanted[wrong][:4])
    return ("noted" if graph.notes else "exact"), compared


@pytest.mark.regress
def test_codes_of_drawn_products():
    found = [compare(seed) for seed in range(20)]
    kinds = [kind for kind, _ in found]
    assert min(kinds.count(kind) for kind in ("exact", "noted")) > 1
    assert kinds.count("refused") < 4


@pytest.mark.regress
def test_codes_of_more_drawn_products():
    found = [compare(seed) for seed in range(20, 2000)]
    assert sum(count for _, count in found) > 1_000_000


@pytest.mark.regress
def test_a_slope_that_is_off_is_seen(monkeypatch):
    """By one part in a thousand."""
    import lutterfly.host.frontend.qonnx.fit as fitting  # noqa: PLC0415

    right = fitting.find_line

    def find_line(sums, real):
        line = right(sums, real)
        return fitting.Line(line.slope * 1.001, line.at_zero)

    monkeypatch.setattr(fitting, "find_line", find_line)
    noticed = 0
    for seed in range(12):
        try:
            compare(seed)
        except AssertionError:
            noticed += 1
    assert noticed > 2
