"""Factors and offsets along the last axis: part of the product of rows in front, or a product of their own."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from .axes import Step
from .float_graph import FloatGraph, Rewriting, chained
from .folding import fold_in_front


def affine_rows(graph: FloatGraph, name: str, shape: list[int], factor: np.ndarray, offset: np.ndarray) -> list[Step]:
    """The steps of ``x * factor + offset`` along the last axis of a tensor: a product with a diagonal matrix.

    Parameters
    ----------
    graph : FloatGraph
    name : str
        Of a tensor, after which their constants are called.
    shape : list of int
        Of the tensor that is read; its batch may be 0.
    factor, offset : array
        float[elements].
    """
    rows, back = (
        graph.constant(f"{name}_{kind}", np.array([-1, *sizes], np.int64))
        for kind, sizes in (("rows", shape[-1:]), ("back", shape[1:]))
    )
    matrix, added = graph.constant(f"{name}_factors", np.diag(factor)), graph.constant(f"{name}_offsets", offset)
    return [("Reshape", [rows], {}), ("Gemm", [matrix, added], {}), ("Reshape", [back], {})]


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    source = next((name for name in node.input if name not in graph.constants), "")
    shape = graph.shapes.get(source, [])
    factor = next((graph.constants[name] for name in node.input if name in graph.constants), np.zeros(0))
    if len(shape) < 3 or shape[-1] < 2 or not factor.size == shape[-1] == factor.shape[-1] or factor.ndim > len(shape):
        return None
    factor = factor.reshape(-1).astype(np.float64)
    last = graph.maker(source)
    if last is not None and _fold(graph, last, factor):
        last.output[0] = node.output[0]
        return []
    made = chained(node, affine_rows(graph, node.output[0], shape, factor, np.zeros(len(factor))))
    made[0].input[0] = source
    return made


def _fold(graph: FloatGraph, last: NodeProto, factor: np.ndarray) -> bool:
    """Multiply the weights of a product of rows, and what ``last`` adds to them; or of one whose rows it reshapes."""
    if last.op_type == "Add":
        added = [at for at, name in enumerate(last.input) if graph.constants.get(name, factor[:0]).size == len(factor)]
        product = graph.maker(last.input[1 - added[0]]) if added else None
        if product is None or not _fold(graph, product, factor):
            return False
        offset = graph.constants[last.input[added[0]]].astype(np.float64)
        last.input[added[0]] = graph.constant(f"{last.output[0]}_folded_offsets", offset * factor)
        return True
    if last.op_type == "MatMul" and last.input[1] in graph.constants:
        weights = graph.constants[last.input[1]].astype(np.float64)
        last.input[1] = graph.constant(f"{last.output[0]}_folded_weights", weights * factor)
        return True
    rows = last.input[0]
    sizes = graph.shapes.get(rows, [])
    # Of two axes: what a convolution gives has other channels than those of its last axis.
    keeps = last.op_type == "Reshape" and len(sizes) == 2 and sizes[1] == len(factor)
    return keeps and fold_in_front(graph, rows, rows, factor, np.zeros(len(factor)))


LAST_AXIS = Rewriting(
    "factors along the last axis as part of a product",
    "Folded into a product in front, nothing else changes; else its weights are int8, and its result has a scale.",
    _spell,
    ("Mul",),
)
