"""Evaluate a quantised graph with the golden functions, to the codes that the accelerator computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...golden.numerics.planes import from_planes, planes
from ..model.model import Model
from . import Graph, Int8, Layer, Tensor, View
from .geometry import from_codes, looked_up, to_codes

#: Axes of the codes of several samples.
_SEVERAL = 4


def evaluate(graph: Graph, inputs: Mapping[str, Int8]) -> dict[str, Int8]:
    """Evaluate all layers, for one sample or for several at once.

    Parameters
    ----------
    graph : Graph
    inputs : mapping of str to int8[..., height, width, channels]
        Codes of every input of the graph; of several samples they begin with an axis for these.

    Returns
    -------
    dict of str to int8[..., height, width, channels]
        Codes of every tensor, fused ones and inputs included.

    Raises
    ------
    ValueError
        If the names or shapes are not those of the graph's inputs.
    """
    if inputs.keys() != set(graph.inputs):
        raise ValueError(f"inputs must be {sorted(graph.inputs)}, not {sorted(inputs)}")
    for name, codes in inputs.items():
        _check_shape(graph, name, codes.shape[-3:] if codes.ndim == _SEVERAL else codes.shape)
    # In memory as layers take them in the least time, and give them.
    values = {name: from_planes(np.ascontiguousarray(planes(codes)), codes.ndim) for name, codes in inputs.items()}
    for layer in graph.layers:
        values |= layer.evaluate(values, graph.tensors)
    return values


def outputs_of(graph: Graph, samples: Sequence[Sequence[Int8]]) -> list[list[Int8]]:
    """Codes of the graph's outputs for each sample, all of which are evaluated together.

    Parameters
    ----------
    graph : Graph
    samples : sequence of sequences of int8[height, width, channels]
        At least one: codes of the graph's inputs.

    Returns
    -------
    list of lists of int8[height, width, channels]

    Raises
    ------
    ValueError
        If the shapes are not those of the graph's inputs.
    """
    stacks = {}
    for name, given in zip(graph.inputs, zip(*samples, strict=True), strict=True):
        for codes in given:
            _check_shape(graph, name, codes.shape)
        stacks[name] = from_planes(np.stack([codes.transpose(2, 0, 1) for codes in given], axis=-1), _SEVERAL)
    values = evaluate(graph, stacks)
    outputs = [np.ascontiguousarray(values[name]) for name in graph.outputs]
    return [list(of_sample) for of_sample in zip(*outputs, strict=True)]


def _check_shape(graph: Graph, name: str, shape: tuple[int, ...]) -> None:
    wanted = graph.tensors[name].shape
    if shape != wanted:
        raise ValueError(f"{name} must have the shape {wanted}, not {shape}")


def to_onnx(view: View, codes: Int8) -> np.ndarray:
    """Convert ``codes`` int8[height, width, channels] to the ONNX tensor of a view, int8 or uint8 of ``view.shape``."""
    top, left, bottom, right = view.pads
    sides = ((top, bottom), (left, right), (0, 0))
    padded = np.pad(looked_up(codes, view.table), sides, constant_values=np.int8(view.border))
    array = np.ascontiguousarray(padded.transpose(view.axes)).reshape(-1)
    array = (array if view.order is None else padded.reshape(-1)[view.order]).reshape(view.shape)
    return from_codes(array, np.dtype(np.uint8 if view.unsigned else np.int8))


def from_onnx(view: View, shape: tuple[int, int, int], array: np.ndarray) -> Int8:
    """Convert an ONNX tensor to codes int8[height, width, channels], of ``shape``; the inverse of :func:`to_onnx`.

    The view has neither padding nor a table.

    Raises
    ------
    ValueError
        If the array does not have the type and shape of the view.
    """
    dtype = np.dtype(np.uint8 if view.unsigned else np.int8)
    if array.dtype != dtype or array.shape != view.shape:
        raise ValueError(f"{view.name} must be {dtype}{list(view.shape)}, not {array.dtype}{list(array.shape)}")
    permuted = to_codes(array).reshape([shape[axis] for axis in view.axes])
    return np.ascontiguousarray(permuted.transpose(np.argsort(view.axes)))


# Rows of text: every layer of a network, and where it runs.


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation.

    Attributes
    ----------
    layer, kind : str
        The ONNX node, and its kind in a few words.
    input_shape, output_shape : tuple of int
        (height, width, channels); empty on the host.
    where : str
        "accelerator" or "host".
    """

    layer: str
    kind: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    where: str


def describe(graph: Graph) -> list[OperationRow]:
    """List every operation of the network in order of execution: head on the host, layers, tail on the host."""
    layers = [_row(layer, *graph.ends(layer)) for layer in graph.layers]
    return [*_host_rows(graph.head), *layers, *_host_rows(graph.tail)]


def _row(layer: Layer, source: Tensor, target: Tensor) -> OperationRow:
    return OperationRow(layer.name, layer.describe(source, target), source.shape, target.shape, "accelerator")


def _host_rows(part: Model) -> list[OperationRow]:
    return [OperationRow(node.name, node.op_type, (), (), "host") for node in part.proto.graph.node] if part else []
