"""The first axis of a float model counts samples, or the model is refused: no step of time becomes a sample unasked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from lutterfly.host.command.main import main
from lutterfly.host.frontend import ModelError
from lutterfly.host.model.model import Model
from lutterfly.host.quantize.float_model import check_batch
from lutterfly.host.quantize.static_quantisation import quantize

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def model(text: str, inputs: str = "float[n, 1, 3] x", output: str = "y") -> Model:
    proto = onnx.parser.parse_model(f"{HEAD} g ({inputs}) => (float {output}) {{ {text} }}")
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    return Model(onnx.shape_inference.infer_shapes(proto).SerializeToString())


def samples(count: int = 4, shape: tuple[int, ...] = (1, 3)) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal((count, *shape)).astype(np.float32)}


MEAN = "y = ReduceMean<axes = [0], keepdims = 1>(x)"
SUM = "zero = Constant<value = int64 {0}>() y = CumSum(x, zero)"
#: PyTorch's LSTM as it is unless one asks for batch_first.
LSTM = (
    "w = Constant<value = float[1, 4, 3] {1, -1, 0.5, 1, 1, 1, 0.2, -1, 1, 1, 0.3, 1}>() "
    "r = Constant<value = float[1, 4, 1] {1, 0.5, 1, 1}>() y = LSTM<hidden_size = 1>(x, w, r)"
)


@pytest.mark.parametrize("text", [MEAN, SUM, LSTM])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_another_axis_is_refused(text: str, count: int) -> None:
    message = r"^net.onnx: the first axis of its inputs \('x'\) must count samples, .*'y' .*batch_first=True\), or"
    with pytest.raises(ModelError, match=message):
        check_batch(model(text), samples(count), "net.onnx")


def test_equal_samples_are_told_apart_all_the_same() -> None:
    equal = {"x": np.broadcast_to(samples(1)["x"], (5, 1, 3))}
    with pytest.raises(ModelError, match="must count samples"):
        check_batch(model(LSTM), equal, "net")


@pytest.mark.parametrize(
    "text",
    [
        "y = ReduceMean<axes = [2], keepdims = 1>(x)",
        "y = ReduceMean<axes = [1, 2], keepdims = 0>(x)",
        # The samples stand along another axis of the output.
        "y = Transpose<perm = [2, 0, 1]>(x)",
        # The same for all samples.
        "s = Shape(x) i = Constant<value = int64[1] {2}>() n = Gather(s, i) y = Cast<to = 1>(n)",
        # Runs on one sample alone.
        "s = Constant<value = int64[2] {1, 3}>() y = Reshape(x, s)",
    ],
)
def test_samples_are_taken(text: str) -> None:
    check_batch(model(text), samples(), "net")


def test_a_fixed_first_axis_is_not_asked() -> None:
    check_batch(model(MEAN, "float[1, 1, 3] x"), samples(), "net")
    with pytest.raises(
        ModelError, match=r"batch of input 'x' must be dynamic or 1, not 20; .* with a dynamic batch, or"
    ):
        quantize(model("y = Relu(x)", "float[20, 1, 3] x").data, samples(20))


def test_the_command_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.onnx").write_bytes(model(LSTM).data)
    np.savez(tmp_path / "x.npz", **samples())
    words = ["quantize", str(tmp_path / "net.onnx"), "--calibrate", str(tmp_path / "x.npz")]
    assert main([*words, "-o", str(tmp_path / "out.onnx"), "--json"]) == 2
    assert re.search("must count samples", json.loads(capsys.readouterr().out)["error"])
    assert not (tmp_path / "out.onnx").exists()
