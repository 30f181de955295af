"""PRelu with a slope for each channel as the sum of what is positive and of what is negative, times the slope."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from .affine import of_channels
from .float_graph import FloatGraph, Rewriting, depthwise


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    if not graph.spatial(node.input[0]):
        return None
    slopes = of_channels(graph, node.input[1], node.input[0])
    if slopes is None or len(slopes) == 1 or (slopes == slopes[0]).all():
        return None
    source, output = node.input[0], node.output[0]
    zero = graph.constant(f"{output}_zero", np.zeros(()))
    rank = len(graph.shapes[source])
    weights = slopes.reshape(-1, *[1] * (rank - 2))
    operator, operands, attributes = depthwise(graph, output, weights, group=len(slopes))
    # Behind the convolution the requantiser cuts, and there is no table; but only what has the sign of its input.
    is_cut_behind = bool((slopes >= 0).all())
    order = [(operator, operands, attributes), ("Clip", ["", zero], {})]
    negative, made = source, []
    for kind, others, given in order if is_cut_behind else order[::-1]:
        made.append(helper.make_node(kind, [negative, *others], [f"{output}_{kind}"], f"{node.name}_{kind}", **given))
        negative = made[-1].output[0]
    positive = helper.make_node("Relu", [source], [f"{output}_Relu"], f"{node.name}_Relu")
    return [*made, positive, helper.make_node("Add", [positive.output[0], negative], [output], node.name)]


PRELU = Rewriting(
    "PRelu of channels as Relu, depthwise convolution and addition",
    "Slopes are int8 with a scale each, and positive and negative values are quantised apart before they are added.",
    _spell,
    ("PRelu",),
)
