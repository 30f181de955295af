"""Fully connected layers of more inputs than one window has, as sums of several."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from .float_graph import FloatGraph, Rewriting, given

#: Inputs of a window: 1,024 words of 16 lanes, as the default configuration's step lists have them.
_MOST = 1024 * 16


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    matrix = _matrix(graph, node)
    source, shape = node.input[0], graph.shapes.get(node.input[0], [])
    if matrix is None or len(shape) != 2 or len(matrix) <= _MOST:
        return None
    flatten, axis = graph.maker(source), 1
    # Rows of a map lie side by side, and what channels have of it does not.
    if _flattens(flatten, graph) and (sizes := graph.spatial(flatten.input[0])):
        graph.drop(flatten)
        source, axis = flatten.input[0], 2
        matrix = matrix.reshape(*sizes, -1).swapaxes(0, 1)
    else:
        matrix = matrix[:, None]
    count = -(-len(matrix) // max(_MOST * len(matrix) // matrix[..., 0].size, 1))
    name, shares = node.output[0], np.array_split(matrix, count)
    parts = [f"{name}_part_{number}" for number in range(count)]
    sizes = graph.constant(f"{name}_shares", np.array([len(share) for share in shares], np.int64))
    made, total = [helper.make_node("Split", [source, sizes], parts, f"{node.name}_split", axis=axis)], ""
    for number, (part, share) in enumerate(zip(parts, shares, strict=True)):
        weights = graph.constant(f"{part}_weights", share.swapaxes(0, 1).reshape(-1, matrix.shape[-1]))
        flat, product, own = f"{part}_flat", f"{part}_product", f"{node.name}_{number}"
        bias = node.input[2:] if number == 0 else []
        made += [
            helper.make_node("Flatten", [part], [flat], f"{own}_flatten"),
            helper.make_node("Gemm", [flat, weights, *bias], [product], own),
        ]
        if total:
            made.append(helper.make_node("Add", [total, product], [f"{part}_sum"], f"{own}_sum"))
        total = made[-1].output[0]
    made[-1].output[0] = name
    return made


def _matrix(graph: FloatGraph, node: NodeProto) -> np.ndarray | None:
    """float[inputs, outputs] of a fully connected layer."""
    if not graph.are_constant(node.input[1:]):
        return None
    attributes, matrix = given(node), graph.constants[node.input[1]]
    is_plain = attributes.get("alpha", 1) == attributes.get("beta", 1) == 1 and not attributes.get("transA", 0)
    if matrix.ndim != 2 or not is_plain:
        return None
    return matrix.T if attributes.get("transB", 0) else matrix


def _flattens(node: NodeProto | None, graph: FloatGraph) -> bool:
    """Whether a node makes all of a map one vector."""
    if node is None or node.op_type not in ("Flatten", "Reshape"):
        return False
    source, target = (graph.shapes.get(name, []) for name in (node.input[0], node.output[0]))
    return len(source) > 2 and len(target) == 2 and int(np.prod(source[1:])) == target[1]


WIDE_PRODUCT = Rewriting(
    f"fully connected layer of more than {_MOST:,} inputs as a sum of several",
    "The sum of each part of the inputs is quantised before they are added up.",
    _spell,
    ("Gemm", "MatMul"),
)
