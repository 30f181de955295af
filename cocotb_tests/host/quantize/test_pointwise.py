"""Which operators on two activations stay in float: those that are functions of one."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.host.quantize.static_quantisation import pointwise_nodes

#: Nodes as (operator, inputs, output) after the convolutions ``a`` and ``b`` of one input, and which stay in float.
CASES = {
    "a gate of its own": ([("Sigmoid", "a", "s"), ("Mul", "a s", "y")], ["y"]),
    "a longer one": (
        [("Add", "a c", "p"), ("Clip", "p", "q"), ("Mul", "q c", "r"), ("Mul", "r a", "y")],
        ["p", "r", "y"],
    ),
    "a gate of another layer": ([("Sigmoid", "b", "s"), ("Mul", "a s", "y")], []),
    "of two layers": ([("Mul", "a b", "y")], []),
    "a sum of two layers": ([("Add", "a b", "y")], []),
    "a sum with what is made of it": ([("Sigmoid", "a", "s"), ("Add", "a s", "y")], []),
    "of a sum and itself": ([("Add", "a b", "t"), ("Tanh", "t", "s"), ("Mul", "t s", "y")], ["y"]),
    "of sums and one of their operands": ([("Add", "a b", "t"), ("Mul", "t a", "y")], []),
    "with a constant": ([("Mul", "a c", "y")], ["y"]),
    "a square": ([("Mul", "a a", "y")], ["y"]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_stays_in_float(case: str) -> None:
    written, expected = CASES[case]
    nodes = [helper.make_node("Conv", ["x", "w"], [name], name) for name in "ab"]
    nodes += [helper.make_node(kind, inputs.split(), [output], output) for kind, inputs, output in written]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    weights = [numpy_helper.from_array(np.ones((1,) * rank, np.float32), name) for name, rank in (("w", 4), ("c", 0))]
    graph = helper.make_graph(nodes, "network", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert list(pointwise_nodes(model)) == expected
