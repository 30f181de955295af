"""Products with constants in other spellings, with offsets for each row, or of more inputs than a window has."""

from __future__ import annotations

import copy
import re

import numpy as np
from onnx import NodeProto, helper

from ...model.onnx_graph import attributes_of
from .float_graph import FloatGraph, Rewriting, chained

#: The equation of a matrix product with a constant: batch axes, the summed axis, and the axis of results.
_EQUATION = re.compile(r"([a-zA-Z]*)([a-zA-Z]),([a-zA-Z]{2})->([a-zA-Z]*)([a-zA-Z])")
_NOTHING = "Nothing else changes."


def _turn(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    """Return ``W @ x`` as the transpose of ``x.T @ W.T``."""
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
    equation = attributes_of(node).get("equation")
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


# A product of rows with weights, and the offsets after it, become one Gemm; ONNX Runtime does so for a MatMul only.


def _spell_row_bias(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    matrix, channels = graph.constants.get(node.input[1]), graph.shapes.get(node.output[0], [0])[-1]
    if matrix is None or matrix.ndim != 2 or not graph.shapes.get(node.input[0]):
        return None
    passed, reader = [node], graph.reader(node.output[0])
    # JAX writes a view between both that keeps the last axis.
    if reader is not None and reader.op_type == "Reshape":
        passed, reader = [*passed, reader], graph.reader(reader.output[0])
    if reader is None or reader.op_type != "Add":
        return None
    shape = graph.shapes.get(passed[-1].output[0], [])
    offset = next((name for name in reader.input if name in graph.constants), "")
    values = graph.constants.get(offset)
    if values is None or not values.size == channels == values.shape[-1] == shape[-1] or values.ndim > len(shape):
        return None
    for other in (*passed[1:], reader):
        graph.drop(other)
    target = reader.output[0]
    rows, back = (
        graph.constant(f"{target}_{kind}", np.array([-1, *sizes], np.int64))
        for kind, sizes in (("rows", matrix.shape[:1]), ("back", shape[1:]))
    )
    bias = graph.constant(f"{target}_offsets", values.reshape(-1))
    made = chained(node, [("Reshape", [rows], {}), ("Gemm", [node.input[1], bias], {}), ("Reshape", [back], {})])
    made[-1].output[0] = target
    return made


def _as_vector(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    channels = graph.shapes.get(node.output[0], [0])[-1]
    bias = graph.constants.get(node.input[2]) if len(node.input) > 2 else None
    # Offsets with a row for each sample are no bias.
    if bias is None or not channels or bias.shape == (channels,) or bias.size not in (1, bias.shape[-1]):
        return None
    vector = graph.constant(f"{node.output[0]}_vector", np.broadcast_to(bias.reshape(-1), channels))
    made = copy.deepcopy(node)
    made.input[2] = vector
    return [made]


VECTOR_BIAS = Rewriting(
    "offsets of a product in one row as a vector",
    "Nothing changes: onnxruntime.quantization takes no others.",
    _as_vector,
    ("Gemm",),
)
ROW_BIAS = Rewriting(
    "a product of rows and the offsets behind it as one layer",
    "Nothing else changes.",
    _spell_row_bias,
    ("MatMul",),
)


# Fully connected layers with more inputs than a window can have become sums of several.

#: Most inputs of a window: 1,024 words of 16 lanes, the length of the default configuration's step lists.
_MOST = 1024 * 16


def _spell_wide(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    matrix = _matrix(graph, node)
    source, shape = node.input[0], graph.shapes.get(node.input[0], [])
    if matrix is None or len(shape) != 2 or len(matrix) <= _MOST:
        return None
    flatten, axis = graph.maker(source), 1
    # The rows of a map are contiguous, and the elements of channels are not.
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
    """Return the weights float[inputs, outputs] of a fully connected layer."""
    if not graph.are_constant(node.input[1:]):
        return None
    attributes, matrix = attributes_of(node), graph.constants[node.input[1]]
    is_plain = attributes.get("alpha", 1) == attributes.get("beta", 1) == 1 and not attributes.get("transA", 0)
    if matrix.ndim != 2 or not is_plain:
        return None
    return matrix.T if attributes.get("transB", 0) else matrix


def _flattens(node: NodeProto | None, graph: FloatGraph) -> bool:
    """Return whether a node flattens a map to one vector."""
    if node is None or node.op_type not in ("Flatten", "Reshape"):
        return False
    source, target = (graph.shapes.get(name, []) for name in (node.input[0], node.output[0]))
    return len(source) > 2 and len(target) == 2 and int(np.prod(source[1:])) == target[1]


WIDE_PRODUCT = Rewriting(
    f"fully connected layer of more than {_MOST:,} inputs as a sum of several",
    "The sum of each part of the inputs is quantised before they are added up.",
    _spell_wide,
    ("Gemm", "MatMul"),
)


# ONNX Runtime fuses a product and a residual sum into a fully connected layer that adds an activation.


def _spell_addend(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    if len(node.input) < 3 or not node.input[2] or node.input[2] in graph.constants:
        return None
    if attributes_of(node).get("beta", 1) != 1:
        return None
    product = f"{node.output[0]}_product"
    gemm = helper.make_node("Gemm", node.input[:2], [product], f"{node.name}_product")
    gemm.attribute.extend(item for item in node.attribute if item.name != "beta")
    return [gemm, helper.make_node("Add", [product, node.input[2]], node.output, f"{node.name}_sum")]


COMPUTED_ADDEND = Rewriting(
    "a fully connected layer that adds an activation as a product and a sum",
    "The product is quantised before the activation is added.",
    _spell_addend,
    ("Gemm",),
)
