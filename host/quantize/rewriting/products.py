"""Products with constants in other spellings: weights at the left, and Einsum."""

from __future__ import annotations

import re

from onnx import NodeProto, helper

from .float_graph import FloatGraph, Rewriting, chained, given

#: Of a matrix product with a constant: batches, the axis that is summed up, and that of the results.
_EQUATION = re.compile(r"([a-zA-Z]*)([a-zA-Z]),([a-zA-Z]{2})->([a-zA-Z]*)([a-zA-Z])")
_NOTHING = "Nothing else changes."


def _turn(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    """``W @ x`` is the transpose of ``x.T @ W.T``."""
    left, right = node.input
    rank = len(graph.shapes.get(right, []))
    if left not in graph.constants or right in graph.constants or rank < 2 or graph.constants[left].ndim != 2:
        return None
    order = [*range(rank - 2), rank - 1, rank - 2]
    weights = graph.constant(f"{node.output[0]}_weights", graph.constants[left].T)
    made = chained(
        node, [("Transpose", [], {"perm": order}), ("MatMul", [weights], {}), ("Transpose", [], {"perm": order})]
    )
    made[0].input[0] = right
    return made


def _multiply(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    equation = given(node).get("equation")
    found = _EQUATION.fullmatch(equation.decode().replace(" ", "")) if isinstance(equation, bytes) else None
    if found is None or len(node.input) != 2 or node.input[1] not in graph.constants:
        return None
    batches, summed, weights, kept, made = found.groups()
    if batches != kept or {*weights} != {summed, made} or {summed, made} & {*batches} or summed == made:
        return None
    if len({*batches}) != len(batches) or node.input[0] in graph.constants:
        return None
    matrix = graph.constants[node.input[1]]
    held = graph.constant(f"{node.output[0]}_weights", matrix if weights == summed + made else matrix.T)
    return [helper.make_node("MatMul", [node.input[0], held], [node.output[0]], node.name)]


WEIGHTS_AT_LEFT = Rewriting(
    "a product with weights at the left as one with weights at the right", _NOTHING, _turn, ("MatMul",)
)
EINSUM = Rewriting("Einsum of a tensor and a matrix as a matrix product", _NOTHING, _multiply, ("Einsum",))
