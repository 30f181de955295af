"""Softmax and attention inside a network, and quotients, as products, averages and tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, helper

from ...frontend import ModelError
from ...frontend.fragments import LAYOUT, POINTWISE, has_elements
from ...model.onnx_graph import attributes_of
from .float_graph import FloatGraph, Mask, Rewriting, spelled

#: Greatest exponent whose exponential is less than half a code, and so 0.
LEAST = np.log(1 / 512)
#: An exponent whose exponential is 0 in float32.
_LOWEST = -1e4
#: Addends up to this value remove a score from the softmax.
_OUT = -30.0


def _spell_softmax(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    shape, name = graph.shapes.get(node.input[0], []), _guarded(graph, node.output[0])
    if len(shape) < 2 or not all(shape[1:]) or is_end(graph, name):
        return None
    axis = attributes_of(node).get("axis", -1) % len(shape)
    if axis == 0:
        return None
    for other in graph.readers(node.output[0]) if name != node.output[0] else ():
        graph.drop(other)
    _note_mask(graph, node, [1, *shape[1:]], axis, f"{name}_greatest")
    # The softmax is computed along the last axis.
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
        # Small values are cut off as in int8, so that mean and reciprocal get the range that they have there.
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
    """Return the tensor with NaN replaced by 0, as PyTorch's exporters do after a softmax with a mask; without such
    nodes the tensor itself."""
    readers = {reader.op_type: reader for reader in graph.readers(name)}
    if graph.is_output(name) or {*readers} != {"IsNaN", "Where"} or len(graph.readers(name)) != 2:
        return name
    test, choice = readers["IsNaN"].output[0], readers["Where"]
    zero = graph.constants.get(choice.input[1])
    is_guard = [test, name] == [choice.input[0], choice.input[2]] and graph.reader(test) is choice
    return choice.output[0] if is_guard and zero is not None and not zero.any() else name


def _note_mask(graph: FloatGraph, node: NodeProto, shape: list[int], axis: int, greatest: str) -> None:
    """Write a mask of scores as a sum, if there is one, and record it."""
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
    graph.replace(adding, helper.make_node("Add", [scores, constant], [adding.output[0]], adding.name))
    graph.masks.append(Mask(constant, scores, adding.output[0], greatest))


def _addend(graph: FloatGraph, node: NodeProto) -> tuple[str, np.ndarray | None]:
    """Return a tensor, and the addend of a node, or one with the same effect on a softmax."""
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
    """Return whether only the shape changes after a tensor, so that the host computes the end of the network."""
    waiting, seen = [name], {name}
    while waiting:
        for node in graph.readers(waiting.pop()):
            if node.op_type not in (*LAYOUT, *POINTWISE):
                return False
            waiting += {*node.output} - seen
            seen |= {*node.output}
    return True


SOFTMAX = Rewriting(
    "softmax as a difference, a table, an average and a product",
    f"Exponentials below {np.exp(LEAST):.4f} of the greatest are 0; sum and reciprocal have scales of their own.",
    _spell_softmax,
    ("Softmax",),
)


# Attention of operator set 23 becomes matrix products and a softmax, which are rewritten further.


def _spell_attention(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    attributes, inputs = attributes_of(node), [*node.input, *[""] * 6][:6]
    if any(inputs[4:]) or any(node.output[1:]) or attributes.get("softcap", 0.0):
        return None
    if inputs[3] and inputs[3] not in graph.constants:
        return None
    name = node.output[0]
    shapes = [graph.shapes.get(operand, []) for operand in inputs[:3]]
    if {len(shape) for shape in shapes} not in ({3}, {4}) or not all(map(all, shapes)):
        return None
    is_flat = len(shapes[0]) == 3
    mask = _mask(graph.constants.get(inputs[3]), [shape[-2] for shape in shapes[:2]], attributes.get("is_causal", 0))
    keys = ("q_num_heads", "kv_num_heads", "kv_num_heads")
    heads = [attributes.get(key, 0) for key in keys] if is_flat else [shape[1] for shape in shapes]
    if not all(heads) or heads[0] % heads[1]:
        return None
    size = shapes[0][2] // heads[0] if is_flat else shapes[0][3]
    held = {
        # The constant is not called a scale, as the quantised tensor gets one of that name.
        "factor": np.array(attributes.get("scale", 1 / np.sqrt(size))),
        # With grouped queries, several of them read one head of the keys.
        "heads": np.arange(heads[0], dtype=np.int64) // (heads[0] // heads[1]),
        "joined": np.array([0, 0, -1], np.int64),
    }
    if mask is not None:
        # The rewriting of the softmax brings the mask into the range of the scores.
        held["mask"] = mask.reshape(*[1] * (4 - mask.ndim), *mask.shape)
    for part, count in zip("qkv", heads, strict=True):
        held[f"{part}_shape"] = np.array([0, 0, count, -1], np.int64)
    held = {key: graph.constant(f"{name}_{key}", array) for key, array in held.items()}
    steps: list[tuple[str, list[str], str]] = []
    more_of: dict[str, dict[str, Any]] = {}
    for part, operand in zip("qkv", inputs, strict=False):
        # Keys are transposed for the product.
        order = ([0, 2, 3, 1] if is_flat else [0, 1, 3, 2]) if part == "k" else [0, 2, 1, 3]
        is_turned, is_repeated = is_flat or part == "k", part != "q" and heads[0] != heads[1]
        own: list[tuple[str, str, str, dict[str, Any]]] = [
            *([("Reshape", held[f"{part}_shape"], "heads", {})] if is_flat else []),
            *([("Transpose", "", "turned", {"perm": order})] if is_turned else []),
            *([("Gather", held["heads"], "repeated", {"axis": 1})] if is_repeated else []),
        ]
        held[part] = operand
        for operator, constant, result, more in own:
            steps.append((operator, [held[part], *filter(None, [constant])], f"{part}_{result}"))
            held[part], more_of[f"{part}_{result}"] = f"{part}_{result}", more
    steps += [("MatMul", [held["q"], held["k"]], "products"), ("Mul", ["products", held["factor"]], "scores")]
    steps += [("Add", ["scores", held["mask"]], "masked")] if mask is not None else []
    steps += [("Softmax", [steps[-1][2]], "shares"), ("MatMul", ["shares", held["v"]], "values")]
    if is_flat:
        steps += [("Transpose", ["values"], "turned"), ("Reshape", ["turned", held["joined"]], "all")]
        more_of["turned"] = {"perm": [0, 2, 1, 3]}
    made = spelled(node, name, steps)
    for one, (_, _, result) in zip(made, steps, strict=True):
        one.attribute.extend(helper.make_attribute(*item) for item in more_of.get(result, {}).items())
    return made


def _mask(mask: np.ndarray | None, sizes: list[int], is_causal: object) -> np.ndarray | None:
    """Return the addend of the scores of ``sizes`` queries and keys; a boolean mask keeps the scores where it is
    true."""
    if mask is not None and mask.dtype.kind == "b":
        mask = np.where(mask, 0.0, -np.inf)
    if not is_causal:
        return mask
    # The first query may read the first key, for any numbers of both.
    queries, keys = sizes
    later = np.where(np.tri(queries, keys) > 0, 0.0, -np.inf)
    return later if mask is None else mask + later


ATTENTION = Rewriting(
    "attention as matrix products and a softmax",
    "Scores, shares and results are quantised, each with a scale of its own.",
    _spell_attention,
    ("Attention",),
)


# A quotient by a smaller tensor is a product with its reciprocal, which is a table.


def _spell_quotient(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    sizes = [int(np.prod(graph.shapes.get(name, [0]))) for name in node.input]
    # With equal sizes it may be a function of one tensor; and the host computes the end of a network.
    if any(name in graph.constants for name in node.input) or not 0 < sizes[1] < sizes[0]:
        return None
    target, chosen = node.output[0], _guard(graph, node)
    result = chosen.output[0] if chosen is not None else target
    if is_end(graph, result):
        return None
    factor = f"{target}_reciprocal"
    made = [helper.make_node("Reciprocal", [node.input[1]], [factor], f"{node.name}_reciprocal")]
    if chosen is not None:
        graph.drop(chosen)
        operands, factor = [*chosen.input[:2], factor], f"{target}_guarded"
        made.append(helper.make_node("Where", operands, [factor], chosen.name))
    return [*made, helper.make_node("Mul", [node.input[0], factor], [result], node.name)]


def _guard(graph: FloatGraph, node: NodeProto) -> NodeProto | None:
    """Return the node that replaces the quotient by 0 where the divisor is 0, as TensorFlow writes div_no_nan."""
    choice = graph.reader(node.output[0])
    if choice is None or choice.op_type != "Where" or choice.input[2] != node.output[0]:
        return None
    zero = graph.constants.get(choice.input[1])
    is_of_divisor = any(choice.input[0] in other.output and node.input[1] in other.input for other in graph.nodes)
    return choice if is_of_divisor and zero is not None and zero.size == 1 and not zero.any() else None


QUOTIENT = Rewriting(
    "quotient by a tensor of fewer elements as a product with its reciprocal",
    "The reciprocal has a scale of its own.",
    _spell_quotient,
    ("Div",),
)
