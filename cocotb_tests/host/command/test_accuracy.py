"""`evaluate`, and `run` with the golden back-end: what they answer, and what they refuse before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from cocotb_tests.support.networks.generated import Limits, Maker
from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.examples import digits
from lutterfly.host.backend.golden_functions import GoldenFunctions
from lutterfly.host.command.main import main
from lutterfly.host.session import accuracy
from lutterfly.host.session.session import InferenceSession

MODEL = str(digits.model_path("qdq"))
COUNT = 12


def answer(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict]:
    code = main([*map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Samples as an archive and as an array, their labels with two that are wrong, and a float model."""
    found = {name: tmp_path / name for name in ("x.npz", "x.npy", "y.npy", "float.onnx")}
    labels = digits.labels()[:COUNT]
    labels[[3, 7]] = (labels[[3, 7]] + 1) % 10
    np.savez(found["x.npz"], pixels=digits.images()[:COUNT])
    np.save(found["x.npy"], digits.images()[:COUNT])
    np.save(found["y.npy"], labels)
    onnx.save(float_model(), found["float.onnx"])
    return found


def float_model(*, pixels: str = "pixels", classes: int = 10) -> onnx.ModelProto:
    """The first pixels of an image are its classes' values."""
    nodes = [
        helper.make_node("Flatten", [pixels], ["flat"]),
        helper.make_node("Slice", ["flat", "starts", "ends", "axes"], ["values"]),
    ]
    constants = {"starts": [0], "ends": [classes], "axes": [1]}
    initializers = [helper.make_tensor(name, TensorProto.INT64, [1], value) for name, value in constants.items()]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in ((pixels, ["batch", 1, 8, 8]), ("values", ["batch", classes]))
    ]
    graph = helper.make_graph(nodes, "float", [ends[0]], [ends[1]], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.sampled(1)
@needs_reference
@pytest.mark.parametrize("data", ["x.npz", "x.npy"])
@pytest.mark.parametrize("backend", ["simulator", "golden"])
def test_evaluate(capsys: pytest.CaptureFixture[str], files: dict[str, Path], backend: str, data: str) -> None:
    words = ("evaluate", MODEL, "--data", files[data], "--labels", files["y.npy"], "--float", files["float.onnx"])
    code, values = answer(capsys, *words, "--backend", backend, "--config", "tiny")
    assert code == 0
    assert (values["samples"], values["backend"], values["differing_samples"]) == (COUNT, backend, 0)
    assert values["reference"] == "onnxruntime"
    images, labels = digits.images()[:COUNT], np.load(files["y.npy"])
    expected = onnxruntime.InferenceSession(MODEL).run(None, {"pixels": images})[0].argmax(axis=1)
    right = {"int8": expected, "accelerator": expected, "float": images.reshape(COUNT, -1)[:, :10].argmax(axis=1)}
    for name, chosen in right.items():
        assert values[name]["right"] == int(np.count_nonzero(chosen == labels))
        assert values[name]["accuracy"] == values[name]["right"] / COUNT
        assert values[name]["samples_per_second"] > 0
    assert values["int8"]["right"] == COUNT - 2
    assert values["float"]["right"] < COUNT - 2


@needs_reference
def test_evaluate_says_it_in_words(capsys: pytest.CaptureFixture[str], files: dict[str, Path]) -> None:
    words = ["evaluate", MODEL, "--data", files["x.npy"], "--labels", files["y.npy"], "--limit", 5]
    assert main([*map(str, words), "--backend", "golden"]) == 0
    head, runtime, golden, _, verdict = capsys.readouterr().out.splitlines()
    assert head.split() == ["accuracy", "right", "samples", "samples/s"]
    assert runtime.startswith("int8 model in ONNX Runtime  80.00%        4        5  ")
    assert golden.startswith("golden functions            80.00%        4        5  ")
    assert verdict == "0 of 5 samples differ from the int8 model in ONNX Runtime in some byte"


@needs_reference
def test_a_byte_that_differs_fails(
    capsys: pytest.CaptureFixture[str], files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    infer = GoldenFunctions.infer

    def wrong(self: GoldenFunctions, inputs: object) -> object:
        for number, outputs in enumerate(infer(self, inputs)):
            if number in (2, 9):
                outputs[0].flat[4] ^= 1
            yield outputs

    monkeypatch.setattr(GoldenFunctions, "infer", wrong)
    words = ("evaluate", MODEL, "--data", files["x.npz"], "--labels", files["y.npy"], "--backend", "golden")
    code, values = answer(capsys, *words)
    assert (code, values["differing_samples"]) == (1, 2)
    assert values["float"] is None


@pytest.mark.regress
def test_where_onnx_runtime_is_no_reference_nothing_is_compared(
    capsys: pytest.CaptureFixture[str], files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy, "probe", lambda: "another processor")
    words = ("evaluate", MODEL, "--data", files["x.npz"], "--labels", files["y.npy"], "--backend", "golden")
    code, values = answer(capsys, *words)
    assert (code, values["differing_samples"], values["reference"]) == (0, None, "another processor")
    assert main([*map(str, words)]) == 0
    assert capsys.readouterr().out.endswith("\nno comparison of bytes with ONNX Runtime: another processor\n")


@pytest.mark.sampled(1)
@needs_reference
@pytest.mark.parametrize("options", [[], ["--cores", "2", "--spread", "layer"], ["--cores", "2"]])
def test_a_program_file_on_several_cores(
    capsys: pytest.CaptureFixture[str], files: dict[str, Path], tmp_path: Path, options: list[str]
) -> None:
    program, target = tmp_path / "digits.program", ["--config", "tiny", *options]
    assert answer(capsys, "compile", MODEL, "-o", program, *target)[0] == 0
    words = ("--data", files["x.npz"], "--labels", files["y.npy"], "--backend", "golden", *target)
    code, values = answer(capsys, "evaluate", program, *words)
    assert (code, values["differing_samples"], values["accelerator"]["right"]) == (0, 0, COUNT - 2)


def bad(kind: str, files: dict[str, Path]) -> list[object]:
    """The words of an evaluation in which one thing is wrong."""
    data, labels, model, options = files["x.npz"], files["y.npy"], MODEL, []
    images, known = digits.images()[:COUNT], np.load(labels)
    if kind == "name":
        np.savez(data, images=images)
    elif kind == "missing":
        np.savez(data)
    elif kind == "shape":
        np.savez(data, pixels=images[:, 0])
    elif kind == "type":
        np.savez(data, pixels=images.astype(np.float64))
    elif kind == "nan":
        images[4, 0, 2, 1] = np.nan
        np.savez(data, pixels=images)
    elif kind == "length":
        np.save(labels, known[:-1])
    elif kind == "axes":
        np.save(labels, known[:, None])
    elif kind == "floats":
        np.save(labels, known.astype(np.float32))
    elif kind == "range":
        known[5] = 10
        np.save(labels, known)
    elif kind == "negative":
        known[5] = -1
        np.save(labels, known.astype(np.int8))
    elif kind == "archive":
        labels = data
    elif kind == "float inputs":
        onnx.save(float_model(pixels="x"), files["float.onnx"])
        options = ["--float", files["float.onnx"]]
    elif kind == "float classes":
        onnx.save(float_model(classes=9), files["float.onnx"])
        options = ["--float", files["float.onnx"]]
    else:
        files["float.onnx"].write_bytes(b"no model")
        options = ["--float", files["float.onnx"]]
    return ["evaluate", model, "--data", data, "--labels", labels, "--backend", "golden", *options]


TAKES = "; the model takes pixels float32[samples, 1, 8, 8]"
ERRORS = {
    "name": f"{{x.npz}}: input must be one of pixels, not images{TAKES}",
    "missing": f"{{x.npz}}: input pixels must be given, and is missing{TAKES}",
    "shape": f"{{x.npz}}: input pixels must have the shape [batch, 1, 8, 8], not [12, 8, 8]{TAKES}",
    "type": f"{{x.npz}}: input pixels must be an array of float32, not float64{TAKES}",
    "nan": "{x.npz}: input pixels must be finite, not nan at [4, 0, 2, 1]",
    "length": "{y.npy}: labels must have the shape [12], one for each sample, not [11]; give those of the same "
    "samples, as one row",
    "axes": "{y.npy}: labels must have the shape [12], one for each sample, not [12, 1]; give those of the same "
    "samples, as one row",
    "floats": "{y.npy}: labels must be integers, not float32; write them as numpy.int64",
    "range": "{y.npy}: labels must be between 0 and 9, the 10 classes of the model, not 10 at [5]; number classes from "
    "0 in the order of the model's output",
    "negative": "{y.npy}: labels must be between 0 and 9, the 10 classes of the model, not -1 at [5]; number classes "
    "from 0 in the order of the model's output",
    "archive": "{x.npz}: must be a NumPy file with one array (.npy), not an archive",
    "float inputs": "{float.onnx}: must have the inputs of the int8 model, pixels float32[1, 8, 8], not x float32[1, "
    "8, 8]; name the float model that it was made from",
    "float classes": "{float.onnx}: must have the 10 classes of the int8 model, not 9; name the float model that it "
    "was made from",
    "float file": "{float.onnx}: must be an ONNX file that ONNX Runtime runs: ",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ERRORS)
def test_evaluate_refuses(
    capsys: pytest.CaptureFixture[str], files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(InferenceSession, "run_samples", lambda *_: pytest.fail("nothing must run"))
    expected = ERRORS[kind]
    for name, path in files.items():
        expected = expected.replace(f"{{{name}}}", str(path))
    code, values = answer(capsys, *bad(kind, files))
    assert code == 2
    assert values.keys() == {"error"}
    assert values["error"] == expected or (kind == "float file" and values["error"].startswith(expected))


def test_evaluate_is_for_classifiers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    maker = Maker(np.random.default_rng(5), "qop", unsigned=False, limits=Limits(channels=4))
    maker.start((1, 3, 6, 6))
    maker.convolution()
    path = tmp_path / "net.onnx"
    path.write_bytes(maker.finish().model)
    code, values = answer(capsys, "evaluate", path, "--data", "x.npy", "--labels", "y.npy", "--config", "tiny")
    assert code == 2
    assert values["error"].startswith(f"{path}: output ")
    assert "must have a value for each of several classes, [batch, classes], not [" in values["error"]
    assert values["error"].endswith("; evaluate is for classifiers")


@pytest.mark.regress
def test_run_with_the_golden_back_end(
    capsys: pytest.CaptureFixture[str], files: dict[str, Path], tmp_path: Path
) -> None:
    found = {}
    for backend in ("golden", "simulator"):
        output = tmp_path / f"{backend}.npy"
        words = ("run", MODEL, "--input", files["x.npy"], "--output", output, "--backend", backend, "--config", "tiny")
        code, found[backend] = answer(capsys, *words)
        assert code == 0
        assert found[backend]["backend"] == backend
    assert (tmp_path / "golden.npy").read_bytes() == (tmp_path / "simulator.npy").read_bytes()
    measured = {"cycles", "utilisation", "counters"}
    assert found["simulator"].keys() - found["golden"].keys() == measured
    assert {name: value for name, value in found["simulator"].items() if name not in (*measured, "backend")} == {
        name: value for name, value in found["golden"].items() if name != "backend"
    }
    assert main(["run", MODEL, "--input", str(files["x.npy"]), "--backend", "golden"]) == 0
    assert "\ncomputed by the golden functions: 4,083 cycles predicted for an inference, " in capsys.readouterr().out


def test_a_report_is_refused_without_an_accelerator(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    words = ("run", "nothing.onnx", "--input", "x.npy", "--backend", "golden", "--report", page)
    code, values = answer(capsys, *words)
    assert code == 2
    assert values == {
        "error": "report must be left out with the back-end golden, which has no accelerator; leave it out, or take "
        "the back-end simulator"
    }
    assert not page.exists()


@pytest.mark.parametrize("command", ["run", "evaluate"])
def test_other_back_ends_are_refused(capsys: pytest.CaptureFixture[str], command: str) -> None:
    words = {"run": ["--input", "x"], "evaluate": ["--data", "x", "--labels", "y"]}[command]
    code, values = answer(capsys, command, MODEL, *words, "--backend", "verilog")
    assert code == 2
    assert values["error"].startswith("Invalid value for '--backend': ")
