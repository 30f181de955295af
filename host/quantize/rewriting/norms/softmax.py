"""Softmax inside a network: the greatest value taken off, a table, an average, its reciprocal, and a product."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from ....frontend import ModelError
from ....frontend.fragments import LAYOUT, POINTWISE, has_elements
from ..float_graph import FloatGraph, Mask, Rewriting, given, spelled

#: Up to it an exponential is less than half a code, and 0 therefore.
LEAST = np.log(1 / 512)
#: An exponential of it is 0 in float32.
_LOWEST = -1e4
#: From here on down, what is added to a score takes it out.
_OUT = -30.0


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    shape, name = graph.shapes.get(node.input[0], []), _guarded(graph, node.output[0])
    if len(shape) < 2 or not all(shape[1:]) or is_end(graph, name):
        return None
    axis = given(node).get("axis", -1) % len(shape)
    if axis == 0:
        return None
    for other in graph.readers(node.output[0]) if name != node.output[0] else ():
        graph.drop(other)
    _note_mask(graph, node, [1, *shape[1:]], axis, f"{name}_greatest")
    # Its axis as the last one.
    order = [place for place in range(len(shape)) if place != axis] + [axis]
    turned = [shape[place] for place in order]
    size, rows, is_turned = shape[axis], int(np.prod(turned[1:-1])), axis != len(shape) - 1
    held = {
        "rows": np.array([-1, rows, size], np.int64),
        "least": np.array(LEAST),
        "nothing": np.array(0.0),
        "size": np.array(1 / size),
        "shape": np.array([-1, *turned[1:]], np.int64),
    }
    held = {key: graph.constant(f"{name}_{key}", array) for key, array in held.items()}
    graph.uncut[held["least"]] = _LOWEST
    steps = [
        *([("Transpose", [node.input[0]], "turned")] if is_turned else []),
        ("Reshape", ["turned" if is_turned else node.input[0], held["rows"]], "as_rows"),
        ("MaxPool", ["as_rows"], "greatest"),
        ("Sub", ["as_rows", "greatest"], "distance"),
        ("Clip", ["distance", held["least"]], "near"),
        ("Exp", ["near"], "raised"),
        # As in int8, so that mean and reciprocal get the range that they have there.
        ("Greater", ["near", held["least"]], "counts"),
        ("Where", ["counts", "raised", held["nothing"]], "exponential"),
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


def _guarded(graph: FloatGraph, name: str) -> str:
    """The tensor that replaces NaN by 0, as PyTorch's exporters put it behind a softmax with a mask, or the same."""
    readers = {reader.op_type: reader for reader in graph.readers(name)}
    if graph.is_output(name) or {*readers} != {"IsNaN", "Where"} or len(graph.readers(name)) != 2:
        return name
    test, choice = readers["IsNaN"].output[0], readers["Where"]
    zero = graph.constants.get(choice.input[1])
    is_guard = [test, name] == [choice.input[0], choice.input[2]] and graph.reader(test) is choice
    return choice.output[0] if is_guard and zero is not None and not zero.any() else name


def _note_mask(graph: FloatGraph, node: NodeProto, shape: list[int], axis: int, greatest: str) -> None:
    """Write what takes scores out as a sum, if there is something, and note it."""
    adding = graph.maker(node.input[0])
    if adding is None or adding.op_type not in ("Add", "Sub", "Where"):
        return
    scores, values = _addend(graph, adding)
    if values is None or values.size == 1 or values.min() > _OUT:
        return
    values = values if has_elements(values.shape) else np.broadcast_to(values, shape)
    if np.broadcast_to(values, shape).max(axis).min() <= _OUT:
        raise ModelError(
            f"{adding.op_type} '{adding.name}': it must leave a score in each row of Softmax '{node.name}', and takes "
            "all of some out; take these rows out of the network"
        )
    constant = graph.constant(f"{adding.output[0]}_mask", values)
    adding.CopyFrom(helper.make_node("Add", [scores, constant], [adding.output[0]], adding.name))
    graph.masks.append(Mask(constant, scores, adding.output[0], greatest))


def _addend(graph: FloatGraph, node: NodeProto) -> tuple[str, np.ndarray | None]:
    """A tensor, and what a node adds to it, or something that has the same effect on a softmax."""
    held = [graph.constants.get(name) for name in node.input]
    if node.op_type == "Where":
        condition, first, second = held
        scores, least = (node.input[2], first) if second is None else (node.input[1], second)
        if condition is None or least is None or least.max() > _OUT or (first is None) == (second is None):
            return "", None
        return scores, np.where(condition, *((least, 0) if second is None else (0, least)))
    first, second = held
    if node.op_type == "Sub":
        return node.input[0], None if second is None else -second
    return (node.input[0], second) if first is None else (node.input[1], first)


def is_end(graph: FloatGraph, name: str) -> bool:
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
    f"Exponentials below {np.exp(LEAST):.4f} of the greatest are 0; sum and reciprocal have scales of their own.",
    _spell,
    ("Softmax",),
)
