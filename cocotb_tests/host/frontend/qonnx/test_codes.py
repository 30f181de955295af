"""Sums and averages of QONNX networks: which there are, how far float32 may lie from them, and their codes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper

from cocotb_tests.support.networks.qonnx_networks import QonnxNetwork, assert_same
from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.qonnx import thresholds
from lutterfly.host.frontend.qonnx.fit import fit_scaled, fit_windows
from lutterfly.host.frontend.qonnx.products import Coded, Product
from lutterfly.host.frontend.qonnx.thresholds import Wanted, Way, find_thresholds
from lutterfly.host.graph import AveragePool, Window


def product(
    weights: np.ndarray, *, scale: float = 1.0, source: Coded | None = None, bias: np.ndarray | None = None, **given
) -> Product:
    node = helper.make_node("Gemm", ["x", "w"], ["y"], "y")
    scales = np.full(len(weights), scale, np.float32)
    source = source or Coded("x", np.float32(1), is_binary=True)
    return Product(node, source, weights.astype(np.int8), scales, bias, **given)


def signs(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice([-1, 1], shape)


def test_sums_of_binary_vectors():
    weights = signs(3, 4)
    reached = {int(np.dot(weights[0], values)) for values in itertools.product([-1, 1], repeat=4)}
    assert product(weights).sums().tolist() == sorted(reached) == [-4, -2, 0, 2, 4]


def test_sums_at_borders_of_zeros():
    window = Window((2, 1), pads=(1, 0, 0, 0))
    # One channel: 2 taps inside, or 1.
    assert product(signs(3, 1, 2, 1), window=window, area=(3, 3)).sums().tolist() == [-2, -1, 0, 1, 2]
    assert product(signs(3, 2, 2, 1), window=window, area=(3, 3)).sums().tolist() == [-4, -2, 0, 2, 4]


def test_limits_of_codes():
    source = Coded("x", np.float32(1), -3, -128, 100)
    low, high = product(np.array([[2, -1], [0, 3]]), source=source).limits()
    # Numbers lie between -125 and 103.
    assert low.tolist() == [-250 - 103, -375]
    assert high.tolist() == [206 + 125, 309]


@pytest.mark.parametrize(
    ("scale", "source_scale", "bias", "exact"),
    [
        (1.0, 1.0, None, True),
        (2.0**-20, 2.0**7, None, True),
        (0.75, 0.625, None, True),
        (0.1, 1.0, None, False),
        (1.0, 0.1, None, False),
        (1.0, 1.0, [3.0, -4.0], True),
        (1.0, 1.0, [0.5, 0.0], True),
        (1.0, 1.0, [0.1, 0.0], False),
        (2.0**-18, 1.0, [1024.0, 0.0], False),
    ],
)
def test_what_is_exact(scale: float, source_scale: float, bias: list[float] | None, exact: bool):
    source = Coded("x", np.float32(source_scale), is_binary=True)
    given = None if bias is None else np.array(bias, np.float32)
    made = product(signs(2, 64), scale=scale, source=source, bias=given)
    assert (made.errors(made.sums()) == 0).all() == exact


@pytest.mark.parametrize("terms", [1 << 18, (1 << 18) + 1])
def test_the_last_sum_that_is_exact(terms: int):
    # 65 is an odd number of 7 bits: 2**24 is reached within 2**18 terms.
    made = product(np.ones((1, terms), np.int8), scale=64.0 if terms == 1 << 18 else 65.0)
    assert (made.errors(np.array([terms])) == 0).all() == (terms == 1 << 18)


def added(terms: np.ndarray, order: str) -> np.float32:
    """float32 sums of float32 terms in some order."""
    if order == "pairs":
        while len(terms) > 1:
            rest = terms[-1:] if len(terms) % 2 else terms[:0]
            even = len(terms) // 2 * 2
            terms = np.concatenate([terms[:even:2] + terms[1:even:2], rest])
        return terms[0]
    ordered = np.sort(terms)[::-1] if order == "greatest first" else terms
    return np.add.accumulate(ordered, dtype=np.float32)[-1]


@pytest.mark.parametrize("order", ["as they come", "greatest first", "pairs"])
@pytest.mark.parametrize("binary", [True, False])
def test_errors_bound_every_order_of_additions(order: str, binary: bool):
    farthest = 0.0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 2000))
        source = Coded("x", np.float32(rng.uniform(0.01, 3)), is_binary=binary, least=-128, greatest=127)
        codes = rng.choice([-1, 1], count) if binary else rng.integers(-128, 128, count)
        weights = rng.choice([-1, 1], (1, count)) if binary else rng.integers(-127, 128, (1, count))
        bias = None if seed % 2 else rng.normal(size=1).astype(np.float32) * 10
        made = product(weights, scale=rng.uniform(0.01, 3), source=source, bias=bias)
        terms = (codes.astype(np.float32) * source.scale) * (weights[0].astype(np.float32) * made.scale[0])
        terms = np.append(terms, [] if bias is None else bias).astype(np.float32)
        total = np.array([int(np.dot(codes, weights[0]))])
        error = abs(float(added(terms, order)) - float(made.results(total)[0, 0]))
        bound = float(made.errors(total)[0, 0])
        assert error <= bound
        farthest = max(farthest, error / bound)
    # No bound that allows anything: where the greatest terms are added first, it is a hundred times what happens.
    assert farthest > {"as they come": 3e-4, "greatest first": 0.01, "pairs": 1e-5}[order]


def decided(decisions: np.ndarray, pooled: list[np.ndarray] | None = None, ends: list[np.ndarray] | None = None):
    """Thresholds of decisions bool[sums, channels] on the sums -4, -2, 0 ..."""
    sums = np.arange(len(decisions)) * 2 - 4

    def evaluate(part: np.ndarray):
        at = np.searchsorted(sums, part)
        read = [values[at] for values in pooled or []]
        return [(np.where(values[at], 1.0, -1.0), read) for values in (decisions, *(ends or []))]

    channels = decisions.shape[1]
    limits = np.full(channels, sums[0]), np.full(channels, sums[-1])
    return find_thresholds("here", sums, limits, evaluate)


def test_every_kind_of_threshold():
    found = decided(np.array([[0, 1, 0, 1], [0, 1, 0, 1], [1, 0, 0, 1], [1, 0, 0, 1]], bool))
    assert found.way.tolist() == [Way.RISING, Way.FALLING, Way.CONSTANT, Way.CONSTANT]
    assert found.threshold[:2].tolist() == [0, -2]
    assert found.always[2:].tolist() == [False, True]


def test_thresholds_at_the_ends():
    found = decided(np.array([[0, 1], [0, 0], [0, 0], [1, 0]], bool))
    assert found.threshold.tolist() == [2, -4]


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_thresholds_of_sums_that_come_in_parts(at_once: int, monkeypatch):
    monkeypatch.setattr(thresholds, "_AT_ONCE", at_once)
    rng = np.random.default_rng(at_once)
    for _ in range(20):
        at, rising, constant = rng.integers(1, 9, 6), rng.integers(0, 2, 6), rng.integers(0, 3, 6) == 0
        decisions = (np.arange(9)[:, None] >= at) == rising
        decisions[:, constant] = rising[constant]
        found = decided(decisions, [np.arange(9.0)[:, None] * np.where(rising, 1, -1)])
        way = np.where(constant | (at > 8), 0, np.where(rising, 1, -1))
        assert found.way.tolist() == way.tolist()
        np.testing.assert_array_equal(found.pooled[0], np.where(rising, 1, -1))
        sums = np.arange(9)[:, None] * 2 - 4
        again = np.where(way == 0, found.always, np.where(way > 0, sums >= found.threshold, sums <= found.threshold))
        np.testing.assert_array_equal(again, decisions)
    twice = np.array([[0], [1], [1], [1], [1], [0]], bool)
    with pytest.raises(ModelError, match="not at -2, 6: that is no threshold"):
        decided(twice)


def test_sums_that_a_channel_does_not_have():
    # The second channel has the sums -2 and 0 alone.
    sums, decisions = np.array([-4, -2, 0, 2]), np.array([[0, 1], [0, 0], [1, 1], [1, 0]], bool)

    def evaluate(part: np.ndarray):
        return [(decisions[np.searchsorted(sums, part)].astype(float), [])]

    found = find_thresholds("here", sums, (np.array([-4, -2]), np.array([2, 0])), evaluate)
    assert (found.way.tolist(), found.threshold.tolist()) == ([1, 1], [0, 0])


def test_what_is_no_threshold():
    wanted = (
        "here: channel 1 must change its sign at one sum at most, not at -2, 2: that is no threshold; keep to "
        "operators that rise or fall in front of it"
    )
    with pytest.raises(ModelError, match=f"^{re.escape(wanted)}$"):
        decided(np.array([[0, 0], [0, 1], [1, 1], [1, 0]], bool))


def test_what_is_uncertain():
    decisions = np.array([[0], [0], [1], [1]], bool)
    wanted = (
        "here: channel 0 must decide farther from a sum than float32 may err, not at the sum 0: other orders of "
        "additions give other signs; use scales that are powers of two, which round nothing (scaling_const=1.0 for "
        "binary weights, restrict_scaling_type=POWER_OF_TWO)"
    )
    for end in ([0, 0, 0, 1], [1, 1, 0, 1]):
        with pytest.raises(ModelError, match="must decide farther") as caught:
            decided(decisions, ends=[decisions, np.array(end, bool)[:, None]])
        assert str(caught.value) == (wanted if end[0] == 0 else wanted.replace("sum 0", "sum -4"))


def test_which_sign_pooling_takes():
    decisions = np.array([[0, 0, 1, 1, 1], [0, 0, 1, 1, 1], [1, 1, 0, 0, 1], [1, 1, 0, 0, 1]], bool)
    rising, falling = np.arange(4.0), -np.arange(4.0)
    pooled = np.stack([rising, falling, rising, falling, falling], axis=1)
    node = helper.make_node("MaxPool", ["x"], ["y"], "pool")
    found = decided(decisions, [pooled])
    assert found.takes_least("here", [node]).tolist() == [False, True, True, False, False]
    both = decided(decisions, [pooled, pooled])
    assert both.takes_least("here", [node, node]).tolist() == [False, True, True, False, False]
    other = decided(decisions, [pooled, -pooled])
    wanted = (
        "here: MaxPool 'pool' must pool what goes the same way with the sum as MaxPool 'pool' does, not channel 0 the "
        "other way; put both after the batch normalisation"
    )
    with pytest.raises(ModelError, match=f"^{re.escape(wanted)}$"):
        other.takes_least("here", [node, node])


def test_pooling_of_what_rises_and_falls():
    with pytest.raises(
        ModelError, match="what its pooling reads must rise or fall with the sum, not both, as channel 0"
    ):
        decided(np.ones((4, 1), bool), [np.array([0.0, 1.0, 2.0, 1.0])[:, None]])


def wanted_codes(n: int, channels: int, seed: int, zero_point: int) -> Wanted:
    """What a batch normalisation of either sign and a quantiser make of sums of n binary products."""
    rng = np.random.default_rng(seed)
    sums = np.arange(-n, n + 1, 2)
    slope = rng.uniform(0.3, 2, channels) * rng.choice([-1, 1], channels) / np.sqrt(n) * 32
    real = sums[:, None] * slope + rng.normal(size=channels) * 32
    codes = np.clip(np.rint(real) + zero_point, -128, 127).astype(np.int64)
    return Wanted(sums, np.ones(codes.shape, bool), codes, real)


def in_two_layers(wanted: Wanted, zero_point: int) -> np.ndarray:
    """The codes, computed apart from the fit: int64[sums, channels]."""
    found = fit_windows(wanted, zero_point)
    signed = (wanted.sums[:, None] * found.factor)[..., None]
    counted = np.clip(np.rint((signed + found.first_biases()) / found.step), 0, 255)
    totals = (counted * found.second_factors()).sum(axis=2) + found.second.bias
    scaled = totals.astype(np.float32) * found.second.multiplier
    assert np.abs(found.second_factors()).max() <= 127
    return np.clip(np.rint(scaled) + zero_point, -128, 127).astype(np.int64)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("n", "zero_point"), [(5, 0), (81, -128), (576, 3), (1152, 0), (4608, 127)])
def test_two_layers_give_the_codes_of_any_batch_normalisation(n: int, zero_point: int):
    wanted = wanted_codes(n, 32, n, zero_point)
    np.testing.assert_array_equal(in_two_layers(wanted, zero_point), wanted.codes)


def test_constant_codes():
    wanted = wanted_codes(9, 3, 0, 0)
    wanted.codes[:] = [5, -128, 127]
    np.testing.assert_array_equal(in_two_layers(wanted, 0), wanted.codes)
    fit = fit_scaled(wanted, 0)
    assert not fit.wrong.any()
    np.testing.assert_array_equal(np.rint((wanted.sums[:, None] + fit.bias) * fit.multiplier), wanted.codes)


def test_one_layer_has_the_real_scale_where_it_fits():
    sums = np.arange(-9, 10, 2)
    real = sums[:, None] * np.array([0.5, -0.25]) + np.array([1.5, 0.25])
    fit = fit_scaled(Wanted(sums, np.ones(real.shape, bool), np.rint(real).astype(np.int64), real), 0)
    assert (fit.factor.tolist(), fit.bias.tolist(), fit.multiplier.tolist()) == ([1, -1], [3, 1], [0.5, 0.25])
    assert not fit.wrong.any()


def test_limits_count_where_codes_would_lie_beyond():
    sums = np.arange(-9, 10, 2)
    real = sums[:, None] * np.array([1.0]) + 1.0
    codes = np.rint(real).astype(np.int64)
    every = np.ones(codes.shape, bool)
    assert not fit_scaled(Wanted(sums, every, codes, real), 0).is_limited
    cut = fit_scaled(Wanted(sums, every, codes.clip(0, 7), real), 0)
    assert cut.is_limited
    assert not cut.wrong.any()


# Averages of quantised numbers in QONNX networks: the numbers of qonnx, or a refusal that names the average.

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


@needs_reference
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


@needs_reference
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


@needs_reference
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


@needs_reference
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
