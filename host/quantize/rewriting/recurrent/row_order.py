"""Moves of whole rows around a sequence, as exporters write them: followed from a tensor as far as rows stay whole."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ..float_graph import FloatGraph, given

Numbers = npt.NDArray[np.int64]

_RESHAPING = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")


def rows_of(numbers: Numbers, width: int) -> list[int] | None:
    """Which rows of so many elements a tensor of numbered elements has, in order; None if one is not whole."""
    if numbers.size == 0 or numbers.size % width:
        return None
    rows = numbers.reshape(-1, width)
    is_whole = (rows[:, :1] % width == 0).all() and (rows == rows[:, :1] + np.arange(width)).all()
    return [int(first) // width for first in rows[:, 0]] if is_whole else None


def follow(graph: FloatGraph, name: str, width: int) -> tuple[str, list[int], list[NodeProto]]:
    """Follow a tensor through moves as long as its rows stay whole.

    Returns
    -------
    name : str
        Of the last tensor.
    rows : list of int
        Those of the first tensor that it has.
    passed : list of NodeProto
        The nodes that have been passed.
    """
    shape = graph.shapes[name]
    numbers = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    rows, passed = rows_of(numbers, width) or [], []
    while (reader := graph.reader(name)) is not None:
        moved = _moved(graph, reader, name, numbers)
        found = None if moved is None else rows_of(moved, width)
        if moved is None or found is None:
            break
        numbers, rows, name = moved, found, reader.output[0]
        passed.append(reader)
    return name, rows, passed


def unmoved(graph: FloatGraph, name: str) -> tuple[str, list[NodeProto]]:
    """The tensor that one has all elements of, in the same order, and the nodes in between."""
    passed: list[NodeProto] = []
    while (maker := graph.maker(name)) is not None and graph.shapes.get(maker.input[0]):
        shape = graph.shapes[maker.input[0]]
        numbers = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        moved = _moved(graph, maker, maker.input[0], numbers)
        if moved is None or not np.array_equal(moved.reshape(-1), numbers.reshape(-1)):
            break
        name = maker.input[0]
        passed.append(maker)
    return name, passed


def _moved(graph: FloatGraph, node: NodeProto, name: str, numbers: Numbers) -> Numbers | None:
    """The numbered elements of what a node makes of a tensor; None if it moves no elements, or not always alike."""
    if (
        node.input[0] != name
        or not graph.are_constant(node.input[1:])
        or not all(graph.shapes.get(node.output[0], [0]))
    ):
        return None
    attributes = given(node)
    if node.op_type in _RESHAPING:
        return numbers.reshape(graph.shapes[node.output[0]])
    if node.op_type == "Transpose":
        return numbers.transpose(attributes.get("perm", tuple(range(numbers.ndim))[::-1]))
    if node.op_type == "Gather":
        return np.take(numbers, graph.constants[node.input[1]], axis=attributes.get("axis", 0))
    if node.op_type == "Slice":
        bounds = [graph.constants[operand].reshape(-1).tolist() for operand in node.input[1:]]
        starts, ends = bounds[:2]
        axes = bounds[2] if len(bounds) > 2 else range(len(starts))
        strides = bounds[3] if len(bounds) > 3 else [1] * len(starts)
        if min(strides) < 1:
            return None
        for start, end, axis, stride in zip(starts, ends, axes, strides, strict=True):
            numbers = numbers[(*[slice(None)] * (axis % numbers.ndim), slice(start, end, stride))]
        return numbers
    return None
