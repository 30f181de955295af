"""Layer normalisation over the last axis as products with constant matrices, a product of activations, and tables.

RMS normalisation is the same without the mean that is taken off.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import NodeProto, helper

from ..float_graph import FloatGraph, Rewriting, chained, given, spelled
from ..last_axis import affine_rows
from .passes import Step, normalising

#: Of weights.
_GREATEST_CODE = 127
#: Below it by weights: that has a layer less, but their codes do not add up to 0, and from 256 elements on all but one
#: of each sum are 0. It is 40 dB.
_MOST_LEAK = 1e-4


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    shape, attributes = graph.shapes.get(node.input[0], []), given(node)
    if len(node.output) > 1 or not shape or not shape[-1]:
        return None
    if attributes.get("axis", -1) % len(shape) != len(shape) - 1 or not graph.are_constant(node.input[1:]):
        return None
    channels, name = shape[-1], node.output[0]
    mean = np.full((channels, channels), 1 / channels)
    without = np.eye(channels) - mean
    rows = graph.rows.get((node.input[0], (len(shape) - 1,)))
    is_centred = node.op_type == "LayerNormalization"
    is_in_weights = is_centred and (rows is None or _leak(rows, without) <= _MOST_LEAK)
    held_mean = graph.constant(f"{name}_mean", mean)
    held_without = graph.constant(f"{name}_without_mean", without) if is_in_weights else ""

    def averaged(operand: str, result: str) -> list[Step]:
        return [("MatMul", [operand, held_mean], result)]

    def centred(operand: str, result: str) -> list[Step]:
        if is_in_weights:
            return [("MatMul", [operand, held_without], result)]
        return [*averaged(operand, f"mean_of_{result}"), ("Sub", [operand, f"mean_of_{result}"], result)]

    epsilon = attributes.get("epsilon", 1e-5)
    taken_off = centred if is_centred else None
    steps = normalising(graph, name, node.input[0], epsilon, rows, centred=taken_off, averaged=averaged)
    made = spelled(node, f"{name}_normalised", steps)
    factor, *offsets = (graph.constants[operand] for operand in node.input[1:])
    rows = chained(node, affine_rows(graph, name, shape, factor, offsets[0] if offsets else np.zeros(channels)))
    rows[0].input[0] = made[-1].output[0]
    return [*made, *rows]


def _leak(rows: np.ndarray, without: np.ndarray) -> float:
    """The power that int8 weights which take off a mean leave of it, relative to that of the differences."""
    codes = np.rint(without / np.abs(without).max() * _GREATEST_CODE)
    left = rows.mean(axis=1) * codes[0].sum() / codes[0, 0]
    return float(np.square(left).sum() / max(rows.var(axis=1).sum(), np.finfo(np.float32).tiny))


LAYER_NORMALISATION = Rewriting(
    "layer or RMS normalisation as products and tables",
    "Difference, variance and factors have a scale each; in two passes where sizes differ much.",
    _spell,
    ("LayerNormalization", "RMSNormalization"),
)


class _Written(NamedTuple):
    """A normalisation that is written out: its operator, of what, with what, and all nodes that do it, in order."""

    operator: str
    source: str
    factor: np.ndarray
    offset: np.ndarray
    epsilon: float
    nodes: list[NodeProto]


def _spell_spelled(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    """As PyTorch below operator set 17, Paddle, TensorFlow and JAX write it, from the first mean on."""
    found = _written_out(graph, node)
    if found is None:
        return None
    channels, target = graph.shapes[found.source][-1], found.nodes[-1].output[0]
    operands = [
        graph.constant(f"{target}_{name}", np.broadcast_to(values.reshape(-1), channels))
        for name, values in (("scale", found.factor), ("offset", found.offset))
    ]
    inputs = [found.source, *operands]
    whole = helper.make_node(found.operator, inputs, [target], node.name, axis=-1, epsilon=found.epsilon)
    made = _spell(graph, whole)
    if made is not None:
        for other in found.nodes:
            if other is not node:
                graph.drop(other)
    return made


def _written_out(graph: FloatGraph, node: NodeProto) -> _Written | None:
    """What begins with this mean, if it is a normalisation of which nothing is read on the way."""
    if not _is_of_last_axis(graph, node):
        return None
    difference = _only(graph, node.output[0], "Sub")
    if difference is None:
        square = graph.maker(node.input[0])
        if square is None or not _is_square(graph, square, square.input[0]):
            return None
        return _normalised(graph, "RMSNormalization", square.input[0], square.input[0], [square, node])
    source = node.input[0]
    if list(difference.input) != [source, node.output[0]]:
        return None
    centred = difference.output[0]
    square = next((one for one in graph.readers(centred) if _is_square(graph, one, centred)), None)
    variance = square and _only(graph, square.output[0], "ReduceMean")
    if variance is None or not _is_of_last_axis(graph, variance):
        return None
    if len(graph.readers(centred)) != 2 or graph.is_output(centred):
        return None
    return _normalised(graph, "LayerNormalization", source, centred, [node, difference, square, variance])


def _normalised(graph: FloatGraph, operator: str, source: str, centred: str, nodes: list[NodeProto]) -> _Written | None:
    """What follows a variance, which the last node gives: ``centred`` divided by its root, factors and offsets."""
    variance = nodes[-1]
    positive = _only(graph, variance.output[0], "Add")
    epsilon = positive and _other(graph, positive, variance.output[0])
    deviation = positive and _only(graph, positive.output[0], "Sqrt")
    if deviation is None or epsilon is None or epsilon.size != 1:
        return None
    nodes, factor_of = [*nodes, positive, deviation], deviation.output[0]
    reciprocal = _reciprocal(graph, factor_of)
    if reciprocal is not None:
        nodes, factor_of = [*nodes, reciprocal], reciprocal.output[0]
    quotient = _only(graph, factor_of, "Div" if reciprocal is None else "Mul")
    operands = [centred, factor_of]
    if quotient is None or [*quotient.input] not in (operands, operands[::-1] if reciprocal else operands):
        return None
    nodes.append(quotient)
    factor, offset = np.ones(1), np.zeros(1)
    product = _only(graph, quotient.output[0], "Mul")
    scale = product and _other(graph, product, quotient.output[0])
    if scale is not None and _is_of_channels(graph, scale, source):
        nodes, factor = [*nodes, product], scale
    total = _only(graph, nodes[-1].output[0], "Add")
    bias = total and _other(graph, total, nodes[-1].output[0])
    if bias is not None and _is_of_channels(graph, bias, source):
        nodes, offset = [*nodes, total], bias
    return _Written(operator, source, factor, offset, float(epsilon.reshape(())), nodes)


def _reciprocal(graph: FloatGraph, name: str) -> NodeProto | None:
    """The only reader of a tensor, if it is one divided by it."""
    quotient = _only(graph, name, "Div")
    if quotient is not None:
        one = graph.constants.get(quotient.input[0])
        return quotient if one is not None and one.size == 1 and one.reshape(()) == 1 else None
    return _only(graph, name, "Reciprocal")


def _only(graph: FloatGraph, name: str, operator: str) -> NodeProto | None:
    """The only reader of a tensor, if it is such an operator."""
    reader = graph.reader(name)
    return reader if reader is not None and reader.op_type == operator else None


def _other(graph: FloatGraph, node: NodeProto, name: str) -> np.ndarray | None:
    """The constant that a node combines a tensor with."""
    return next((graph.constants[one] for one in node.input if one != name and one in graph.constants), None)


def _is_square(graph: FloatGraph, node: NodeProto, name: str) -> bool:
    if node.op_type == "Mul":
        return list(node.input) == [name, name]
    exponent = graph.constants.get(node.input[1]) if node.op_type == "Pow" else None
    return exponent is not None and exponent.size == 1 and exponent.reshape(()) == 2


def _is_of_last_axis(graph: FloatGraph, node: NodeProto) -> bool:
    """Whether a ReduceMean averages the last axis, and keeps it."""
    attributes, rank = given(node), len(graph.shapes.get(node.input[0], []))
    # An operand since operator set 18.
    axes = graph.constants.get(node.input[1]) if len(node.input) > 1 else attributes.get("axes")
    return bool(rank and axes is not None and attributes.get("keepdims", 1)) and [a % rank for a in axes] == [rank - 1]


def _is_of_channels(graph: FloatGraph, values: np.ndarray, source: str) -> bool:
    """Whether a constant has a value for each element of the last axis, or one for all."""
    return values.size in (1, graph.shapes[source][-1]) and values.shape[-1:] in ((), (values.size,))


SPELLED_LAYER_NORMALISATION = Rewriting(
    "layer or RMS normalisation that was written out, as products and tables",
    LAYER_NORMALISATION.change,
    _spell_spelled,
    ("ReduceMean",),
)
