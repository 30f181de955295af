"""One graph of an ONNX model: who computes and reads each tensor, before and after nodes are changed."""

from __future__ import annotations

import copy

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.host.model.onnx_graph import (
    OnnxGraph,
    attributes_of,
    import_operators,
    operator_set,
    set_nodes,
    set_values,
)
from lutterfly.host.model.runtime import plain_session


def _model(*nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",), domain: str = "") -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in ("x", *outputs)]
    held = [
        numpy_helper.from_array(np.array(value, np.float32), name)
        for name, value in (("two", 2), ("three", [3]), ("unread", 0))
    ]
    graph = helper.make_graph(nodes, "test", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, 17)], ir_version=8)


def _doubled_and_squared(**given: object) -> onnx.ModelProto:
    return _model(
        helper.make_node("Mul", ["x", "two"], ["doubled"], "double"),
        helper.make_node("Mul", ["doubled", "doubled"], ["squared"], "square"),
        helper.make_node("Add", ["squared", "three"], ["y"], "add"),
        **given,
    )


def _names(nodes: list[onnx.NodeProto]) -> list[str]:
    return [node.name for node in nodes]


def test_each_tensor_has_a_producer_and_consumers() -> None:
    graph = OnnxGraph.of(_doubled_and_squared())
    assert {name: node.name for name, node in graph.producer.items()} == {
        "doubled": "double",
        "squared": "square",
        "y": "add",
    }
    # Who reads a tensor twice is one reader.
    assert {name: _names(nodes) for name, nodes in graph.consumers.items()} == {
        "x": ["double"],
        "two": ["double"],
        "doubled": ["square"],
        "squared": ["add"],
        "three": ["add"],
    }
    assert graph.readers("y") == []
    assert graph.constants.keys() == {"two", "three", "unread"}
    assert [graph.computed(node) for node in graph.nodes] == [["x"], ["doubled"], ["squared"]]


def test_optional_operands_and_results_that_are_left_out_are_no_tensors() -> None:
    clip = helper.make_node("Clip", ["x", "", "two"], ["clipped"])
    graph = OnnxGraph.of(_model(clip, helper.make_node("Dropout", ["clipped"], ["y", ""])))
    assert graph.producer.keys() == {"clipped", "y"}
    assert graph.consumers.keys() == {"x", "two", "clipped"}
    assert graph.computed(clip) == ["x"]


def test_a_branch_reads_for_its_node() -> None:
    body = helper.make_graph(
        [helper.make_node("Neg", ["inner"], ["negative"])],
        "branch",
        [],
        [helper.make_tensor_value_info("negative", TensorProto.FLOAT, None)],
    )
    choice = helper.make_node("If", ["condition"], ["y"], "choose", then_branch=body, else_branch=body)
    graph = OnnxGraph.of(_model(helper.make_node("Neg", ["x"], ["inner"], "negate"), choice))
    assert _names(graph.readers("inner")) == ["choose"]


def test_the_only_reader_of_an_output_is_its_caller() -> None:
    graph = OnnxGraph.of(_doubled_and_squared(outputs=("y", "squared")))
    found = [graph.reader(name) for name in ("doubled", "squared", "y", "unknown")]
    assert found == [graph.nodes[1], None, None, None]
    assert graph.is_output("squared")
    assert not graph.is_output("doubled")


def test_what_is_dropped_computes_and_reads_nothing_even_when_others_change() -> None:
    graph = OnnxGraph.of(_doubled_and_squared())
    double, square, add = graph.nodes
    graph.drop(square)
    assert (graph.is_dropped(square), graph.is_dropped(double)) == (True, False)
    assert (graph.nodes, graph.readers("doubled"), graph.producer.get("squared")) == ([double, add], [], None)
    graph.replace(double, helper.make_node("Neg", ["x"], ["squared"], "negate"))
    assert (graph.producer["squared"], graph.reader("squared")) == (double, add)
    assert "doubled" not in graph.producer
    # A node like the dropped one is another node.
    assert not graph.is_dropped(copy.deepcopy(square))


def test_a_node_that_took_over_a_result_keeps_it_when_the_other_is_dropped() -> None:
    graph = OnnxGraph.of(_doubled_and_squared())
    double, square, _ = graph.nodes
    double.output[0] = "squared"
    graph.nodes.reverse()
    graph.index()
    graph.drop(square)
    assert graph.producer["squared"] is double


def test_a_new_constant_takes_no_name_of_another_tensor() -> None:
    graph = OnnxGraph.of(_doubled_and_squared())
    graph.shapes = {"doubled": [1]}
    names = [graph.add_constant(name, np.array(value)) for value, name in enumerate(("new", "new", "two", "doubled"))]
    assert names == ["new", "new_", "two_", "doubled_"]
    written = {tensor.name: numpy_helper.to_array(tensor).item() for tensor in graph.model.graph.initializer[3:]}
    assert (
        written == {name: graph.constants[name].item() for name in names} == {name: at for at, name in enumerate(names)}
    )


def test_a_part_has_the_constants_that_it_reads() -> None:
    graph = OnnxGraph.of(_doubled_and_squared())
    part = graph.part(graph.nodes[1:], {"doubled": (2,)}, ["y", "squared"])
    assert [tensor.name for tensor in part.graph.initializer] == ["three"]
    assert operator_set(part) == graph.opset == 17
    found = plain_session(part).run(None, {"doubled": np.array([1, 4], np.float32)})
    assert [values.tolist() for values in found] == [[4, 19], [1, 16]]


def test_a_part_takes_other_constants_and_types() -> None:
    graph = OnnxGraph.of(_doubled_and_squared())
    three = numpy_helper.from_array(np.array([30], np.int32), "three")
    part = graph.part(graph.nodes[2:], {"squared": (1,)}, ["y"], [three], element=TensorProto.INT32)
    assert plain_session(part).run(None, {"squared": np.array([12], np.int32)})[0].tolist() == [42]


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_standard_operators_have_two_names(domain: str) -> None:
    model = _doubled_and_squared(domain=domain)
    assert (operator_set(model), operator_set(model, "com.microsoft")) == (17, 0)
    for version in (1, 2):
        import_operators(model, "com.microsoft", version)
    import_operators(model, "", 18)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [(domain, 17), ("com.microsoft", 1)]


def test_attributes_are_numbers_lists_and_bytes() -> None:
    node = helper.make_node("Pad", ["x"], ["y"], pads=[0, 1], mode="edge", value=0.5)
    assert attributes_of(node) == {"pads": [0, 1], "mode": b"edge", "value": 0.5}
    assert attributes_of(helper.make_node("Relu", ["x"], ["y"])) == {}


def test_nodes_and_values_are_set_in_place() -> None:
    model = _doubled_and_squared()
    set_nodes(model.graph, [model.graph.node[2], helper.make_node("Neg", ["y"], ["z"], "negate"), model.graph.node[0]])
    assert _names(model.graph.node) == ["add", "negate", "double"]
    set_values(model.graph.initializer[1], np.arange(6, dtype=np.int64).reshape(2, 3))
    assert model.graph.initializer[1].name == "three"
    assert numpy_helper.to_array(model.graph.initializer[1]).tolist() == [[0, 1, 2], [3, 4, 5]]
