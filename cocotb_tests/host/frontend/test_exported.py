"""PyTorch's own exports: weights in files beside the model, identity Gathers, shapes computed from the batch."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from cocotb_tests.support.oracles.exactness import assert_answers, assert_exact, needs_reference
from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.command import main
from lutterfly.host.frontend import ModelError, describe, import_model
from lutterfly.host.model.arrays import describe_model
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model, read_model_file
from lutterfly.host.quantize.static_quantisation import quantize

pytestmark = needs_reference

#: Made by ``exported/make.py``.
FOLDER = Path(__file__).parents[2] / "exported"
NETWORKS = sorted(path.stem for path in FOLDER.glob("*.onnx"))


def samples(model: Model, count: int = 8) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        info.name: generator.normal(size=(count, *info.sample_shape)).astype(np.float32)
        for info in describe_model(model)[0]
    }


def quantised(name: str) -> bytes:
    model = read_model_file(FOLDER / f"{name}.onnx")
    return quantize(model.data, samples(model))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_exports_are_quantised_and_exact(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = quantised(name)
    feeds = {key: value[:1] for key, value in samples(Model(data)).items()}
    assert_exact(data, feeds, covered=False)
    assert_answers(data, feeds)
    # All but what makes codes of the input, and an output of codes.
    host = {row.kind for row in describe(import_model(data)) if row.where == "host"}
    assert host <= {"QuantizeLinear", "DequantizeLinear", "Softmax"}


def test_the_exports_are_what_they_are_kept_for():
    for name in NETWORKS:
        loaded = onnx.load(FOLDER / f"{name}.onnx", load_external_data=False)
        operators = {node.op_type for node in loaded.graph.node}
        assert ("Gather" in operators) == (name in ("residual_channels_last", "viewed"))
        assert ("Shape" in operators) == (name == "viewed")
        assert (FOLDER / f"{name}.onnx.data").exists() == (name != "viewed")


def external(folder: Path, name: str = "series") -> Path:
    """A quantised model with its weights in a file of their own."""
    path = folder / "net.onnx"
    onnx.save(
        onnx.load_from_string(quantised(name)),
        path,
        save_as_external_data=True,
        size_threshold=0,
        location="net.onnx.data",
    )
    return path


@pytest.mark.regress
def test_every_command_reads_the_weights_from_any_folder(tmp_path: Path, monkeypatch, capsys):
    model, elsewhere = external(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    arrays = samples(whole := read_model_file(model))
    np.savez(tmp_path / "inputs.npz", **arrays)
    name, values = next(iter(arrays.items()))
    np.save(tmp_path / "one.npy", values[:1])
    floats = str(FOLDER / "series.onnx")
    assert main.main(["quantize", floats, "--calibrate", "../inputs.npz", "-o", "made.onnx", "--config", "tiny"]) == 0
    assert main.main(["check", "../net.onnx", "--config", "tiny"]) == 0
    assert main.main(["compile", "../net.onnx", "-o", "net.lfp", "--config", "tiny"]) == 0
    for file in ("../net.onnx", "net.lfp"):
        output = f"{Path(file).suffix[1:]}.npy"
        words = ["run", file, "--input", f"{name}=../one.npy", "--output", output, "--config", "tiny"]
        assert main.main(words) == 0
        expected = open_session(whole).run(None, {name: values[:1]})[0]
        assert np.load(output).tobytes() == expected.tobytes()
    assert main.main(["verify", "../net.onnx", "--samples", "1", "--config", "tiny"]) == 0
    capsys.readouterr()


def test_a_session_reads_them_as_well(tmp_path: Path):
    config, model = PRESETS["tiny"], external(tmp_path, "residual")
    whole = read_model_file(model)
    feeds = samples(whole, 2)
    found = InferenceSession(model, config, GoldenTransport(config)).run(None, feeds)[0]
    assert found.tobytes() == open_session(whole).run(None, feeds)[0].tobytes()


def test_weights_that_are_missing(tmp_path: Path):
    model = external(tmp_path)
    (tmp_path / "net.onnx.data").unlink()
    with pytest.raises(ValueError, match="keeps weights") as caught:
        InferenceSession(model, "tiny")
    text = str(caught.value)
    assert text.startswith(f"{model}: keeps weights in 'net.onnx.data', which must be readable in the same folder (")
    assert text.endswith("); copy these files with it, or export the model again with external_data=False")


def test_the_contents_alone():
    with pytest.raises(ModelError) as caught:
        import_model((FOLDER / "dense.onnx").read_bytes())
    assert str(caught.value) == (
        "model: keeps weights in 'dense.onnx.data'; give the path of the file instead of its contents, or export the "
        "model again with external_data=False"
    )


def test_weights_of_another_folder_are_refused(tmp_path: Path):
    model = external(tmp_path)
    inner = tmp_path / "inner"
    inner.mkdir()
    shutil.move(model, inner / "net.onnx")
    loaded = onnx.load(inner / "net.onnx", load_external_data=False)
    for tensor in loaded.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../net.onnx.data"
    (inner / "net.onnx").write_bytes(loaded.SerializeToString())
    with pytest.raises(ValueError, match=r"net.onnx: keeps weights in '../net.onnx.data', which must be readable"):
        read_model_file(inner / "net.onnx")
