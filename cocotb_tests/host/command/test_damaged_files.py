"""Files that are damaged, or are something else: every command says what is wrong, and no library's error comes out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from lutterfly.host.command.main import main
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.parse import QUANTISE
from lutterfly.host.frontend.source import FOLD, REWRITE, SPELL, without_quantising
from lutterfly.host.quantize import quantize

WEIGHTS = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
VALUES = np.random.default_rng(1).normal(size=(4, 3, 6, 6)).astype(np.float32)


def model(text: str = "c = Conv<pads = [1, 1, 1, 1]>(x, w) y = Relu(c)", *, opset: int = 17) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[n, 3, 6, 6] x) => (float[n, 4, 6, 6] y) {{ {text} }}'
    )
    if "w)" in text:
        proto.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHTS, "w"))
    return proto


def changed(change: Callable[[onnx.ModelProto], object]) -> bytes:
    proto = model()
    change(proto)
    return proto.SerializeToString()


def external(**given: str) -> bytes:
    def change(proto: onnx.ModelProto) -> None:
        (tensor,) = proto.graph.initializer
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in given.items():
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value

    return changed(change)


def weights(value: float) -> bytes:
    array = WEIGHTS.copy()
    array[0, 0, 0, 0] = value
    return changed(lambda proto: proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(array, "w")))


WHOLE = model().SerializeToString()
MODELS = {
    "empty": b"",
    "text": b"a text\n" * 20,
    "archive": b"PK\x03\x04" + bytes(40),
    "truncated to one byte": WHOLE[:1],
    "truncated in the middle": WHOLE[: len(WHOLE) // 2],
    "truncated at the end": WHOLE[:-1],
    "operator set 0": model(opset=0).SerializeToString(),
    "operator set 1": model(opset=1).SerializeToString(),
    "operator set 99": model(opset=99).SerializeToString(),
    "IR version 99": changed(lambda proto: setattr(proto, "ir_version", 99)),
    "no operator set": changed(lambda proto: proto.ClearField("opset_import")),
    "an unknown operator": changed(lambda proto: setattr(proto.graph.node[1], "op_type", "Foo")),
    "an unknown domain": changed(lambda proto: setattr(proto.graph.node[1], "domain", "my.operators")),
    "no output": changed(lambda proto: proto.graph.ClearField("output")),
    "no input": changed(lambda proto: proto.graph.ClearField("input")),
    "no weights": changed(lambda proto: proto.graph.ClearField("initializer")),
    "no shape": changed(lambda proto: proto.graph.input[0].type.tensor_type.ClearField("shape")),
    "an unknown type": changed(lambda proto: setattr(proto.graph.initializer[0], "data_type", 99)),
    "weights too short": changed(lambda proto: setattr(proto.graph.initializer[0], "raw_data", b"1234")),
    "negative sizes": changed(lambda proto: proto.graph.initializer[0].dims.__setitem__(0, -4)),
    "pads too few": changed(lambda proto: proto.graph.node[0].attribute[0].ints.pop()),
    "a cycle": changed(lambda proto: proto.graph.node[1].input.__setitem__(0, "y")),
    "a tensor given twice": changed(lambda proto: proto.graph.node[1].output.__setitem__(0, "c")),
    "weights elsewhere": external(location="gone.bin"),
    "weights above": external(location="../gone.bin"),
    "weights at a place that is no number": external(location="short.bin", offset="there"),
    "weights behind the end": external(location="short.bin", offset="1000"),
    "weights that are no number": weights(np.nan),
    "weights that are infinite": weights(np.inf),
}


def refused(words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """What a command says that refuses, in one line; with --json it says the same."""
    said = []
    for more in ([], ["--json"]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert main([*words, *more]) == 2
        out, err = capfd.readouterr()
        said.append(json.loads(out)["error"] if more else err.strip().removeprefix("lutterfly: "))
        assert not (err if more else out)
    assert said[0] == said[1]
    assert "Traceback" not in said[0]
    assert "\n" not in said[0]
    return said[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.savez(tmp_path / "x.npz", x=VALUES)
    (tmp_path / "short.bin").write_bytes(b"1234")
    (tmp_path / "good.onnx").write_bytes(WHOLE)
    return tmp_path


def words(folder: Path, model_name: str = "good", samples: str = "x.npz") -> list[str]:
    given = [str(folder / f"{model_name}.onnx"), "--calibrate", str(folder / samples)]
    return ["quantize", *given, "-o", str(folder / "out.onnx")]


@pytest.mark.parametrize("case", MODELS)
def test_models(case: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "damaged.onnx"
    path.write_bytes(MODELS[case])
    assert refused(words(folder, "damaged"), capfd).startswith(str(path))
    assert refused(["check", str(path)], capfd).startswith(str(path))
    assert not (folder / "out.onnx").exists()


def test_any_byte_may_be_wrong(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng, path = np.random.default_rng(5), folder / "damaged.onnx"
    for _ in range(40):
        data = bytearray(WHOLE)
        # Where the structure is, and not in the weights.
        data[int(rng.choice([*range(110), *range(len(data) - 90, len(data))]))] = int(rng.integers(256))
        path.write_bytes(bytes(data))
        code = main(["check", str(path), "--json"])
        out = capfd.readouterr().out
        assert code == 2
        assert json.loads(out)["error"].startswith(str(path))


ARRAYS = {
    "another shape": {"x": VALUES[:, :, :5]},
    "another rank": {"x": VALUES[0]},
    "a number": {"x": np.float32(1)},
    "no sample": {"x": VALUES[:0]},
    "another type": {"x": VALUES.astype(np.float64)},
    "objects": {"x": np.array([None, {}], object)},
    "texts": {"x": np.array(["a"])},
    "records": {"x": np.zeros(4, [("a", "f4")])},
    "not a number": {"x": np.full_like(VALUES, np.nan)},
    "infinite": {"x": VALUES * np.float32(np.inf)},
    "another name": {"image": VALUES},
    "one more": {"x": VALUES, "z": VALUES},
    "nothing": {},
    "all the same": {"x": np.ones_like(VALUES)},
}


@pytest.mark.parametrize("case", ARRAYS)
def test_samples(case: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    np.savez(folder / "other.npz", **ARRAYS[case])
    assert str(folder / "other.npz") in refused(words(folder, samples="other.npz"), capfd)


@pytest.mark.parametrize("data", [b"", b"text", WHOLE], ids=["empty", "text", "a model"])
def test_samples_that_are_no_archive(data: bytes, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "other.npz").write_bytes(data)
    assert "must be a NumPy archive (.npz)" in refused(words(folder, samples="other.npz"), capfd)


def test_truncated_samples(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = (folder / "x.npz").read_bytes()
    for size in (1, 40, len(whole) // 2, len(whole) - 1):
        (folder / "other.npz").write_bytes(whole[:size])
        assert "must be a NumPy archive (.npz)" in refused(words(folder, samples="other.npz"), capfd)


@pytest.mark.parametrize("place", ["gone/out.onnx", "x.npz/out.onnx", ".", "a" * 300])
def test_places_that_cannot_be_written(place: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = refused([*words(folder)[:-1], str(folder / place)], capfd)
    assert "cannot be written" in said


def test_what_cannot_be_quantised_is_not_sent_to_quantise() -> None:
    proto = model("y = Sum(x, x)")
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 3
    with pytest.raises(ModelError, match=r"must have an operator that is quantised, .* and has only Sum; the acc"):
        quantize(proto.SerializeToString(), {"x": VALUES})


def test_tensors_with_given_scales_may_be_all_that_there_is() -> None:
    """The export of binary layers puts its operators between them afterwards."""
    proto = model("y = Identity(x)")
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 3
    result = quantize(proto.SerializeToString(), {"x": VALUES}, overrides={"y": (1.0, 0)})
    assert [node.op_type for node in onnx.load_from_string(result).graph.node] == ["Identity"]


@pytest.mark.parametrize("remedy", [QUANTISE, FOLD, SPELL, REWRITE])
def test_a_remedy_does_not_lead_back(remedy: str) -> None:
    text = without_quantising(f"net.onnx: Softmax 's' is in the middle; {remedy}")
    assert text == "net.onnx: Softmax 's' is in the middle; replace it, or end the quantised network before it"


def test_what_quantize_made_is_not_sent_back_to_it() -> None:
    text = "c = Conv<pads = [1, 1, 1, 1]>(x, w) s = LpNormalization<axis = 1>(c) y = Conv(s, v)"
    proto = model(text)
    proto.graph.initializer.append(
        onnx.numpy_helper.from_array(WEIGHTS[:, :1, :1, :1] * np.ones((1, 4, 1, 1), np.float32), "v")
    )
    quantised = quantize(proto.SerializeToString(), {"x": VALUES})
    with pytest.raises(ModelError) as refusal:
        import_model(quantised)
    assert "LpNormalization" in str(refusal.value)
    assert "lutterfly quantize" not in str(refusal.value)
    assert "lutterfly quantize" in onnx.load_from_string(quantised).producer_name
