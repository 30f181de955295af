"""PRelu with a slope for each channel as the sum of what is positive and of what is negative, times the slope."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from .affine import of_channels
from .float_graph import FloatGraph, Rewriting, depthwise


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    is_vector = len(graph.shapes.get(node.input[0], ())) == 2
    if not is_vector and not graph.spatial(node.input[0]):
        return None
    slopes = of_channels(graph, node.input[1], node.input[0])
    if slopes is None or len(slopes) == 1 or (slopes == slopes[0]).all():
        return None
    source, output = node.input[0], node.output[0]
    zero = graph.constant(f"{output}_zero", np.zeros(()))
    # The elements of a vector become channels of one pixel.
    kernel = [1] if is_vector else [1] * (len(graph.shapes[source]) - 2)
    axes = [graph.constant(f"{output}_axes", np.array([2], np.int64))] if is_vector else []
    operator, operands, attributes = depthwise(graph, output, slopes.reshape(-1, *kernel), group=len(slopes))
    # Behind the convolution the requantiser cuts, and there is no table; but only what has the sign of its input.
    is_cut_behind = bool((slopes >= 0).all())
    order = [(operator, operands, attributes), ("Clip", ["", zero], {})]
    order = order if is_cut_behind else order[::-1]
    around = [("Unsqueeze", axes, {}), *order, ("Squeeze", axes, {})] if is_vector else order
    negative, made = source, []
    for kind, others, given in around:
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
