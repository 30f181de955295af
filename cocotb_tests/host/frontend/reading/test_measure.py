"""What a source's operators are spelled as: a Gather of everything in order is a Reshape, wherever it stands."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from lutterfly.host.frontend.parse import _spell_reshapes
from lutterfly.host.frontend.source import Source
from lutterfly.host.model.model import Model


def test_every_gather_in_order_becomes_a_reshape() -> None:
    orders = {"backwards": [[3, 2, 1, 0]], "some": [0, 1], "in order": [[0, 1], [2, 3]], "again": [[0], [1], [2], [3]]}
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        *(helper.make_node("Gather", ["x", name], [f"{name} taken"]) for name in orders),
        helper.make_node("Gather", ["x", "computed"], ["unknown"]),
    ]
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", TensorProto.INT8, [4])], [])
    constants = {name: np.array(order) for name, order in orders.items()}
    model = helper.make_model(graph)
    source = Source("model", model, Model(), qdq=False)
    source.constants, source.shapes = constants, {"x": (4,)}
    _spell_reshapes(source)
    assert [node.op_type for node in model.graph.node] == ["Relu", "Gather", "Gather", "Reshape", "Reshape", "Gather"]
    shapes = [constants[node.input[1]].tolist() for node in model.graph.node if node.op_type == "Reshape"]
    assert shapes == [[2, 2], [4, 1]]
