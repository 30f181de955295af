"""Operators that exporters write out (sums, softmax, and some normalisations) in the form of other rewritings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from ...model.onnx_graph import attributes_of
from .axes import reduced_axes
from .float_graph import FloatGraph, Rewriting

#: Operators that change the shape only, provided that the number of elements stays the same.
_SHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Identity")
#: The first operator set in which the axes of a ReduceMean are an operand.
_AXES_AS_OPERAND = 18


def _mean(
    graph: FloatGraph, node: NodeProto, source: str, result: str, axes: Sequence[int], *, keeps: bool = True
) -> NodeProto:
    """Return a mean over axes, in place of a node or of a part of it."""
    name = f"{node.name}_{result}"
    if graph.opset < _AXES_AS_OPERAND:
        return helper.make_node("ReduceMean", [source], [result], name, axes=[*axes], keepdims=int(keeps))
    held = graph.constant(f"{result}_axes", np.array(axes, np.int64))
    return helper.make_node("ReduceMean", [source, held], [result], name, keepdims=int(keeps))


def _single(graph: FloatGraph, name: str) -> float | None:
    """Return the value of a constant with one element."""
    held = graph.constants.get(name)
    return float(held.reshape(())) if held is not None and held.size == 1 and held.dtype.kind == "f" else None


def _sum(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    axes, shape = reduced_axes(graph, node), graph.shapes.get(node.input[0], [])
    # A mean of integers would be rounded.
    if not axes or 0 in axes or not all(shape[axis] for axis in axes) or not graph.is_float(node.input[0]):
        return None
    factor, output = float(np.prod([shape[axis] for axis in axes])), node.output[0]
    scaled = graph.reader(output)
    if (
        scaled is not None
        and scaled.op_type in ("Mul", "Div")
        and (output == scaled.input[0] or scaled.op_type == "Mul")
    ):
        other = _single(graph, next((name for name in scaled.input if name != output), ""))
        if other:
            factor, output = factor * (other if scaled.op_type == "Mul" else 1 / other), scaled.output[0]
            graph.drop(scaled)
    is_mean = np.isclose(factor, 1, rtol=1e-6, atol=0)
    mean = output if is_mean else f"{node.output[0]}_mean"
    made = [_mean(graph, node, node.input[0], mean, axes, keeps=bool(attributes_of(node).get("keepdims", 1)))]
    if not is_mean:
        held = graph.constant(f"{node.output[0]}_count", np.array(factor))
        made.append(helper.make_node("Mul", [mean, held], [output], node.name))
    return made


class _Pattern:
    """A pattern of nodes, which are found one by one and removed together."""

    def __init__(self, graph: FloatGraph):
        self.graph = graph
        self.nodes: list[NodeProto] = []

    def take(self, node: NodeProto) -> NodeProto:
        """Add a node to the pattern."""
        self.nodes.append(node)
        return node

    def maker(self, name: str, *operators: str) -> NodeProto | None:
        """Return the node that computes a tensor, before operators that change the shape only, if it is one of
        ``operators``."""
        node, passed = self.graph.producer.get(name), []
        while node is not None and node.op_type in _SHAPES and self._keeps_elements(node):
            passed.append(node)
            node = self.graph.producer.get(node.input[0])
        if node is None or node.op_type not in operators:
            return None
        self.nodes += [*passed, node]
        return node

    def reader(self, name: str, *operators: str) -> NodeProto | None:
        """Return the node that reads a tensor, after operators that change the shape only, if it is one of
        ``operators``."""
        node, passed = self.graph.reader(name), []
        while node is not None and node.op_type in _SHAPES and self._keeps_elements(node):
            passed.append(node)
            node = self.graph.reader(node.output[0])
        if node is None or node.op_type not in operators:
            return None
        self.nodes += [*passed, node]
        return node

    def is_closed(self, result: str) -> bool:
        """Return whether no other node reads the pattern's tensors, except for the result."""
        inside = {id(node) for node in self.nodes}
        return all(
            name == result
            or (not self.graph.is_output(name) and all(id(one) in inside for one in self.graph.readers(name)))
            for node in self.nodes
            for name in node.output
        )

    def drop(self, kept: NodeProto) -> None:
        """Remove the nodes, except for the one that is replaced."""
        for node in self.nodes:
            if node is not kept:
                self.graph.drop(node)

    def _keeps_elements(self, node: NodeProto) -> bool:
        before, after = (self.graph.shapes.get(name, [0]) for name in (node.input[0], node.output[0]))
        return np.prod(before) == np.prod(after) != 0


def _other(node: NodeProto, name: str) -> str:
    """Return the other operand of a node; the same one if there is no other."""
    return next((operand for operand in node.input if operand != name), name)


def _squared(pattern: _Pattern, name: str) -> str:
    """Return the tensor that a tensor is the square of, or an empty string."""
    square = pattern.maker(name, "Mul", "Pow")
    if square is None:
        return ""
    is_square = len({*square.input}) == 1 if square.op_type == "Mul" else _single(pattern.graph, square.input[1]) == 2
    return square.input[0] if is_square else ""


def _fast_variance(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    """Replace a normalisation with JAX's variance, the mean of squares less the square of the mean."""
    axes, shape, source = reduced_axes(graph, node), graph.shapes.get(node.input[0], []), node.input[0]
    if len(axes) != 1 or axes[0] == 0 or not all(shape):
        return None
    axis, pattern = axes[0], _Pattern(graph)
    pattern.take(node)
    variance = next((one for one in graph.nodes if one.op_type == "Sub" and _is_variance(graph, one, node)), None)
    if variance is None:
        return None
    _take_variance(pattern, variance, source)
    tail = pattern.reader(variance.output[0], "Max", "Relu", "Add")
    if tail is not None and tail.op_type != "Add":
        if tail.op_type == "Max" and _single(graph, _other(tail, _fed(pattern, tail))) != 0:
            return None
        tail = pattern.reader(tail.output[0], "Add")
    epsilon = tail and _single(graph, _other(tail, _fed(pattern, tail)))
    root = tail and pattern.reader(tail.output[0], "Sqrt")
    if root is None or epsilon is None:
        return None
    found = _quotient(pattern, root, node)
    if found is None:
        return None
    factor, last = found
    offset = graph.reader(last.output[0])
    added = (
        _along(graph, offset, last.output[0], shape, axis) if offset is not None and offset.op_type == "Add" else None
    )
    if offset is not None and added is not None:
        last = pattern.take(offset)
    result = last.output[0]
    if not pattern.is_closed(result) or graph.shapes.get(result) != shape:
        return None
    pattern.drop(node)
    return _as_rows(graph, node, result, axis, epsilon, [("Mul", factor), ("Add", added)])


def _fed(pattern: _Pattern, node: NodeProto) -> str:
    """Return the operand of a node that is not constant."""
    return next((name for name in node.input if name not in pattern.graph.constants), "")


def _is_variance(graph: FloatGraph, node: NodeProto, mean: NodeProto) -> bool:
    return _take_variance(_Pattern(graph), node, mean.input[0], mean)


def _take_variance(pattern: _Pattern, node: NodeProto, source: str, mean: NodeProto | None = None) -> bool:
    """Add the nodes of a difference; return whether it is the mean of squares less the square of a mean."""
    pattern.take(node)
    of_squares = pattern.maker(node.input[0], "ReduceMean")
    if of_squares is None or _squared(pattern, of_squares.input[0]) != source:
        return False
    root = _squared(pattern, node.input[1])
    found = pattern.maker(root, "ReduceMean") if root else None
    graph = pattern.graph
    return found is not None and (
        mean is None or (found is mean and reduced_axes(graph, of_squares) == reduced_axes(graph, mean))
    )


def _quotient(pattern: _Pattern, root: NodeProto, mean: NodeProto) -> tuple[np.ndarray | None, NodeProto] | None:
    """Return the factor of each element along the axis, if there is one, and the node that has multiplied by it."""
    graph, source = pattern.graph, mean.input[0]
    shape, axis = graph.shapes[source], reduced_axes(graph, mean)[0]
    inverse = pattern.reader(root.output[0], "Reciprocal", "Div")
    factor, name, last = None, "", inverse
    if inverse is None:
        return None
    if inverse.op_type == "Reciprocal" or _single(graph, inverse.input[0]) == 1:
        name = inverse.output[0]
        last = pattern.reader(name, "Mul")
        factor = _along(graph, last, name, shape, axis) if last is not None else None
        if last is not None and factor is not None:
            name = last.output[0]
            last = pattern.reader(name, "Mul")
        centred = _other(last, name) if last is not None else ""
    else:
        centred = inverse.input[0]
    difference = pattern.maker(centred, "Sub") if centred else None
    if last is None or difference is None or difference.input[0] != source:
        return None
    if pattern.maker(difference.input[1], "ReduceMean") is not mean:
        return None
    kept = [1 if at == axis else size for at, size in enumerate(shape)]
    if graph.shapes.get(difference.input[1]) != kept:
        return None
    product = graph.reader(last.output[0])
    if factor is None and product is not None and product.op_type == "Mul":
        factor = _along(graph, product, last.output[0], shape, axis)
        last = pattern.take(product) if factor is not None else last
    return factor, last


def _along(graph: FloatGraph, node: NodeProto | None, name: str, shape: Sequence[int], axis: int) -> np.ndarray | None:
    """Return the operand that a node combines a tensor with: a value for each element of an axis, or one for all."""
    held = graph.constants.get(_other(node, name)) if node is not None else None
    if held is None or held.dtype.kind != "f" or held.ndim > len(shape):
        return None
    aligned = (*[1] * (len(shape) - held.ndim), *held.shape)
    if any(size not in (1, shape[at] if at == axis else 1) for at, size in enumerate(aligned)):
        return None
    return np.broadcast_to(held.reshape(-1), shape[axis])


def _as_rows(
    graph: FloatGraph,
    node: NodeProto,
    target: str,
    axis: int,
    epsilon: float,
    ends: Sequence[tuple[str, np.ndarray | None]],
) -> list[NodeProto]:
    """Write a normalisation of an axis in PyTorch's form, along the last axis."""
    source, last = node.input[0], len(graph.shapes[node.input[0]]) - 1
    order = [at for at in range(last + 1) if at != axis] + [axis]
    made: list[NodeProto] = []

    def add(operator: str, operands: Sequence[str], role: str, **attributes: Any) -> str:
        name = f"{target}_{role}"
        made.append(helper.make_node(operator, operands, [name], f"{node.name}_{role}", **attributes))
        return name

    def average(operand: str, role: str) -> str:
        made.append(_mean(graph, node, operand, f"{target}_{role}", [last]))
        return made[-1].output[0]

    rows = source if axis == last else add("Transpose", [source], "rows", perm=order)
    difference = add("Sub", [rows, average(rows, "row_mean")], "difference")
    variance = average(add("Mul", [difference, difference], "square"), "row_variance")
    positive = add("Add", [variance, graph.constant(f"{target}_row_epsilon", np.array(epsilon))], "positive")
    result = add("Div", [difference, add("Sqrt", [positive], "deviation")], "quotient")
    for operator, values in ends:
        if values is not None:
            result = add(operator, [result, graph.constant(f"{target}_row_{operator}", values)], f"after_{operator}")
    if axis != last:
        add("Transpose", [result], "back", perm=[int(at) for at in np.argsort(order)])
    made[-1].output[0] = target
    return made


def _turned_difference(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    """Move a Transpose back before a normalisation; ONNX Runtime had moved it to the readers of the difference."""
    axes, difference = reduced_axes(graph, node), graph.reader(node.output[0])
    source = node.input[0]
    keeps = attributes_of(node).get("keepdims", 1)
    if len(axes) != 1 or not keeps or difference is None or difference.op_type != "Sub":
        return None
    turned = graph.reader(difference.output[0])
    if [*difference.input] != [source, node.output[0]] or turned is None or turned.op_type != "Transpose":
        return None
    attributes: dict[str, Any] = attributes_of(turned)
    order = list(attributes.get("perm", range(len(graph.shapes[source]))[::-1]))
    if order[0] != 0:
        return None
    name = turned.output[0]
    moved = helper.make_node("Transpose", [source], [f"{name}_source"], turned.name, perm=order)
    mean = _mean(graph, node, moved.output[0], f"{name}_row_mean", [order.index(axes[0])])
    graph.drop(difference)
    graph.drop(turned)
    again = helper.make_node("Sub", [moved.output[0], mean.output[0]], [name], difference.name)
    return [moved, mean, again]


def _softmax(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    """Replace an exponential that is divided by its sum by a softmax, whatever is subtracted before."""
    pattern, raised = _Pattern(graph), node.output[0]
    pattern.take(node)
    readers = {reader.op_type: reader for reader in graph.readers(raised)}
    if {*readers} != {"ReduceSum", "Div"} or len(graph.readers(raised)) != 2:
        return None
    total, quotient = readers["ReduceSum"], pattern.take(readers["Div"])
    axes, shape = reduced_axes(graph, total), graph.shapes.get(raised, [])
    if len(axes) != 1 or axes[0] == 0 or quotient.input[0] != raised:
        return None
    kept = [1 if at == axes[0] else size for at, size in enumerate(shape)]
    if pattern.maker(quotient.input[1], "ReduceSum") is not total or graph.shapes.get(quotient.input[1]) != kept:
        return None
    source = node.input[0]
    distance = graph.maker(source)
    if distance is not None and distance.op_type == "Sub" and graph.shapes.get(distance.input[1]) == kept:
        greatest = pattern.maker(distance.input[1], "ReduceMax", "Max")
        if greatest is not None and greatest.op_type == "Max":
            fed = _fed(pattern, greatest)
            greatest = pattern.maker(fed, "ReduceMax") if _single(graph, _other(greatest, fed)) == -np.inf else None
        if greatest is not None and greatest.input[0] == distance.input[0] and reduced_axes(graph, greatest) == axes:
            pattern.take(distance)
            source = distance.input[0]
    if not pattern.is_closed(quotient.output[0]):
        return None
    pattern.drop(node)
    return [helper.make_node("Softmax", [source], [quotient.output[0]], quotient.name, axis=axes[0])]


def _flattened_softmax(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    """Remove the flattening of a softmax: before operator set 13 it was of a matrix, and conversion flattens its
    input."""
    before, after = graph.maker(node.input[0]), graph.reader(node.output[0])
    if before is None or after is None or before.op_type not in ("Flatten", "Reshape") or after.op_type != "Reshape":
        return None
    attributes: dict[str, Any] = attributes_of(node)
    flat, whole = (graph.shapes.get(name, []) for name in (node.input[0], before.input[0]))
    is_last = bool(flat) and attributes.get("axis", -1) % len(flat) == len(flat) - 1
    if not is_last or len(whole) < 2 or graph.shapes.get(after.output[0]) != whole or flat[-1:] != whole[-1:]:
        return None
    graph.drop(before)
    graph.drop(after)
    return [helper.make_node("Softmax", [before.input[0]], [after.output[0]], node.name, axis=len(whole) - 1)]


def _written(title: str, spell: Callable[..., list[NodeProto] | None], *operators: str) -> Rewriting:
    return Rewriting(title, "Nothing changes by itself: what it becomes is rewritten as that is.", spell, operators)


FLATTENED_SOFTMAX = _written("softmax of flattened rows as one of whole tensors", _flattened_softmax, "Softmax")
WRITTEN_SOFTMAX = _written("exponential divided by its sum as softmax", _softmax, "Exp")
SUM = _written("sum as average, times the count of elements", _sum, "ReduceSum")
FAST_VARIANCE = _written(
    "normalisation by the mean of squares less the square of the mean, as one by differences",
    _fast_variance,
    "ReduceMean",
)
TURNED_DIFFERENCE = _written("difference from a mean, transposed before it is taken", _turned_difference, "ReduceMean")
