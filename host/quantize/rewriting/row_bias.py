"""A product of rows with weights, and the offsets behind it, as one Gemm: ONNX Runtime makes one of a MatMul alone."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from .float_graph import FloatGraph, Rewriting, chained


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    matrix, channels = graph.constants.get(node.input[1]), graph.shapes.get(node.output[0], [0])[-1]
    if matrix is None or matrix.ndim != 2 or not graph.shapes.get(node.input[0]):
        return None
    passed, reader = [node], graph.reader(node.output[0])
    # A view in between whose last axis stays, as JAX writes it.
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
    # A row for each sample is another thing.
    if bias is None or not channels or bias.shape == (channels,) or bias.size not in (1, bias.shape[-1]):
        return None
    vector = graph.constant(f"{node.output[0]}_vector", np.broadcast_to(bias.reshape(-1), channels))
    made = NodeProto()
    made.CopyFrom(node)
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
    _spell,
    ("MatMul",),
)
