"""Names: nodes may have none, tensors what quantising would call its own; and the user's come back."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest

from lutterfly.host.command.main import main
from lutterfly.host.frontend import import_model
from lutterfly.host.model.model import Model
from lutterfly.host.quantize.names import Names
from lutterfly.host.quantize.static_quantisation import quantize, relative_errors

#: A convolution, its Relu, a SiLU, a residual sum with a shared bias, and a pooling.
NODES = (
    ("Conv", ("x", "w", "b"), "c"),
    ("Relu", ("c",), "r"),
    ("Conv", ("r", "v", "b"), "d"),
    ("Sigmoid", ("d",), "s"),
    ("Mul", ("d", "s"), "m"),
    ("Add", ("m", "r"), "a"),
    ("GlobalAveragePool", ("a",), "y"),
)
#: What tensors are called in their place, and the nodes.
TENSORS = {
    "plain": {},
    "scale of another": {"c": "x_scale", "r": "x_zero_point", "d": "x_quantized", "w": "w_scale"},
    "nodes of the form": {
        "c": "x_QuantizeLinear_Output",
        "d": "x_DequantizeLinear_Output",
        "s": "y_QuantizeLinear_Input",
    },
    "digits": {"b": "b", "v": "b0", "c": "b00", "d": "0", "s": "1"},
    "brackets": {"c": "x[0:7, 0:16]", "d": "%0%", "s": "%3%", "a": "a b"},
    "output like an input": {"y": "x_scale", "a": "x_zero_point"},
}
NODE_NAMES = {"own": "n{0}", "none": "", "as tensors": "{1}"}


def model(tensors: str, nodes: str) -> bytes:
    names = TENSORS[tensors]
    rng = np.random.default_rng(1)
    constants = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "v": rng.standard_normal((4, 4, 3, 3)).astype(np.float32) / 4,
        "b": rng.standard_normal(4).astype(np.float32),
    }
    made = [
        onnx.helper.make_node(
            operator,
            [names.get(name, name) for name in inputs],
            [names.get(output, output)],
            name=NODE_NAMES[nodes].format(place, names.get(output, output)),
            **({"pads": [1, 1, 1, 1]} if operator == "Conv" else {}),
        )
        for place, (operator, inputs, output) in enumerate(NODES)
    ]
    graph = onnx.helper.make_graph(
        made,
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 6, 6])],
        [onnx.helper.make_tensor_value_info(names.get("y", "y"), onnx.TensorProto.FLOAT, ["n", 4, 1, 1])],
        [onnx.numpy_helper.from_array(array, names.get(name, name)) for name, array in constants.items()],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def samples() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(2).standard_normal((12, 3, 6, 6)).astype(np.float32)}


@pytest.mark.parametrize(("tensors", "nodes"), [*itertools.product(TENSORS, NODE_NAMES)])
def test_the_result_is_the_same_whatever_things_are_called(tensors: str, nodes: str) -> None:
    data = model(tensors, nodes)
    quantised = quantize(data, samples())
    plain = quantize(model("plain", "own"), samples())
    output = TENSORS[tensors].get("y", "y")
    (error,) = relative_errors(Model(data), Model(quantised), samples()).values()
    assert error < 0.05
    proto = onnx.load_from_string(quantised)
    onnx.checker.check_model(proto, full_check=True)
    assert [value.name for value in proto.graph.input] == ["x"]
    assert [value.name for value in proto.graph.output] == [output]
    # The user's tensors are there under their names, and no number is left of those in between.
    made = {name for node in proto.graph.node for name in node.output}
    assert {TENSORS[tensors].get(name, name) for name in ("c", "d")} & made or tensors == "plain"
    assert all(node.name for node in proto.graph.node)
    assert len({node.name for node in proto.graph.node}) == len(proto.graph.node)
    mine, others = (import_model(each) for each in (quantised, plain))
    assert [type(layer) for layer in mine.layers] == [type(layer) for layer in others.layers]


def test_messages_have_the_users_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.onnx").write_bytes(model("scale of another", "none"))
    np.savez(tmp_path / "x.npz", **samples())
    words = ["quantize", str(tmp_path / "net.onnx"), "--calibrate", str(tmp_path / "x.npz"), "--per-layer"]
    assert main([*words, "-o", str(tmp_path / "out.onnx")]) == 0
    said = capsys.readouterr().out
    assert "%" not in said.replace("% ", "").replace("%)", "").replace("%\n", "")
    assert "Conv_0" in said


def test_names_come_back_through_nested_graphs() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] x, bool c) => (float[n, 3] y)
        { y = If (c) <then_branch = t () => (float[n, 3] p) { p = Relu(x) },
                      else_branch = e () => (float[n, 3] q) { q = Neg(x) }> }"""
    proto = onnx.parser.parse_model(text)
    before = onnx.ModelProto()
    before.CopyFrom(proto)
    names = Names(proto)
    onnx.checker.check_model(proto, full_check=True)
    assert proto.graph.input[0].name == names.of_tensors({"x": 1}).popitem()[0] != "x"
    names.restore(proto)
    before.graph.node[0].name = "If_0"
    assert proto == before


def test_what_is_made_on_the_way_takes_nobodys_name() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) { x_scale = Relu(x) y = Neg(x_scale) }'
    )
    names = Names(proto)
    own = proto.graph.input[0].name
    proto.graph.node.append(onnx.helper.make_node("Neg", [own], [f"{own}_scale"], name=f"{own}_scale"))
    names.restore(proto)
    assert proto.graph.node[-1].output[0] == "x_scale_1"
    assert names.told(f"tensor '{own}_scale'") == "tensor 'x_scale'"


def test_a_tensor_that_is_called_as_a_node_takes_nobodys_name() -> None:
    """ONNX Runtime calls what stands in front of a Transpose that it moves by the name of the node that gives it."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }'
    proto = onnx.parser.parse_model(text)
    # As TensorFlow's exporter does.
    proto.graph.node[0].name = "y"
    names = Names(proto)
    (relu,) = proto.graph.node
    moved = proto.graph.node.add()
    target, relu.output[0] = relu.output[0], relu.name
    moved.CopyFrom(onnx.helper.make_node("Transpose", [relu.name], [target], perm=[0, 1]))
    names.restore(proto)
    onnx.checker.check_model(proto, full_check=True)
    assert [node.name for node in proto.graph.node] == ["y", "Transpose"]
    assert proto.graph.node[1].output[0] == "y" != proto.graph.node[0].output[0]
