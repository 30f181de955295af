"""Quotients by something smaller: a product with the reciprocal, which is a table."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from .float_graph import FloatGraph, Rewriting
from .norms.softmax import is_end


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    sizes = [int(np.prod(graph.shapes.get(name, [0]))) for name in node.input]
    # Of equal sizes it may be a function of one tensor, and the host computes the end of a network.
    if any(name in graph.constants for name in node.input) or not 0 < sizes[1] < sizes[0]:
        return None
    target, chosen = node.output[0], _guard(graph, node)
    result = chosen.output[0] if chosen is not None else target
    if is_end(graph, result):
        return None
    factor = f"{target}_reciprocal"
    made = [helper.make_node("Reciprocal", [node.input[1]], [factor], f"{node.name}_reciprocal")]
    if chosen is not None:
        graph.drop(chosen)
        operands, factor = [*chosen.input[:2], factor], f"{target}_guarded"
        made.append(helper.make_node("Where", operands, [factor], chosen.name))
    return [*made, helper.make_node("Mul", [node.input[0], factor], [result], node.name)]


def _guard(graph: FloatGraph, node: NodeProto) -> NodeProto | None:
    """What takes 0 in place of the quotient, where the divisor is 0: as TensorFlow writes div_no_nan."""
    choice = graph.reader(node.output[0])
    if choice is None or choice.op_type != "Where" or choice.input[2] != node.output[0]:
        return None
    zero = graph.constants.get(choice.input[1])
    is_of_divisor = any(choice.input[0] in other.output and node.input[1] in other.input for other in graph.nodes)
    return choice if is_of_divisor and zero is not None and zero.size == 1 and not zero.any() else None


QUOTIENT = Rewriting(
    "quotient by a tensor of fewer elements as a product with its reciprocal",
    "The reciprocal has a scale of its own.",
    _spell,
    ("Div",),
)
