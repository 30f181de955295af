"""Softmax inside a network: the greatest value taken off, a table, an average, its reciprocal, and a product."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from ....frontend.fragments.fragments import LAYOUT, POINTWISE
from ..float_graph import FloatGraph, Rewriting, given, spelled

#: Below it an exponential is less than half a code.
_LEAST = np.log(1 / 512)


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    shape, name = graph.shapes.get(node.input[0], []), node.output[0]
    if len(shape) < 2 or not all(shape[1:]) or _ends(graph, name):
        return None
    axis = given(node).get("axis", -1) % len(shape)
    if axis == 0:
        return None
    # Its axis as the last one.
    order = [place for place in range(len(shape)) if place != axis] + [axis]
    turned = [shape[place] for place in order]
    size, rows, is_turned = shape[axis], int(np.prod(turned[1:-1])), axis != len(shape) - 1
    held = {
        "rows": np.array([-1, rows, size], np.int64),
        "least": np.array(_LEAST),
        "size": np.array(1 / size),
        "shape": np.array([-1, *turned[1:]], np.int64),
    }
    held = {key: graph.constant(f"{name}_{key}", array) for key, array in held.items()}
    steps = [
        *([("Transpose", [node.input[0]], "turned")] if is_turned else []),
        ("Reshape", ["turned" if is_turned else node.input[0], held["rows"]], "as_rows"),
        ("MaxPool", ["as_rows"], "greatest"),
        ("Sub", ["as_rows", "greatest"], "distance"),
        ("Clip", ["distance", held["least"]], "near"),
        ("Exp", ["near"], "exponential"),
        ("GlobalAveragePool", ["exponential"], "mean"),
        ("Reciprocal", ["mean"], "reciprocal"),
        ("Mul", ["reciprocal", held["size"]], "factor"),
        ("Mul", ["exponential", "factor"], "shares"),
        ("Reshape", ["shares", held["shape"]], "back"),
        *([("Transpose", ["back"], "turned_back")] if is_turned else []),
    ]
    made = spelled(node, name, steps)
    made[1 + is_turned].attribute.append(helper.make_attribute("kernel_shape", [size]))
    if is_turned:
        made[0].attribute.append(helper.make_attribute("perm", order))
        made[-1].attribute.append(helper.make_attribute("perm", [int(place) for place in np.argsort(order)]))
    return made


def _ends(graph: FloatGraph, name: str) -> bool:
    """Whether nothing but the shape of values changes behind a tensor: the host computes the end of a network."""
    waiting, seen = [name], {name}
    while waiting:
        tensor = waiting.pop()
        for node in (node for node in graph.nodes if tensor in node.input):
            if node.op_type not in (*LAYOUT, *POINTWISE):
                return False
            waiting += {*node.output} - seen
            seen |= {*node.output}
    return True


SOFTMAX = Rewriting(
    "softmax as a difference, a table, an average and a product",
    f"Exponentials below {np.exp(_LEAST):.4f} of the greatest are 0; sum and reciprocal have scales of their own.",
    _spell,
    ("Softmax",),
)
