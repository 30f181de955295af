"""Attention of operator set 23 as matrix products and a softmax, which are rewritten further."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, helper

from .float_graph import FloatGraph, Rewriting, given, spelled


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    attributes, inputs = given(node), [*node.input, *[""] * 6][:6]
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
    counts = {item.name: item.i for item in node.attribute}
    keys = ("q_num_heads", "kv_num_heads", "kv_num_heads")
    heads = [counts.get(key, 0) for key in keys] if is_flat else [shape[1] for shape in shapes]
    if not all(heads) or heads[0] % heads[1]:
        return None
    size = shapes[0][2] // heads[0] if is_flat else shapes[0][3]
    held = {
        # Not called a scale: the quantised tensor gets one of that name.
        "factor": np.array(attributes.get("scale", 1 / np.sqrt(size))),
        # Of grouped queries, several read one head of the keys.
        "heads": np.arange(heads[0], dtype=np.int64) // (heads[0] // heads[1]),
        "joined": np.array([0, 0, -1], np.int64),
    }
    if mask is not None:
        # Whatever it takes out, the softmax brings into the range of the scores.
        held["mask"] = mask.reshape(*[1] * (4 - mask.ndim), *mask.shape)
    for part, count in zip("qkv", heads, strict=True):
        held[f"{part}_shape"] = np.array([0, 0, count, -1], np.int64)
    held = {key: graph.constant(f"{name}_{key}", array) for key, array in held.items()}
    steps: list[tuple[str, list[str], str]] = []
    attributes_of: dict[str, dict[str, Any]] = {}
    for part, operand in zip("qkv", inputs, strict=False):
        # Keys are turned, for the product.
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
            held[part], attributes_of[f"{part}_{result}"] = f"{part}_{result}", more
    steps += [("MatMul", [held["q"], held["k"]], "products"), ("Mul", ["products", held["factor"]], "scores")]
    steps += [("Add", ["scores", held["mask"]], "masked")] if mask is not None else []
    steps += [("Softmax", [steps[-1][2]], "shares"), ("MatMul", ["shares", held["v"]], "values")]
    if is_flat:
        steps += [("Transpose", ["values"], "turned"), ("Reshape", ["turned", held["joined"]], "all")]
        attributes_of["turned"] = {"perm": [0, 2, 1, 3]}
    made = spelled(node, name, steps)
    for one, (_, _, result) in zip(made, steps, strict=True):
        one.attribute.extend(helper.make_attribute(*item) for item in attributes_of.get(result, {}).items())
    return made


def _mask(mask: np.ndarray | None, sizes: list[int], is_causal: object) -> np.ndarray | None:
    """What is added to the scores of ``sizes`` queries and keys; a condition says which of them stay."""
    if mask is not None and mask.dtype.kind == "b":
        mask = np.where(mask, 0.0, -np.inf)
    if not is_causal:
        return mask
    # The first query reads the first key, whatever their numbers are.
    queries, keys = sizes
    later = np.where(np.tri(queries, keys) > 0, 0.0, -np.inf)
    return later if mask is None else mask + later


ATTENTION = Rewriting(
    "attention as matrix products and a softmax",
    "Scores, shares and results are quantised, each with a scale of its own.",
    _spell,
    ("Attention",),
)
