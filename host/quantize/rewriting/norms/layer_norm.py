"""Layer normalisation over the last axis as products with constant matrices, a product of activations, and tables."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from ..float_graph import FloatGraph, Rewriting, chained, given, spelled
from ..last_axis import affine_rows


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    shape, attributes = graph.shapes.get(node.input[0], []), given(node)
    if len(node.output) > 1 or not shape or not shape[-1]:
        return None
    if attributes.get("axis", -1) % len(shape) != len(shape) - 1 or not graph.are_constant(node.input[1:]):
        return None
    channels, name = shape[-1], node.output[0]
    mean = np.full((channels, channels), 1 / channels)
    constants = {
        "without_mean": np.eye(channels) - mean,
        "mean": mean,
        "epsilon": np.array(attributes.get("epsilon", 1e-5)),
    }
    held = {key: graph.constant(f"{name}_{key}", array) for key, array in constants.items()}
    steps = [
        ("MatMul", [node.input[0], held["without_mean"]], "difference"),
        ("Mul", ["difference", "difference"], "square"),
        ("MatMul", ["square", held["mean"]], "variance"),
        ("Add", ["variance", held["epsilon"]], "positive"),
        ("Sqrt", ["positive"], "deviation"),
        ("Reciprocal", ["deviation"], "factor"),
        ("Mul", ["difference", "factor"], "normalised"),
    ]
    made = spelled(node, f"{name}_normalised", steps)
    factor, *offsets = (graph.constants[operand] for operand in node.input[1:])
    rows = chained(node, affine_rows(graph, name, shape, factor, offsets[0] if offsets else np.zeros(channels)))
    rows[0].input[0] = made[-1].output[0]
    return [*made, *rows]


LAYER_NORMALISATION = Rewriting(
    "layer normalisation as products and tables",
    "Difference, variance and the factor made of it are quantised, each with a scale of its own.",
    _spell,
    ("LayerNormalization",),
)
