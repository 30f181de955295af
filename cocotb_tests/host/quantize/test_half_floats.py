"""Models in float16 and bfloat16: made float32, and said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.host.command.main import main
from lutterfly.host.frontend import import_model
from lutterfly.host.model.model import Model
from lutterfly.host.quantize.float_model import in_float32
from lutterfly.host.quantize.static_quantisation import quantize

KINDS = {
    name: (helper.tensor_dtype_to_np_dtype(kind), kind)
    for name, kind in (("float16", TensorProto.FLOAT16), ("bfloat16", TensorProto.BFLOAT16))
}


def model(kind: str, *, outside: int | None = None) -> bytes:
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


def samples(element: type) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(size=(12, 3, 8, 8)).astype(element)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outside", [None, TensorProto.FLOAT])
def test_it_is_quantised_as_in_float32(kind: str, outside: int | None) -> None:
    data = quantize(model(kind, outside=outside), samples(np.float32))
    assert [type(layer).__name__ for layer in import_model(data).layers] == ["Convolution", "Convolution"]
    proto = onnx.load_from_string(data)
    assert {value.type.tensor_type.elem_type for value in (*proto.graph.input, *proto.graph.output)} == {
        TensorProto.FLOAT
    }
    assert not {TensorProto.FLOAT16, TensorProto.BFLOAT16} & {tensor.data_type for tensor in proto.graph.initializer}


def test_every_value_is_kept() -> None:
    for kind, (element, _) in KINDS.items():
        given = Model(model(kind))
        wide, is_changed, _ = in_float32(given, "net", samples(np.float32))
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
    found, is_changed, (kept,) = in_float32(given, "net", samples(np.float32))
    assert found is given
    assert not is_changed
    assert kept["x"].dtype == np.float32


def test_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.onnx").write_bytes(model("float16"))
    np.savez(tmp_path / "x.npz", **samples(np.float16))
    words = ["quantize", str(tmp_path / "net.onnx"), "--calibrate", str(tmp_path / "x.npz")]
    assert main([*words, "--test", str(tmp_path / "x.npz"), "-o", str(tmp_path / "out.onnx")]) == 0
    said = capsys.readouterr().out
    assert "made float32 first" in said
    assert "output y: " in said
