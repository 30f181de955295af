"""`quantize --per-layer`: the layer that loses accuracy is seen."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.host.command.main import main
from lutterfly.host.quantize import layer_errors
from lutterfly.host.quantize.layer_errors import LayerError, worst

LAYERS = 5
SHAPE = (2, 8, 6)


def network(bad: int | None) -> onnx.ModelProto:
    """Convolutions and Relu; of layer ``bad`` one channel is far greater than the others, and nearly unread."""
    rng = np.random.default_rng(0)
    nodes, held = [], []
    for at in range(LAYERS):
        weights = rng.normal(0, 0.3, (4, 4 if at else 2, 3, 3)).astype(np.float32)
        if at == bad:
            weights[0] *= 1000
        if bad is not None and at == bad + 1:
            weights[:, 0] *= 1e-6
        held.append(numpy_helper.from_array(weights, f"w{at}"))
        source = f"r{at - 1}" if at else "x"
        nodes.append(helper.make_node("Conv", [source, f"w{at}"], [f"t{at}"], f"conv{at}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"t{at}"], [f"r{at}"], f"relu{at}"))
    nodes[-1].output[0] = "y"
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", channels, *SHAPE[1:]])
        for name, channels in (("x", 2), ("y", 4))
    ]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def words(folder: Path, bad: int | None) -> list[str]:
    onnx.save(network(bad), folder / "net.onnx")
    values = np.random.default_rng(1).normal(size=(40, *SHAPE)).astype(np.float32)
    np.savez(folder / "x.npz", x=values)
    return ["quantize", str(folder / "net.onnx"), "--calibrate", str(folder / "x.npz"), "--per-layer"]


def layers(found: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict]:
    assert main([*found, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["layers"]


def test_of_a_good_network_no_layer_loses_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = layers(words(tmp_path, None), capsys)
    assert found[0]["layer"] == "input 'x'"
    assert {one["tensor"] for one in found} >= {"x", "y", *(f"r{at}" for at in range(LAYERS - 1))}
    assert all(one["db"] > 25 for one in found)
    assert all(one["lost_db"] < 10 for one in found)


def test_constants_of_more_than_a_kilobyte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The quantiser moves them to a file of its own: of a copy of the model."""
    found = words(tmp_path, None)
    model = onnx.load(tmp_path / "net.onnx")
    for name, shape in (("w0", (40, 2, 3, 3)), ("w1", (4, 40, 3, 3))):
        (tensor,) = (one for one in model.graph.initializer if one.name == name)
        weights = np.random.default_rng(2).normal(0, 0.3, shape).astype(np.float32)
        assert weights.nbytes > 1024
        tensor.CopyFrom(numpy_helper.from_array(weights, name))
    onnx.save(model, tmp_path / "net.onnx")
    assert "conv1" in json.dumps(layers(found, capsys))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bad", [0, 2])
def test_the_bad_layer_is_seen(bad: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The layer behind it reads channels that its scale leaves nothing of."""
    found = words(tmp_path, bad)
    rows = layers(found, capsys)
    least = max(rows, key=lambda row: row["lost_db"])
    assert (least["tensor"], least["layer"]) == (f"r{bad + 1}", f"Conv 'conv{bad + 1}'")
    assert least["lost_db"] > 15
    before = [row["db"] for row in rows if row["tensor"] in [f"r{at}" for at in range(bad)]]
    assert all(value > 25 for value in before)
    plot = tmp_path / "layers.html"
    assert main([*found, "--plot", str(plot)]) == 0
    text = capsys.readouterr().out
    assert f"{least['layer']} loses most: {least['lost_db']:.1f} dB" in text
    row = next(line for line in text.splitlines() if line.strip().startswith(least["layer"]))
    assert row.split()[-2:] == [f"{least['db']:.1f}", f"{least['lost_db']:.1f}"]
    page = plot.read_text()
    assert f"{least['lost_db']:.1f} dB" in page
    assert all(f"r{at}" in page for at in range(LAYERS - 1))


def test_a_great_error_is_a_warning_that_names_the_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a word for layers in the command; as text and as JSON, and it is a success all the same."""
    found = [word for word in words(tmp_path, 2) if word != "--per-layer"]
    assert main([*found, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    error = values["relative_errors"]["y"]
    (warning,) = (text for text in values["warnings"] if "float model's" in text)
    assert error >= 0.1
    assert warning.startswith(f"output y is {error:.1%} from the float model's: Conv 'conv3' loses most, ")
    assert "layers" not in values
    assert main(found) == 0
    assert f"warning: {warning}" in capsys.readouterr().out.splitlines()


def test_layers_of_a_good_network_are_not_compared_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> list[LayerError]:
        raise AssertionError("layers were compared")

    monkeypatch.setattr(layer_errors, "layer_errors", refused)
    found = [word for word in words(tmp_path, None) if word != "--per-layer"]
    assert main([*found, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["relative_errors"]["y"] < 0.1
    assert values["warnings"] == []


def test_decibels_are_those_of_powers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the input, whose codes are known: by hand."""
    rows = layers(words(tmp_path, None), capsys)
    with np.load(tmp_path / "x.npz") as archive:
        values = archive["x"]
    held_out, calibrating = values[9::10], np.delete(values, np.s_[9::10], axis=0)
    model = onnx.load(tmp_path / "net_int8.onnx")
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    scale, zero = constants["x_scale"], int(constants["x_zero_point"])
    assert scale == pytest.approx((calibrating.max() - calibrating.min()) / 255, rel=1e-5)
    codes = np.clip(np.rint(held_out / scale) + zero, -128, 127)
    noise = np.square((codes - zero) * scale - held_out, dtype=np.float64).sum()
    assert rows[0]["db"] == pytest.approx(
        10 * math.log10(np.square(held_out, dtype=np.float64).sum() / noise), abs=1e-2
    )


def test_what_is_exact_loses_nothing() -> None:
    errors = [
        LayerError("a", "a", math.inf, 40.0),
        LayerError("b", "b", 30.0, math.inf),
        LayerError("c", "c", 20.0, 25.0),
    ]
    assert [error.lost for error in errors] == [0.0, 0.0, 5.0]
    assert worst(errors) is errors[2]


@pytest.mark.parametrize(
    ("name", "message"),
    [("layers.txt", "plot must be a file that ends in .html"), ("x.npz", "plot must be a file that ends in .html")],
)
def test_refuses_plots(name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words(tmp_path, None), "--plot", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "net_int8.onnx").exists()
