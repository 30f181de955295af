"""QONNX networks: qonnx, ONNX Runtime on what they are rewritten to, and the graph give the same values."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest

from cocotb_tests.support.networks.binary_networks import binary_network
from cocotb_tests.support.networks.qonnx_networks import (
    QonnxNetwork,
    assert_graph,
    assert_same,
    executed_by_qonnx,
    random_feeds,
)
from cocotb_tests.support.oracles.exactness import assert_right, layer_names, needs_reference
from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.command import main
from lutterfly.host.frontend import ModelError, describe, import_model
from lutterfly.host.frontend.qonnx import rewrite
from lutterfly.host.frontend.qonnx import thresholds as wanted_codes
from lutterfly.host.graph import BinaryConvolution, Convolution, Graph, Pointwise
from lutterfly.host.model import reference
from lutterfly.host.model.model import Model
from lutterfly.host.session.verify import verify

pytestmark = needs_reference

#: Made by ``exported/qonnx/make.py``.
EXPORTS = sorted((Path(__file__).parents[3] / "exported" / "qonnx").glob("*.onnx"))
#: With the engine for binary values.
ENGINES = PRESETS["tiny"]


def on_host(graph: Graph) -> set[str]:
    return {row.kind for row in describe(graph) if row.where == "host"}


def drawn(seed: int) -> bytes:
    """Convolutions, pooling and fully connected layers, with everything drawn; all scales are powers of two."""
    rng = np.random.default_rng(seed)
    size = [int(rng.integers(6, 12)), int(rng.integers(6, 12))]
    net = QonnxNetwork((int(rng.integers(1, 40)), *size), seed=seed, opset=int(rng.choice([13, 17, 20])))
    x = net.scalar("Sub", net.scalar("Mul", "x", 2.0), 1.0) if rng.integers(2) else "x"
    x = net.bipolar(x, 2.0 ** rng.integers(-2, 2)) if rng.integers(2) else net.quant(x, 2.0 ** -rng.integers(3, 7))
    for _ in range(2):
        inputs, height, width = net.shapes[x]
        outputs, kernel = int(rng.integers(1, 70)), [int(side) for side in rng.integers(1, 4, 2)]
        dilations = [int(factor) for factor in rng.integers(1, 3, 2)]
        pads = [int(pad) for pad in rng.integers(0, 3, 4)]
        extents = [factor * (side - 1) + 1 for factor, side in zip(dilations, kernel, strict=True)]
        if height + pads[0] + pads[2] < extents[0] or width + pads[1] + pads[3] < extents[1]:
            continue
        scale = net.powers(outputs).reshape(-1, 1, 1, 1) if rng.integers(2) else 0.25
        weights = net.signs((outputs, inputs, *kernel), scale)
        bias = None if rng.integers(2) else rng.integers(-9, 9, outputs) * 2.0**-8
        strides = [int(step) for step in rng.integers(1, 3, 2)]
        x = net.conv(x, weights, pads=pads, strides=strides, dilations=dilations, bias=bias)
        x = after(net, x, rng, np.sqrt(inputs * kernel[0] * kernel[1]) / 4)
    x = net.flatten(x, str(rng.choice(["Flatten", "Reshape"])))
    features = net.shapes[x][0]
    x = net.linear(x, net.signs((24, features), 2.0**-3), str(rng.choice(["Gemm", "MatMul"])))
    x = after(net, x, rng, np.sqrt(features) / 8)
    return net.model(net.linear(x, net.signs((7, 24), 0.5)))


def after(net: QonnxNetwork, x: str, rng: np.random.Generator, spread: float) -> str:
    """What stands between a product and the next signs, in any order."""

    def is_large() -> bool:
        return min(net.shapes[x][1:], default=0) > 3

    before, after = rng.integers(0, 4, 2)
    if before == 0 and is_large():
        x = net.pool(x, 2, 2)
    if rng.integers(4):
        x = net.norm(x, spread)
    else:
        x = net.scalar("Add", net.scalar("Mul", x, float(rng.choice([-0.3, 0.7]))), 0.1)
    if before == 1 and is_large():
        x = net.pool(x, 3, 2, (1, 0, 1, 0))
    x = net.bipolar(x, 2.0 ** rng.integers(-1, 2))
    return net.pool(x, 2, 1) if after == 0 and is_large() else x


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(10))
def test_drawn_networks(seed: int):
    graph = assert_same(drawn(seed))
    assert "BinaryConvolution" in layer_names(graph)
    # The sums of the last layer are the accelerator's: what is left is their scale.
    assert not {"Conv", "Gemm", "MatMul"} & on_host(graph)


@pytest.mark.regress
@pytest.mark.parametrize("seed", range(10, 300))
def test_more_drawn_networks(seed: int):
    assert_same(drawn(seed), samples=2)


@pytest.mark.parametrize("domain", ["qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas"])
def test_every_domain_is_read(domain: str):
    net = QonnxNetwork((5,), domain=domain)
    x = net.linear(net.bipolar("x"), net.signs((6, 5)))
    graph = assert_same(net.model(net.linear(net.bipolar(x), net.signs((3, 6)))), qonnx="finn" not in domain)
    assert layer_names(graph).count("BinaryConvolution") == 2


def hybrid(seed: int, *, spread: float = 0.7) -> bytes:
    """Eight bits, binary layers in the middle, a residual sum and eight bits again."""
    net = QonnxNetwork((3, 8, 8), seed=seed)
    rng = net.rng
    x = net.quant("x", 2.0**-6)
    x = net.conv(x, net.integers((16, 3, 3, 3), 2.0**-7), pads=[1] * 4, bias=rng.integers(-99, 99, 16) * 2.0**-13)
    x = net.quant(net.add("Relu", x), 2.0**-6, signed=0)
    signs = net.bipolar(net.norm(x, 1.0)) if seed % 2 else net.bipolar(net.scalar("Sub", x, 0.5))
    y = net.conv(signs, net.signs((16, 16, 3, 3), 2.0**-4), pads=[1] * 4)
    y = net.quant(net.norm(y, 12 * 2.0**-4), 2.0**-5)
    x = net.quant(net.add("Add", net.quant(x, 2.0**-5), y), 2.0**-4)
    x = net.flatten(net.pool(x))
    x = net.linear(x, net.integers((10, 256), 2.0**-7), bias=rng.integers(-99, 99, 10) * 2.0**-11)
    return net.model(net.quant(x, 2.0**-3))


@pytest.mark.regress
@pytest.mark.parametrize("seed", range(3))
def test_hybrid_networks(seed: int):
    graph = assert_same(hybrid(seed))
    assert {"BinaryConvolution", "Convolution", "Add", "MaxPool"} <= set(layer_names(graph))
    assert not graph.notes
    assert not {"Conv", "Gemm", "MatMul"} & on_host(graph)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("seed", "bits"), [(0, 8), (1, 8), (2, 8), (4, 8), (0, 4), (1, 4), (3, 2), (5, 2)])
def test_quantised_results_of_binary_products(seed: int, bits: int):
    # Any batch normalisation: of one layer, or of two where its bias is no whole number of the sums'.
    net = QonnxNetwork((9, 5, 5), seed=seed)
    x = net.conv(net.bipolar("x"), net.signs((20, 9, 3, 3)), pads=[seed % 2] * 4)
    x = net.norm(x, 9.0)
    x = net.add("Relu", x) if seed % 3 == 0 else x
    x = net.quant(x, 2.0 ** (3 - bits), 0.0, float(bits), signed=int(seed % 3 != 0), narrow=seed % 2)
    graph = assert_same(net.model(x))
    assert (
        layer_names(graph)[-2:] in (["BinaryConvolution", "Convolution"], ["Pointwise", "BinaryConvolution"])
        or bits < 8
    )


def test_a_whole_bias_needs_one_layer():
    net = QonnxNetwork((9, 5, 5))
    x = net.conv(net.bipolar("x"), net.signs((20, 9, 3, 3), 0.5), bias=net.rng.integers(-20, 20, 20) / 2)
    graph = assert_same(net.model(net.quant(x, 1.0)))
    assert layer_names(graph) == ["Pointwise", "BinaryConvolution"]


@pytest.mark.regress
def test_integers_after_a_batch_normalisation_are_noted():
    net = QonnxNetwork((3, 6, 6))
    x = net.norm(net.conv(net.quant("x", 2.0**-5), net.integers((8, 3, 3, 3))), 2.0)
    x = net.quant(x, 2.0**-5)
    data = net.model(x)
    graph = assert_same(data, qonnx=False)
    (note,) = graph.notes
    assert note == (
        "codes of Conv_2 are those of the quantised sums, with whole numbers as biases, and may be by one other than "
        "those of QONNX, which adds up in float32"
    )
    for seed in range(3):
        feeds = random_feeds(data, seed)
        (wanted,) = executed_by_qonnx(data, feeds).values()
        found = assert_graph(graph, feeds)[x]
        assert np.abs(found - wanted).max() <= 2.0**-5


def test_the_greatest_sum_of_a_channel_is_among_those_that_are_tried(monkeypatch):
    # Each output has other limits, and Relu makes limits of the codes that were seen.
    monkeypatch.setattr(wanted_codes, "_MOST", 64)
    net = QonnxNetwork((3,))
    # The output with the least sums has the greatest codes.
    factors = np.array([1.0, 2.0, 4.0])
    weights = net.quant(net.constant(np.diag(factors)), 2.0 ** np.array([[-6], [-4], [-2]]), narrow=1)
    x = net.add("Relu", net.linear(net.quant("x", 2.0**-7), weights))
    graph = import_model(net.model(net.quant(x, 2.0**-4)))
    assert not graph.notes
    for value in (1.0, 0.5, -1.0):
        found = assert_graph(graph, {"x": np.full((1, 3), value, np.float32)})[net.nodes[-1].output[0]]
        wanted = min(np.float32(value), 127 / 128) * factors
        np.testing.assert_array_equal(found[0], np.maximum(np.rint(wanted * 16), 0) / 16)


@pytest.mark.regress
@pytest.mark.parametrize("zero_point", [0.0, 4.0])
def test_a_zero_point_after_a_product_is_noted(zero_point: float):
    # It is added before the numbers are rounded, so that ties may go the other way.
    net = QonnxNetwork((40,))
    x = net.linear(net.quant("x", 2.0**-6), net.integers((30, 40), 2.0**-7))
    graph = assert_same(net.model(net.quant(x, 2.0**-4, zero_point)))
    assert bool(graph.notes) == (zero_point != 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("features", [3, 255, 256, 300, 1000])
def test_sums_of_many_values_are_counted_in_parts(features: int, bias: bool):
    net = QonnxNetwork((features,))
    given = np.arange(5) / 4 if bias else None
    x = net.linear(net.bipolar("x", 0.5), net.signs((5, features), net.powers(5).reshape(-1, 1)), bias=given)
    graph = assert_same(net.model(net.scalar("Div", x, 3.0)), samples=6)
    (layer,) = [layer for layer in graph.layers if isinstance(layer, BinaryConvolution)]
    assert len(layer.weights) == 5 * -(-features // 255)


def test_extreme_sums_are_counted():
    net = QonnxNetwork((600,))
    weights = net.bipolar(net.constant(np.repeat([[1.0], [-1.0]], 600, axis=1)))
    graph = import_model(net.model(net.linear(net.bipolar("x"), weights)))
    for value in (1, -1):
        found = assert_graph(graph, {"x": np.full((1, 600), value, np.float32)})
        np.testing.assert_array_equal(found["gemm_2"], [[600 * value, -600 * value]])


def test_maps_are_counted_too():
    net = QonnxNetwork((8, 6, 5))
    x = net.conv(net.bipolar("x"), net.signs((4, 8, 5, 5)), pads=[2, 1, 0, 2], strides=[2, 1])
    assert_same(net.model(x))


def test_one_map_for_several_readers():
    # The results of one product become signs and numbers, its signs are read in float and pooled.
    net = QonnxNetwork((6, 6, 6))
    x = net.conv(net.bipolar("x"), net.signs((8, 6, 3, 3)))
    normed = net.norm(x, 7.0)
    signs, numbers = net.bipolar(normed, 0.5), net.quant(normed, 2.0**-5)
    assert_same(net.model(signs, numbers, net.pool(signs), net.conv(signs, net.signs((4, 8, 2, 2)))))


def test_binary_activations_and_weights_of_eight_bits():
    net = QonnxNetwork((6, 6, 6))
    x = net.conv(net.bipolar("x", 0.5), net.signs((8, 6, 3, 3)))
    x = net.bipolar(net.norm(x, 4.0))
    x = net.conv(x, net.integers((4, 8, 3, 3)))
    graph = assert_same(net.model(net.bipolar(net.norm(x, 3.0))))
    assert [type(layer) for layer in graph.layers].count(Convolution) == 1


def test_depthwise_binary_weights():
    net = QonnxNetwork((6, 6, 6))
    x = net.conv(net.quant("x"), net.signs((6, 1, 3, 3)), group=6, pads=[1] * 4)
    x = net.bipolar(net.norm(x, 2.0))
    x = net.conv(x, net.signs((6, 1, 3, 3)), group=6)
    assert_same(net.model(net.bipolar(net.norm(x, 3.0))))


def test_series():
    net = QonnxNetwork((3, 20))
    x = net.conv(net.quant("x"), net.signs((6, 3, 4)), pads=[1, 2], strides=[2], dilations=[1])
    x = net.bipolar(net.norm(x, 2.0))
    x = net.conv(x, net.signs((4, 6, 3)), pads=[0, 1], strides=[1], dilations=[2])
    assert_same(net.model(net.bipolar(net.norm(x, 4.0))))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "given",
    [
        {"zero_point": 3.0},
        {"zero_point": 128.0, "signed": 0},
        {"bits": 2.0, "narrow": 1},
        {"bits": 4.0, "signed": 0},
        {"bits": 8.0, "signed": 0, "narrow": 1},
        {"bits": 1.0, "scale": 1.0},
        {"mode": "FLOOR"},
        {"mode": "CEIL", "zero_point": 5.0},
        {"scale": 0.037},
    ],
)
def test_every_quantised_input(given: dict[str, object]):
    net = QonnxNetwork((3, 6, 6))
    x = net.quant("x", **({"scale": 2.0**-5} | given))
    # No sum lies near a threshold, whatever the scale.
    x = net.conv(x, net.signs((6, 3, 1, 1)), bias=np.full(6, 2.0**-9))
    graph = assert_same(net.model(net.bipolar(x)), samples=6)
    assert isinstance(graph.layers[0], Pointwise if given.get("bits") == 1.0 else Convolution)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("dtype", [onnx.TensorProto.INT8, onnx.TensorProto.UINT8])
def test_inputs_of_integers(dtype: int, quantised: bool):
    net = QonnxNetwork((3, 6, 6), dtype=dtype)
    x = net.add("Cast", "x", to=onnx.TensorProto.FLOAT)
    x = net.quant(net.scalar("Div", x, 255.0), 2.0**-7) if quantised else x
    x = net.conv(x, net.signs((6, 3, 3, 3)), pads=[1] * 4)
    graph = assert_same(net.model(net.bipolar(net.norm(x, 2.0 if quantised else 300.0))))
    assert set(layer_names(graph)) <= {"Pointwise", "Convolution"}
    assert not graph.head


@pytest.mark.regress
def test_requantised_numbers_are_a_table():
    net = QonnxNetwork((3, 6, 6))
    x = net.conv(net.quant("x"), net.integers((4, 3, 3, 3)))
    x = net.quant(x, 2.0**-5)
    x = net.quant(net.add("Sigmoid", net.scalar("Mul", x, 1.7)), 2.0**-8, signed=0)
    assert_same(net.model(net.bipolar(net.scalar("Sub", x, 0.5))))


def test_other_models_are_left_alone():
    model = Model(binary_network(0)[0])
    assert rewrite(model, "model") is model


def test_a_dynamic_batch_stays_one():
    net = QonnxNetwork((4, 6, 6))
    x = net.flatten(net.bipolar(net.conv(net.bipolar("x"), net.signs((5, 4, 3, 3)))))
    data = net.model(net.linear(x, net.signs((3, 80))), batch="N")
    assert_same(data, qonnx=False)
    session = InferenceSession(data, ENGINES, GoldenTransport(ENGINES))
    images = np.random.default_rng(0).normal(size=(3, 4, 6, 6)).astype(np.float32)
    (found,) = session.run(None, {"x": images})
    wanted = [reference.run(rewrite(Model(data), "model"), {"x": image[None]})[x_name(data)] for image in images]
    np.testing.assert_array_equal(found, np.concatenate(wanted))


def x_name(data: bytes) -> str:
    return onnx.load_from_string(data).graph.output[0].name


@pytest.mark.parametrize("weights", ["float", "several scales"])
def test_a_last_layer_of_other_weights_is_the_hosts(weights: str):
    net = QonnxNetwork((8,))
    x = net.bipolar(net.linear(net.bipolar("x"), net.signs((6, 8))))
    values = np.arange(1, 31).reshape(5, 6)
    last = net.constant(values / 4) if weights == "float" else net.signs((5, 6), 2.0 ** (values % 3))
    x = net.add("Gemm", x, last, shape=(5,), transB=1)
    graph = assert_same(net.model(x))
    assert layer_names(graph).count("BinaryConvolution") == 1
    assert "Gemm" in on_host(graph)


@pytest.mark.regress
@pytest.mark.parametrize("scale", [0.1, 0.3])
def test_scales_that_round_are_exact_or_refused(scale: float):
    accepted = 0
    for seed in range(8):
        net = QonnxNetwork((24,), seed=seed)
        x = net.linear(net.bipolar("x"), net.signs((16, 24), scale))
        x = net.bipolar(net.norm(x, 5 * scale))
        data = net.model(x)
        refusal = _refusal(data)
        if refusal:
            assert "must decide farther from a sum than float32 may err" in refusal
        else:
            assert_same(data, samples=2)
            accepted += 1
    assert accepted >= 6


def _refusal(data: bytes) -> str:
    try:
        import_model(data)
    except ModelError as error:
        return str(error)
    return ""


@pytest.mark.regress
@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem)
def test_exports_of_brevitas(path: Path):
    data = path.read_bytes()
    domains = {node.domain for node in onnx.load_from_string(data).graph.node}
    assert "qonnx.custom_op.general" in domains
    graph = assert_same(data, samples=4)
    assert not graph.notes
    assert not {"Conv", "Gemm", "MatMul", "BatchNormalization"} & on_host(graph)


@pytest.mark.regress
@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem)
def test_exports_on_the_core(path: Path):
    assert_right(verify(path.read_bytes(), ENGINES, 2))


@pytest.mark.regress
def test_commands_take_a_file(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = EXPORTS[0]
    data = path.read_bytes()
    (name, image), *_ = random_feeds(data, 0).items()
    np.save("image.npy", image)
    assert main.main(["check", str(path), "--config", "tiny"]) == 0
    assert main.main(["compile", str(path), "-o", "net.lfp", "--config", "tiny"]) == 0
    (wanted,) = executed_by_qonnx(data, {name: image}).values()
    for file in (str(path), "net.lfp"):
        words = ["run", file, "--input", f"{name}=image.npy", "--output", "found.npy", "--config", "tiny"]
        assert main.main(words) == 0
        np.testing.assert_array_equal(np.load("found.npy"), wanted)
    assert main.main(["verify", str(path), "--samples", "1", "--config", "tiny"]) == 0
    capsys.readouterr()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("eight_bits", [False, True])
@pytest.mark.parametrize("shift", [-1.0, 0.0, 0.4, 1.0])
def test_pooling_in_front_of_falling_signs(shift: float, eight_bits: bool):
    # Every whole number is a sum, those next to the threshold and on it included.
    net = QonnxNetwork((3, 7, 7))
    x = net.quant("x", 1.0) if eight_bits else net.bipolar("x")
    x = net.conv(x, net.signs((8, 3, 1, 2)), pads=[0, 1, 0, 1])
    factors = np.array([-1, 1, -1, 1, -1, 1, -1, 1], np.float32).reshape(8, 1, 1)
    x = net.scalar("Add", net.scalar("Mul", net.pool(x), factors), shift)
    graph = assert_same(net.model(net.bipolar(x)), samples=4)
    assert layer_names(graph)[-2:] == ["MaxPool", "Convolution"]


def test_signs_that_hardly_ever_change():
    # Thresholds below and above every sum, at the ends and between, on all inputs there are.
    net = QonnxNetwork((4,))
    x = net.linear(net.bipolar("x"), net.bipolar(net.constant(np.ones((12, 4)))))
    factors = np.repeat([1.0, -1.0], 6)
    x = net.scalar("Add", net.scalar("Mul", x, factors), np.tile([-4.5, -4.0, -3.5, 3.5, 4.0, 4.5], 2))
    graph = import_model(net.model(net.bipolar(x)))
    for image in itertools.product([-1.0, 1.0], repeat=4):
        feeds = {"x": np.array([image], np.float32)}
        (wanted,) = executed_by_qonnx(net.model(net.nodes[-1].output[0]), feeds).values()
        np.testing.assert_array_equal(assert_graph(graph, feeds)[net.nodes[-1].output[0]], wanted)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"signed": 0},
        {"bits": 4.0},
        {"bits": 5.0, "narrow": 1},
        {"bits": 6.0, "signed": 0},
    ],
)
@pytest.mark.parametrize(("second", "relu"), [("bipolar", True), ("quant", False), ("quant", True), ("itself", True)])
def test_quantised_sums(second: str, relu: bool, given: dict[str, object]):
    net = QonnxNetwork((2, 16, 16))
    first = net.quant("x", 2.0**-6)
    other = net.scalar("Mul", "x", -0.7)
    operand = {"bipolar": lambda: net.bipolar(other, 0.5), "quant": lambda: net.quant(other, signed=0)}
    x = net.add("Add", first, operand[second]() if second in operand else first)
    x = net.add("Relu", x) if relu else x
    x = net.pool(net.quant(x, 2.0**-3, **given)) if relu else net.quant(x, 2.0**-4, **given)
    graph = assert_same(net.model(x))
    assert ("Add" in layer_names(graph)) == (second in operand)


@pytest.mark.regress
def test_digits():
    data = digits.brevitas_model_path().read_bytes()
    graph = import_model(data)
    images, labels = digits.images(), digits.labels()
    read = [reference.run(graph.model, {"pixels": image[None]})["logits"].argmax() for image in images]
    assert int((np.array(read) == labels).sum()) == 353
    for image in images[:5]:
        feeds = {"pixels": image[None]}
        wanted = executed_by_qonnx(data, feeds)["logits"]
        np.testing.assert_array_equal(assert_graph(graph, feeds)["logits"], wanted)
    assert_right(verify(data, ENGINES, 1))
