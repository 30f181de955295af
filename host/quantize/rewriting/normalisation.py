"""Instance, group, layer and RMS normalisation as products and tables: in one pass, or in two where sizes differ.

The dynamic range of squares is the square of that of the values.
Where one token is a twentieth of another, its squares are a four-hundredth, and 8 bits have no codes for them.
The mean of magnitudes has the dynamic range of the values.
So a first pass multiplies by about its reciprocal, after which all magnitudes are similar.
A second pass normalises the results of the first, so that the rounding of the first factor does not matter.

The mean is subtracted before the first pass or after it.
After it, the difference is rounded where all magnitudes are similar; before it, precision is not lost to a mean that is
far greater than the differences from it.

Where few values are far greater than the others, as in sparse maps, squares of most have no codes within one token.
Then squares are averaged in two parts, each with a scale of its own: up to a limit, and what is above it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, helper, numpy_helper

from ...model.onnx_graph import attributes_of, operator_set, set_nodes
from .affine import affine_rows
from .float_graph import FloatGraph, Rewriting, chained, depthwise, spelled

#: A step: an operator, its operands, and a short name of its result.
Step = tuple[str, Sequence[str], str]
#: Function of the short names of a tensor and of a result that returns steps, the last of which computes the result.
Steps = Callable[[str, str], Sequence[Step]]
Rows = npt.NDArray[np.floating]

_CODES, _LEAST_CODE = 255, -128
#: A spelling is good enough if its noise is at most 2 dB above that of the codes of input and result alone, or half a
#: decibel above the least of all spellings.
_ENOUGH, _AS_GOOD = 10**0.2, 10**0.05
#: Share of the greatest magnitude below which the first pass leaves a part of the normalisation to the second.
_LEAST_SHARE = 1 / 32
#: Share of the greatest magnitude up to which squares have a scale of their own, 16 times finer.
_LIMIT_SHARE = 1 / 4
#: An epsilon below this, relative to the squares of the second pass, counts as a constant there.
_NEGLIGIBLE = 1e-5


class Passes(Enum):
    """The number and the order of passes of a normalisation."""

    ONE = auto()
    CENTRED_FIRST = auto()
    SCALED_FIRST = auto()


@dataclass(frozen=True)
class Spelling:
    """The spelling of a normalisation.

    Attributes
    ----------
    passes : Passes
    in_parts : bool
        Whether squares are averaged in two parts.
    is_centred : bool
        Whether the mean is subtracted, which an RMS normalisation does not do.
    """

    passes: Passes = Passes.ONE
    in_parts: bool = False
    is_centred: bool = True


def normalising(
    graph: FloatGraph,
    name: str,
    source: str,
    epsilon: float,
    rows: Rows | None,
    *,
    centred: Steps | None,
    averaged: Steps,
) -> list[Step]:
    """Return the steps from a tensor to ``normalised``.

    Parameters
    ----------
    graph : FloatGraph
    name, source : str
        Names of tensors: that from which constants get names, and that which is normalised.
    epsilon : float
        The constant that is added to the variance.
    rows : float[rows, values] or None
        Values of ``source`` in the samples, each row normalised by itself; None if they are not known.
    centred : callable or None
        Gives the steps that subtract the mean of values that are normalised together; None for an RMS normalisation.
    averaged : callable
        Gives the steps that compute that mean.
    """

    def constant(key: str, value: float) -> str:
        return graph.constant(f"{name}_{key}", np.array(value))

    is_centred = centred is not None
    spelling = Spelling(is_centred=is_centred) if rows is None else best_spelling(rows, epsilon, is_centred=is_centred)
    steps: list[Step] = []
    if centred is not None and spelling.passes is not Passes.SCALED_FIRST:
        steps, source = [*centred(source, "difference")], "difference"
    values, added = source, constant("epsilon", epsilon)
    if rows is not None and spelling.passes is not Passes.ONE:
        least = _least_size(rows, epsilon)
        # Values that are never negative are not after their quantisation either, and need no Abs.
        is_signed = bool(steps) or rows.min() < 0
        size = averaged("magnitude" if is_signed else source, "size")
        steps += [
            *([("Abs", [source], "magnitude")] if is_signed else []),
            *size,
            ("Add", [size[-1][2], constant("least", least)], "raised"),
            ("Reciprocal", ["raised"], "gain"),
            ("Mul", [source, "gain"], "scaled"),
        ]
        values = "scaled"
        if centred is not None and spelling.passes is Passes.SCALED_FIRST:
            steps, values = [*steps, *centred("scaled", "even")], "even"
        if epsilon > _NEGLIGIBLE * least**2:
            steps += [("Mul", ["gain", "gain"], "square_gain"), ("Mul", ["square_gain", added], "gained_epsilon")]
            added = "gained_epsilon"
        else:
            added = constant("epsilon", epsilon / least**2)
    squares = averaged("square", "variance")
    variance = squares[-1][2]
    if rows is not None and spelling.in_parts:
        limit = _limit(rows, epsilon, spelling)
        excesses = averaged("excess", "excess_variance")
        steps += [
            ("Abs", [values], "absolute"),
            ("Min", ["absolute", constant("limit", limit)], "bounded"),
            ("Mul", ["bounded", "bounded"], "square"),
            *squares,
            # The part above the limit is the difference of squares.
            ("Sub", ["absolute", constant("limit", limit)], "above"),
            ("Max", ["above", constant("zero", 0.0)], "excess_root"),
            ("Add", ["excess_root", constant("limits", 2 * limit)], "excess_sum"),
            ("Mul", ["excess_root", "excess_sum"], "excess"),
            *excesses,
            ("Add", [variance, excesses[-1][2]], "whole_variance"),
        ]
        variance = "whole_variance"
    else:
        steps += [("Mul", [values, values], "square"), *squares]
    return [
        *steps,
        ("Add", [variance, added], "positive"),
        ("Sqrt", ["positive"], "deviation"),
        ("Reciprocal", ["deviation"], "factor"),
        ("Mul", [values, "factor"], "normalised"),
    ]


def best_spelling(rows: Rows, epsilon: float, *, is_centred: bool = True) -> Spelling:
    """Normalise rows in int8 with each spelling, and choose one that is good enough with the fewest layers.

    Parameters
    ----------
    rows : float[rows, values]
    epsilon : float
    is_centred : bool
        Whether the mean is subtracted.
    """
    rows, plain = rows.astype(np.float64), Spelling(is_centred=is_centred)
    if not (rows.std(axis=1) if is_centred else rows).any():
        return plain
    twice = (Passes.CENTRED_FIRST, Passes.SCALED_FIRST) if is_centred else (Passes.SCALED_FIRST,)
    # The spellings in groups with equal numbers of layers, in ascending order.
    spellings = [
        [Spelling(one, in_parts, is_centred) for one in passes]
        for in_parts in (False, True)
        for passes in ((Passes.ONE,), twice)
    ]
    noise = {spelling: _noise(rows, epsilon, spelling) for alike in spellings for spelling in alike}
    most = max(_ENOUGH * _noise(rows, epsilon, plain, inner=False), _AS_GOOD * min(noise.values()))
    best = (min(alike, key=lambda spelling: noise[spelling]) for alike in spellings)
    # The noise is not a number where values overflow.
    return next((spelling for spelling in best if noise[spelling] <= most), plain)


def _least_size(rows: Rows, epsilon: float) -> float:
    return float(max(np.abs(rows).mean(axis=1).max() * _LEAST_SHARE, np.sqrt(epsilon)))


def _limit(rows: Rows, epsilon: float, spelling: Spelling) -> float:
    values, _ = _scaled(rows, epsilon, spelling, lambda name, exact: exact)
    return float(np.abs(values).max() * _LIMIT_SHARE)


def _noise(rows: Rows, epsilon: float, spelling: Spelling, *, inner: bool = True) -> float:
    """Return the noise power of quantisation to codes: of all tensors, or without the ``inner`` ones, which stay in
    float."""
    ranges: dict[str, tuple[float, float]] = {}

    def measured(name: str, values: Rows) -> Rows:
        ranges[name] = min(values.min(), 0.0), max(values.max(), 0.0)
        return values

    def coded(name: str, values: Rows) -> Rows:
        if not inner and name not in ("source", "normalised"):
            return values
        least, greatest = ranges[name]
        scale = (greatest - least) / _CODES or 1.0
        zero = np.rint(_LEAST_CODE - least / scale)
        return (np.clip(np.rint(values / scale) + zero, _LEAST_CODE, _LEAST_CODE + _CODES) - zero) * scale

    exact, found = (_in_two_passes(rows, epsilon, spelling, code) for code in (measured, coded))
    return float(np.square(found - exact).mean())


def _mean(values: Rows) -> Rows:
    return values.mean(axis=1, keepdims=True)


def _in_two_passes(rows: Rows, epsilon: float, spelling: Spelling, code: Callable[[str, Rows], Rows]) -> Rows:
    """Return rows that are normalised as spelled by :func:`normalising`; ``code`` quantises each tensor."""
    values, added = _scaled(rows, epsilon, spelling, code)
    squares = values**2
    if spelling.in_parts:
        bounded = np.minimum(squares, _limit(rows, epsilon, spelling) ** 2)
        parts = {"square": bounded, "excess": squares - bounded}
    else:
        parts = {"square": squares}
    means = [code(f"{name}_variance", _mean(code(name, part))) for name, part in parts.items()]
    variance = np.add.reduce(means)
    # A row of equal values becomes zero, with any factor.
    positive = np.maximum(code("variance", variance) + added, np.finfo(np.float32).tiny)
    return code("normalised", values * code("factor", 1 / np.sqrt(positive)))


def _scaled(rows: Rows, epsilon: float, spelling: Spelling, code: Callable[[str, Rows], Rows]) -> tuple[Rows, Rows]:
    """Return the tensor that is squared, and the constant that is added to its variance."""
    values, added, passes = code("source", rows), np.array(epsilon), spelling.passes
    if spelling.is_centred and passes is not Passes.SCALED_FIRST:
        values = code("difference", values - _mean(values))
    if passes is not Passes.ONE:
        gain = code("gain", 1 / (code("size", _mean(np.abs(values))) + _least_size(rows, epsilon)))
        values, added = code("scaled", values * gain), code("epsilon", epsilon * gain**2)
    if spelling.is_centred and passes is Passes.SCALED_FIRST:
        values = code("even", values - _mean(values))
    return values, added


# Instance and group normalisation become averages of a map, differences and products by channel, and tables.


class _Groups(NamedTuple):
    """A normalisation of a map in groups of channels, with a factor and an offset for each channel.

    ``rows`` are values of the groups in the samples, if known.
    """

    source: str
    target: str
    groups: int
    factor: np.ndarray
    offset: np.ndarray
    rows: np.ndarray | None


def _spell_group(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    # A GroupNormalization has become an InstanceNormalization before, unless its number of axes is unknown.
    found = _found(graph, node) if node.op_type == "InstanceNormalization" else None
    if found is None:
        return None
    channels, *sizes = graph.spatial(found.source)
    target, ones = found.target, [1] * len(sizes)
    groups = np.repeat(np.eye(found.groups), channels // found.groups, axis=0)
    weights = (groups @ groups.T * (found.groups / channels)).reshape(channels, channels, *ones)
    held, is_together = graph.constant(f"{target}_groups", weights), found.groups < channels

    def averaged(operand: str, result: str) -> list[Step]:
        joined = [("Conv", [result, held], f"group_{result}")] if is_together else []
        return [("GlobalAveragePool", [operand], result), *joined]

    def centred(operand: str, result: str) -> list[Step]:
        mean = averaged(operand, "mean")
        return [*mean, ("Sub", [operand, mean[-1][2]], result)]

    epsilon = attributes_of(node).get("epsilon", 1e-5)
    steps = normalising(graph, target, found.source, epsilon, found.rows, centred=centred, averaged=averaged)
    if (found.factor == 1).all() and not found.offset.any():
        return spelled(node, target, steps)
    made = spelled(node, f"{target}_normalised", steps)
    weights = found.factor.reshape(channels, *ones)
    operator, operands, attributes = depthwise(graph, target, weights, found.offset, group=channels)
    return [*made, helper.make_node(operator, [made[-1].output[0], *operands], [target], node.name, **attributes)]


def _found(graph: FloatGraph, node: NodeProto) -> _Groups | None:
    if not graph.are_constant(node.input[1:]):
        return None
    factor, offset = (graph.constants[name].astype(np.float64) for name in node.input[1:3])
    source, target, groups = node.input[0], node.output[0], len(factor)
    # Exporters reshape each group of channels to one channel.
    around = graph.maker(source), graph.reader(target)
    if all(other is not None and other.op_type == "Reshape" for other in around):
        outer = around[0].input[0], around[1].output[0]
        if graph.spatial(outer[0]) and graph.shapes[outer[0]] == graph.shapes.get(outer[1]):
            source, target = outer
            for reshape in around:
                graph.drop(reshape)
    channels, *_ = graph.spatial(source) or [0]
    if not channels:
        return None
    factor, offset = (np.repeat(values, channels // groups) for values in (factor, offset))
    rows = graph.rows.get((node.input[0], tuple(range(2, len(graph.shapes[node.input[0]])))))
    return _Groups(source, target, groups, factor, offset, rows)


def as_instances(model: onnx.ModelProto) -> None:
    """Replace every GroupNormalization by an InstanceNormalization of groups; ONNX Runtime would expand it in full.

    The nodes are Reshape, InstanceNormalization, Reshape, Mul and Add, on a map with a channel for each group. Before
    operator set 21 each group, not each channel, has a factor and an offset.
    """
    found = True
    # Tensors after it have shapes once it has been replaced.
    while found and any(node.op_type == "GroupNormalization" for node in model.graph.node):
        inferred = onnx.shape_inference.infer_shapes(model).graph
        ranks = {
            value.name: len(value.type.tensor_type.shape.dim)
            for value in (*inferred.input, *inferred.value_info, *inferred.output)
        }
        nodes: list[NodeProto] = []
        for node in model.graph.node:
            rank = ranks.get(node.input[0], 0) if node.op_type == "GroupNormalization" else 0
            nodes += _as_instances(model, node, rank) if rank > 2 else [copy.deepcopy(node)]
        found = len(nodes) > len(model.graph.node)
        set_nodes(model.graph, nodes)


def _as_instances(model: onnx.ModelProto, node: NodeProto, rank: int) -> list[NodeProto]:
    attributes, name = attributes_of(node), node.output[0]
    groups = int(attributes["num_groups"])
    arrays = {
        "split": np.array([0, groups, -1], np.int64),
        "ones": np.ones(groups, np.float32),
        "zeros": np.zeros(groups, np.float32),
        "along": np.array([-1, *[1] * (rank - 2)], np.int64),
    }
    model.graph.initializer.extend(numpy_helper.from_array(array, f"{name}_{key}") for key, array in arrays.items())
    source, factor, offset = node.input
    has_own = operator_set(model) >= 21
    inner = ["apart", *([f"{name}_ones", f"{name}_zeros"] if has_own else [factor, offset])]
    steps = [
        ("Reshape", [source, f"{name}_split"], "apart"),
        ("InstanceNormalization", inner, "apart_normalised"),
        ("Shape", [source], "shape"),
        ("Reshape", ["apart_normalised", "shape"], "normalised"),
    ]
    if has_own:
        steps += [
            ("Reshape", [factor, f"{name}_along"], "factors"),
            ("Mul", ["normalised", "factors"], "scaled"),
            ("Reshape", [offset, f"{name}_along"], "offsets"),
            ("Add", ["scaled", "offsets"], "whole"),
        ]
    made = spelled(node, name, steps)
    made[1].attribute.append(helper.make_attribute("epsilon", attributes.get("epsilon", 1e-5)))
    made[1].name = node.name
    return made


GROUP_NORMALISATION = Rewriting(
    "instance or group normalisation as averages, products and tables",
    "Means, differences, variances and factors have a scale each; in two passes where sizes differ much.",
    _spell_group,
    ("GroupNormalization", "InstanceNormalization"),
)


# Layer normalisation over the last axis becomes products with constant matrices, a product of activations, and tables.
#
# RMS normalisation is the same without the subtraction of the mean.

#: The greatest magnitude of weight codes.
_GREATEST_CODE = 127
#: Greatest leak, 40 dB, with which the mean is subtracted by weights: that saves a layer, but the codes of a row do not
#: add up to 0, and from 256 elements on all but one of them are 0.
_MOST_LEAK = 1e-4


def _spell_layer(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    shape, attributes = graph.shapes.get(node.input[0], []), attributes_of(node)
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
    """Return the power of the mean that int8 weights leave when they subtract it, relative to that of the
    differences."""
    codes = np.rint(without / np.abs(without).max() * _GREATEST_CODE)
    left = rows.mean(axis=1) * codes[0].sum() / codes[0, 0]
    return float(np.square(left).sum() / max(rows.var(axis=1).sum(), np.finfo(np.float32).tiny))


LAYER_NORMALISATION = Rewriting(
    "layer or RMS normalisation as products and tables",
    "Difference, variance and factors have a scale each; in two passes where sizes differ much.",
    _spell_layer,
    ("LayerNormalization", "RMSNormalization"),
)


class _Written(NamedTuple):
    """A normalisation that is written out: its operator, operands, attributes, and all of its nodes in order."""

    operator: str
    source: str
    factor: np.ndarray
    offset: np.ndarray
    epsilon: float
    nodes: list[NodeProto]


def _spell_spelled(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    """Replace a normalisation that is written out, as by PyTorch below operator set 17, Paddle, TensorFlow and JAX."""
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
    made = _spell_layer(graph, whole)
    if made is not None:
        for other in found.nodes:
            if other is not node:
                graph.drop(other)
    return made


def _written_out(graph: FloatGraph, node: NodeProto) -> _Written | None:
    """Return the normalisation that begins with this mean, if there is one whose inner tensors have no other
    readers."""
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
    """Return the rest of a normalisation after its variance: ``centred`` divided by its root, factors and offsets."""
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
    """Return the only reader of a tensor, if it computes the reciprocal."""
    quotient = _only(graph, name, "Div")
    if quotient is not None:
        one = graph.constants.get(quotient.input[0])
        return quotient if one is not None and one.size == 1 and one.reshape(()) == 1 else None
    return _only(graph, name, "Reciprocal")


def _only(graph: FloatGraph, name: str, operator: str) -> NodeProto | None:
    """Return the only reader of a tensor, if it is one of these operators."""
    reader = graph.reader(name)
    return reader if reader is not None and reader.op_type == operator else None


def _other(graph: FloatGraph, node: NodeProto, name: str) -> np.ndarray | None:
    """Return the constant that a node combines a tensor with."""
    return next((graph.constants[one] for one in node.input if one != name and one in graph.constants), None)


def _is_square(graph: FloatGraph, node: NodeProto, name: str) -> bool:
    if node.op_type == "Mul":
        return list(node.input) == [name, name]
    exponent = graph.constants.get(node.input[1]) if node.op_type == "Pow" else None
    return exponent is not None and exponent.size == 1 and exponent.reshape(()) == 2


def _is_of_last_axis(graph: FloatGraph, node: NodeProto) -> bool:
    """Return whether a ReduceMean averages the last axis, and keeps it."""
    attributes, rank = attributes_of(node), len(graph.shapes.get(node.input[0], []))
    # Axes are an operand since operator set 18.
    axes = graph.constants.get(node.input[1]) if len(node.input) > 1 else attributes.get("axes")
    return bool(rank and axes is not None and attributes.get("keepdims", 1)) and [a % rank for a in axes] == [rank - 1]


def _is_of_channels(graph: FloatGraph, values: np.ndarray, source: str) -> bool:
    """Return whether a constant has a value for each element of the last axis, or one for all."""
    return values.size in (1, graph.shapes[source][-1]) and values.shape[-1:] in ((), (values.size,))


SPELLED_LAYER_NORMALISATION = Rewriting(
    "layer or RMS normalisation that was written out, as products and tables",
    LAYER_NORMALISATION.change,
    _spell_spelled,
    ("ReduceMean",),
)
