"""Float models before they are quantised: which axis counts samples, and float16 made float32."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.host.command.main import main
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.model.model import Model
from lutterfly.host.quantize.float_model import check_batch, in_float32
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


# Models in float16 and bfloat16: made float32, and said.

KINDS = {
    name: (helper.tensor_dtype_to_np_dtype(kind), kind)
    for name, kind in (("float16", TensorProto.FLOAT16), ("bfloat16", TensorProto.BFLOAT16))
}


def half_model(kind: str, *, outside: int | None = None) -> bytes:
    """Two convolutions and a Clip; with another type outside, Casts at both ends."""
    element, type_ = KINDS[kind]
    rng = np.random.default_rng(0)
    zero = numpy_helper.from_array(np.array(0, element), "zero")
    w, v = (rng.normal(size=(4, channels, 3, 3)).astype(element) for channels in (3, 4))
    ends = outside or type_
    nodes = [
        helper.make_node("Cast", ["x"], ["x16"], "in", to=type_),
        helper.make_node("Conv", ["x16", "w"], ["a"], "first"),
        helper.make_node("Constant", [], ["least"], "zero", value=zero),
        helper.make_node("Clip", ["a", "least"], ["r"], "clip"),
        helper.make_node("Conv", ["r", "v"], ["b"], "second"),
        helper.make_node("Cast", ["b"], ["y"], "out", to=ends),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", ends, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", ends, ["n", 4, 4, 4])],
        [numpy_helper.from_array(array, name) for name, array in (("w", w), ("v", v))],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def half_samples(element: type) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(size=(12, 3, 8, 8)).astype(element)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outside", [None, TensorProto.FLOAT])
def test_it_is_quantised_as_in_float32(kind: str, outside: int | None) -> None:
    data = quantize(half_model(kind, outside=outside), half_samples(np.float32))
    assert [type(layer).__name__ for layer in import_model(data).layers] == ["Convolution", "Convolution"]
    proto = onnx.load_from_string(data)
    assert {value.type.tensor_type.elem_type for value in (*proto.graph.input, *proto.graph.output)} == {
        TensorProto.FLOAT
    }
    assert not {TensorProto.FLOAT16, TensorProto.BFLOAT16} & {tensor.data_type for tensor in proto.graph.initializer}


def test_every_value_is_kept() -> None:
    for kind, (element, _) in KINDS.items():
        given = Model(half_model(kind))
        wide, is_changed, _ = in_float32(given, "net", half_samples(np.float32))
        assert is_changed
        for before, after in zip(given.proto.graph.initializer, wide.proto.graph.initializer, strict=True):
            array = numpy_helper.to_array(after)
            assert (after.name, array.dtype) == (before.name, np.float32)
            np.testing.assert_array_equal(array.astype(element), numpy_helper.to_array(before))


def test_a_float32_model_stays_the_same() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        *([helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3])] for name in ("x", "y")),
    )
    given = Model(helper.make_model(graph).SerializeToString())
    found, is_changed, (kept,) = in_float32(given, "net", half_samples(np.float32))
    assert found is given
    assert not is_changed
    assert kept["x"].dtype == np.float32


def test_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.onnx").write_bytes(half_model("float16"))
    np.savez(tmp_path / "x.npz", **half_samples(np.float16))
    words = ["quantize", str(tmp_path / "net.onnx"), "--calibrate", str(tmp_path / "x.npz")]
    assert main([*words, "--test", str(tmp_path / "x.npz"), "-o", str(tmp_path / "out.onnx")]) == 0
    said = capsys.readouterr().out
    assert "made float32 first" in said
    assert "output y: " in said
