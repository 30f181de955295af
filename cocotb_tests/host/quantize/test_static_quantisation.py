"""From a float model to the bytes of the accelerator: `lutterfly quantize`, its answers and its refusals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.host import InferenceSession
from lutterfly.host.command.main import main
from lutterfly.host.frontend import ModelError, describe, import_model
from lutterfly.host.model import executed
from lutterfly.host.model.model import Model
from lutterfly.host.quantize.calibration import split
from lutterfly.host.quantize.static_quantisation import quantize, relative_errors

IMAGE = (2, 9, 8)
COMMAND = "import sys; from lutterfly.host.command.main import main; sys.exit(main())"


class FloatNetwork:
    """A float network under construction: an operator works on the output of the one before, or on ``source``."""

    def __init__(self, *, opset: int = 17) -> None:
        self.rng = np.random.default_rng(1)
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.last = "image"

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *others: str, source: str | None = None, **attributes: object) -> str:
        output = f"t{len(self.nodes)}"
        inputs = [source or self.last, *others]
        self.nodes.append(helper.make_node(operator, inputs, [output], f"{operator}_{output}", **attributes))
        self.last = output
        return output

    def convolution(self, shape: Sequence[int], **attributes: object) -> str:
        """A convolution without bias, and batch normalisation."""
        self.bare_convolution(shape, **attributes)
        return self.normalisation(shape[0])

    def bare_convolution(self, shape: Sequence[int], **attributes: object) -> str:
        reach = np.prod(shape[1:])
        return self.add("Conv", self.constant(self.rng.normal(0, reach**-0.5, shape).astype(np.float32)), **attributes)

    def normalisation(self, channels: int, **attributes: object) -> str:
        ranges = ((0.5, 2), (-0.3, 0.3), (-0.2, 0.2), (0.5, 2))
        statistics = [self.rng.uniform(*limits, channels).astype(np.float32) for limits in ranges]
        return self.add("BatchNormalization", *map(self.constant, statistics), **attributes)

    def fully_connected(self, inputs: int, outputs: int) -> str:
        weights = self.rng.normal(0, inputs**-0.5, (inputs, outputs)).astype(np.float32)
        self.add("MatMul", self.constant(weights))
        return self.add("Add", self.constant(self.rng.normal(0, 0.1, outputs).astype(np.float32)))

    def serialise(self, *, shape: Sequence[int | str] = ("batch", *IMAGE), rank: int = 2) -> bytes:
        infos = [
            helper.make_tensor_value_info("image", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info(self.last, TensorProto.FLOAT, [None] * rank),
        ]
        graph = helper.make_graph(self.nodes, "float", infos[:1], infos[1:], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        onnx.checker.check_model(model)
        return model.SerializeToString()


def cnn(*, opset: int = 17, **shape: Sequence[int | str]) -> bytes:
    network = FloatNetwork(opset=opset)
    network.convolution((6, 2, 3, 3), pads=[1, 1, 1, 1])
    network.add("Relu")
    network.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    network.convolution((9, 6, 3, 2), pads=[1, 1, 1, 0])
    # HardSwish as exporters spell it: becomes one table, with the Tanh after it.
    whole = network.last
    network.add("Add", network.constant(np.float32(3)))
    gate = network.add("Clip", *(network.constant(np.float32(limit)) for limit in (0, 6)))
    network.add("Mul", gate, source=whole)
    network.add("Div", network.constant(np.float32(6)))
    network.add("Tanh")
    network.add("Flatten")
    network.fully_connected(144, 7)
    network.add("Softmax", axis=1)
    return network.serialise(**shape)


def residual() -> bytes:
    """Depthwise convolution, sum of two activations, and a mean over the map as exporters like to write it."""
    network = FloatNetwork()
    skip = network.convolution((4, 2, 3, 3), pads=[1, 1, 1, 1])
    network.add("Clip", *(network.constant(np.float32(limit)) for limit in (0, 6)))
    network.convolution((4, 1, 3, 3), pads=[1, 1, 1, 1], group=4)
    network.add("Add", skip)
    network.add("Relu")
    network.add("ReduceMean", axes=[-1, -2], keepdims=0)
    network.fully_connected(4, 3)
    return network.serialise()


def densely_connected() -> bytes:
    """Batch normalisation after concatenations, in front of the convolutions: none of them can take it up."""
    network = FloatNetwork()
    known, channels = network.bare_convolution((4, 2, 3, 3), pads=[1, 1, 1, 1]), 4
    for _ in range(2):
        network.normalisation(channels, epsilon=0.01)
        network.add("Relu")
        new = network.bare_convolution((3, channels, 3, 3), pads=[1, 1, 1, 1])
        known, channels = network.add("Concat", new, source=known, axis=1), channels + 3
    network.normalisation(channels)
    network.add("Relu")
    network.add("GlobalAveragePool")
    network.add("Flatten")
    network.fully_connected(channels, 3)
    return network.serialise()


def normalised_vectors(*, transposed: bool, bias: bool) -> bytes:
    """Linear and BatchNorm1d, as PyTorch's older exporter writes them, and without a bias or a transposition."""
    network = FloatNetwork()
    network.convolution((3, 2, 3, 3), pads=[1, 1, 1, 1])
    network.add("Flatten")
    features = 3 * int(np.prod(IMAGE[1:]))
    for outputs in (12, 5):
        shape = (outputs, features) if transposed else (features, outputs)
        operands = [network.constant(network.rng.normal(0, features**-0.5, shape).astype(np.float32))]
        if bias:
            operands.append(network.constant(network.rng.normal(0, 0.3, outputs).astype(np.float32)))
        network.add("Gemm", *operands, transB=int(transposed), alpha=0.5, beta=2.0)
        network.normalisation(outputs, epsilon=0.01)
        network.add("Relu")
        features = outputs
    return network.serialise()


@pytest.mark.sampled(2)
@needs_reference
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_batch_normalisation_of_vectors_is_folded(transposed: bool, bias: bool) -> None:
    data = normalised_vectors(transposed=transposed, bias=bias)
    quantised = quantize(data, samples())
    assert [row.kind for row in describe(import_model(quantised)) if row.where == "accelerator"] == [
        "convolution 3x3",
        "fully connected",
        "fully connected",
    ]
    feeds = samples(3, seed=1)
    expected = executed.open_session(Model(quantised)).run(None, feeds)[0]
    np.testing.assert_array_equal(InferenceSession(quantised, "tiny").run(None, feeds)[0], expected)
    assert relative_errors(Model(data), Model(quantised), feeds).popitem()[1] < 0.05


@needs_reference
@pytest.mark.parametrize("make", [densely_connected, lambda: normalised_vectors(transposed=True, bias=True)])
def test_nothing_is_left_of_what_was_folded(make: Callable[[], bytes], capfd: pytest.CaptureFixture[str]) -> None:
    """ONNX Runtime warns of every constant that nothing reads."""
    model = onnx.load_from_string(quantize(make(), samples(32)))
    assert capfd.readouterr().err == ""
    read = {name for node in model.graph.node for name in node.input}
    assert read.issuperset(tensor.name for tensor in model.graph.initializer)


@needs_reference
def test_batch_normalisation_of_what_others_read_stays() -> None:
    network = FloatNetwork()
    network.add("Flatten")
    features = int(np.prod(IMAGE))
    weights = network.rng.normal(0, features**-0.5, (features, 6)).astype(np.float32)
    product = network.add("Gemm", network.constant(weights))
    network.add("Add", network.normalisation(6), source=product)
    data = network.serialise()
    assert relative_errors(Model(data), Model(quantize(data, samples())), samples(3)).popitem()[1] < 0.05


def samples(count: int = 8, seed: int = 0) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(seed).normal(size=(count, *IMAGE)).astype(np.float32)}


@pytest.mark.sampled(2)
@needs_reference
@pytest.mark.parametrize("make", [cnn, lambda: cnn(opset=11), residual, densely_connected])
def test_the_result_runs_with_the_bytes_of_onnx_runtime(make: Callable[[], bytes]) -> None:
    data = make()
    quantised = quantize(data, samples())
    feeds = samples(3, seed=1)
    expected = executed.open_session(Model(quantised)).run(None, feeds)[0]
    np.testing.assert_array_equal(InferenceSession(quantised, "tiny").run(None, feeds)[0], expected)
    assert relative_errors(Model(data), Model(quantised), feeds).popitem()[1] < 0.05


def test_activations_and_weights_are_what_the_accelerator_runs_best() -> None:
    model = onnx.load_from_string(quantize(cnn(), samples()))
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    zeros = {node.op_type: [] for node in model.graph.node}
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            zeros[node.op_type].append(constants[node.input[2]])
    assert {zero.dtype for zero in zeros["QuantizeLinear"]} == {np.dtype(np.int8)}
    channels = Counter(zero.shape for zero in zeros["DequantizeLinear"] if zero.ndim and zero.dtype == np.int8)
    assert channels == {(6,): 1, (9,): 1, (7,): 1}
    assert not any(zero.any() for zero in zeros["DequantizeLinear"] if zero.ndim)
    assert "BatchNormalization" not in zeros


@pytest.mark.parametrize(
    ("make", "layers"),
    [
        (cnn, ["convolution 3x3", "max pooling 2x2 stride 2x2", "convolution 3x2 + table", "fully connected"]),
        (
            residual,
            ["convolution 3x3", "table", "depthwise 3x3", "addition", "average pooling 9x8", "fully connected"],
        ),
        (
            densely_connected,
            [
                "convolution 3x3",
                *2 * ("depthwise 1x1", "convolution 3x3", "concatenation"),
                *("depthwise 1x1", "average pooling 9x8", "fully connected"),
            ],
        ),
    ],
)
def test_all_layers_run_on_the_accelerator(make: Callable[[], bytes], layers: list[str]) -> None:
    rows = describe(import_model(quantize(make(), samples())))
    assert [row.kind for row in rows if row.where == "accelerator"] == layers


def test_the_error_is_that_of_the_outputs() -> None:
    data = cnn()
    assert relative_errors(Model(data), Model(data), samples()) == {"t14": 0.0}
    network = FloatNetwork()
    network.add("Mul", network.constant(np.float32(3)))
    tripled = network.serialise(rank=4)
    network.constants[0].CopyFrom(numpy_helper.from_array(np.float32(3.75), "c0"))
    assert relative_errors(Model(tripled), Model(network.serialise(rank=4)), samples()) == {
        "t0": pytest.approx(0.25, rel=1e-6)
    }


def write(folder: Path, model: bytes, **arrays: np.ndarray) -> list[str]:
    """The words of a command for a model and calibration arrays."""
    (folder / "net.onnx").write_bytes(model)
    np.savez(folder / "inputs.npz", **arrays)
    return ["quantize", str(folder / "net.onnx"), "--calibrate", str(folder / "inputs.npz")]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = write(tmp_path, cnn(), **samples())
    assert main([*words, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    target = tmp_path / "net_int8.onnx"
    assert values["samples"] == 8
    assert values["file_bytes"] == target.stat().st_size
    assert values["relative_errors"].keys() == {"t14"}
    assert main(["check", str(target), "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert {name: values[name] for name in ("predicted_cycles", "macs")} == {
        name: checked[name] for name in ("predicted_cycles", "macs")
    }
    # As with compile, a file that stands there already is replaced.
    other = tmp_path / "other.onnx"
    other.write_bytes(b"old")
    assert main([*words, "-o", str(other)]) == 0
    assert other.read_bytes() == target.read_bytes()
    shown = capsys.readouterr()
    assert f"{other}: {len(other.read_bytes()):,} bytes, calibrated with 8 samples" in shown.out
    assert "from the float model's, on the samples that it was calibrated with (root mean square of 8)" in shown.out
    assert values["warnings"] == [line.removeprefix("warning: ") for line in shown.out.splitlines() if "arning" in line]
    assert values["warnings"][0].startswith("the error is measured on the samples that set the scales")
    assert all(line.startswith("lutterfly: ") for line in shown.err.splitlines()), shown.err


def test_what_the_accelerator_does_not_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = FloatNetwork()
    network.convolution((4, 2, 3, 3))
    network.add("LpNormalization")
    network.convolution((4, 4, 3, 3))
    words = write(tmp_path, network.serialise(rank=4), **samples())
    assert main([*words, "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert (
        f"{tmp_path}/net_int8.onnx: LpNormalization 'LpNormalization_t2' between Conv 'Conv_t0' and Conv 'Conv_t3'"
        in error
    )
    assert (tmp_path / "net_int8.onnx").exists()
    assert main(words) == 1
    assert f"the accelerator does not run it: {error}" in capsys.readouterr().out


@pytest.mark.parametrize("operator", ["Div", "LpNormalization"])
def test_the_operator_that_is_the_cause_is_named(operator: str) -> None:
    """Not the first one of those that stand between the same two quantised tensors."""
    network = FloatNetwork()
    first = network.bare_convolution((4, 2, 3, 3), pads=[1, 1, 1, 1])
    network.bare_convolution((4, 4, 1, 1))
    network.add("Sigmoid")
    network.add("Div", first) if operator == "Div" else network.add(operator)
    network.add("Tanh")
    network.bare_convolution((4, 4, 3, 3))
    reason = "it combines 2 activations" if operator == "Div" else f"the accelerator has no {operator}"
    message = rf"^net: {operator} '{operator}_t3' between Conv 'Conv_t1' and Conv 'Conv_t5' is not supported: {reason}"
    with pytest.raises(ModelError, match=message):
        import_model(quantize(network.serialise(rank=4), samples()), "net")


GOOD = samples()["image"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"picture": GOOD}, "input must be one of image, not picture"),
        ({}, "input image must be given, and is missing"),
        ({"image": GOOD.astype(np.float64)}, "input image must be an array of float32, not float64"),
        ({"image": GOOD[0]}, "input image must have the shape [batch, 2, 9, 8], not [2, 9, 8]"),
        ({"image": GOOD[:0]}, "input image must have the shape [batch, 2, 9, 8], not [0, 2, 9, 8]"),
        ({"image": np.full_like(GOOD, np.nan)}, "input image must be finite in all samples, and is not"),
        (
            {"image": np.full_like(GOOD, 0.5)},
            "inputs must have different values, and image is 0.5 everywhere; give typical inputs",
        ),
    ],
)
def test_refuses_samples(
    arrays: dict[str, np.ndarray], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*write(tmp_path, cnn(), **arrays), "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {"error": f"{tmp_path}/inputs.npz: {message}"}


def answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    code = main([*words, "--json"])
    return json.loads(capsys.readouterr().out) | {"code": code}


def test_the_error_is_measured_on_samples_that_set_no_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every tenth sample is far greater than the others: the scales do not reach it, and the error says so."""
    images = np.random.default_rng(3).uniform(-1, 1, (20, *GOOD.shape[1:])).astype(np.float32)
    images[9::10] *= 40
    linear = FloatNetwork()
    linear.convolution((4, 2, 3, 3))
    words = write(tmp_path, linear.serialise(rank=4), image=images)
    held_out = answer(words, capsys)
    assert (held_out["samples"], held_out["judging_samples"]) == (18, 2)
    assert held_out["relative_errors"]["t1"] > 0.5
    (warning,) = held_out["warnings"]
    assert re.fullmatch(
        r"output t1 is 9\d\.\d% from the float model's: input 'image' itself is 9\d\.\d% from what it was, before "
        r"any layer; calibrate with samples that reach as far as those that measure the error, and without outliers",
        warning,
    )
    np.savez(tmp_path / "others.npz", image=images)
    tested = answer([*words, "--test", str(tmp_path / "others.npz")], capsys)
    assert (tested["samples"], tested["judging_samples"], tested["judges"]) == (20, 20, "the samples to test with")
    assert tested["relative_errors"]["t1"] < 0.05


@pytest.mark.parametrize(
    ("images", "warning"),
    [
        (GOOD[:1], "has one sample; some hundred typical ones set scales that hold for others"),
        (np.repeat(GOOD[:1], 12, axis=0), ": all 12 samples are equal; typical inputs differ"),
    ],
)
def test_calibration_that_says_little_is_warned_of(
    images: np.ndarray, warning: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = answer(write(tmp_path, cnn(), image=images), capsys)
    assert values["code"] == 0
    assert f"{tmp_path}/inputs.npz{'' if warning.startswith(':') else ' '}{warning}" in values["warnings"]


def test_one_constant_input_of_two_is_warned_of() -> None:
    found = split({"image": GOOD, "gain": np.ones((len(GOOD), 1), np.float32)}, None, "x.npz")
    assert found.warnings[0] == "x.npz: gain is 1.0 everywhere, which sets no useful scale"


@pytest.mark.regress
def test_nobody_else_speaks(tmp_path: Path) -> None:
    """The quantiser's own sessions in ONNX Runtime would warn of the initializer."""
    network = FloatNetwork()
    network.convolution((4, 2, 3, 3))
    network.constant(np.float32(7))
    words = write(tmp_path, network.serialise(rank=4), **samples())
    ran = subprocess.run([sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[0].endswith("calibrated with 8 samples")
    # Where it takes long, only progress is told.
    assert all(line.startswith("lutterfly: ") for line in ran.stderr.splitlines()), ran.stderr


def test_samples_to_test_with_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = write(tmp_path, cnn(), **samples())
    np.savez(tmp_path / "others.npz", picture=GOOD)
    values = answer([*words, "--test", str(tmp_path / "others.npz")], capsys)
    assert values["code"] == 2
    assert values["error"] == f"{tmp_path}/others.npz: input must be one of image, not picture"
    assert not (tmp_path / "net_int8.onnx").exists()


@pytest.mark.parametrize("content", [None, b"", b"no archive", "truncated", "one array"])
def test_refuses_another_kind_of_file(
    content: bytes | str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, path = write(tmp_path, cnn(), **samples()), tmp_path / "inputs.npz"
    message = f"{path}: must be a NumPy archive (.npz) with an array for each input, as numpy.savez writes it"
    if content is None:
        path.unlink()
        message = f"{path}: must be a file that can be read: No such file or directory"
    elif content == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif content == "one array":
        with path.open("wb") as stream:
            np.save(stream, GOOD)
        message += ", not one array"
    else:
        path.write_bytes(content)
    assert main([*words, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error.startswith(message)
    assert error == message or content not in (None, "one array")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: quantize(cnn(), samples()), "must be a float model, and QuantizeLinear '"),
        (lambda: cnn(shape=("batch", 2, 9, "width")), "dimension 3 of input 'image' must be fixed, not width; only "),
        (lambda: cnn(shape=(4, *IMAGE)), "the batch of input 'image' must be dynamic or 1, not 4; export the model"),
        (lambda: cnn(shape=("batch", 3, 9, 8)), "ONNX Runtime cannot run the model: "),
        (lambda: cnn()[:900], "the ONNX file is truncated or damaged after 900 bytes; export or copy it again"),
    ],
)
def test_refuses_models(
    make: Callable[[], bytes], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*write(tmp_path, make(), **samples()), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"].startswith(f"{tmp_path}/net.onnx: {message}")


def test_never_overwrites_the_float_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = write(tmp_path, cnn(), **samples())
    assert main([*words, "-o", words[1]]) == 2
    assert "output must be another file than the model" in capsys.readouterr().err
    assert Path(words[1]).read_bytes() == cnn()


def test_scales_that_are_known_are_kept() -> None:
    network = FloatNetwork()
    network.bare_convolution((6, 2, 3, 3))
    first = network.last
    network.bare_convolution((4, 6, 1, 1))
    samples = {"image": np.random.default_rng(0).normal(size=(4, *IMAGE)).astype(np.float32)}
    known = {"image": (0.125, -3), first: (0.25, 17)}
    model = onnx.load_from_string(quantize(network.serialise(rank=4), samples, overrides=known))
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    found = {
        node.input[0]: tuple(constants[name].item() for name in node.input[1:])
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
    }
    assert found.items() >= known.items()


@pytest.mark.parametrize(("tensor", "hint"), [("imag", "did you mean 'image'?"), ("somewhere else", "take it out")])
def test_scales_of_a_tensor_that_is_not_there_are_refused(tensor: str, hint: str) -> None:
    samples = {"image": np.zeros((2, *IMAGE), np.float32)}
    message = f"overrides must name tensors of net, which has no '{tensor}'; {hint}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        quantize(cnn(), samples, name="net", overrides={"image": (0.125, -3), tensor: (0.25, 17)})


@pytest.mark.parametrize("operator", ["Relu", "Clip"])
def test_an_output_keeps_what_is_cut_behind_it(operator: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3, 6, 6] x) => (float c, float y)
        <float zero = {{0}}> {{ c = Conv(x, w) r = {operator}(c{", zero" * (operator == "Clip")}) y = Conv(r, w) }}"""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(4)
    proto.graph.initializer.append(numpy_helper.from_array(rng.normal(size=(3, 3, 1, 1)).astype(np.float32), "w"))
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    data = onnx.shape_inference.infer_shapes(proto).SerializeToString()
    given = {"x": rng.normal(size=(12, 3, 6, 6)).astype(np.float32)}
    errors = relative_errors(Model(data), Model(quantize(data, given)), given)
    assert max(errors.values()) < 0.03
