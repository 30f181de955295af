"""Evaluate a quantised graph with the golden functions: the codes of every tensor, as the accelerator computes them."""
from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..golden.convolution import convolve
from ..golden.pooling import pool_maximum
from ..golden.requant import pack_parameters, requantise
from ..golden.tables import apply_table
from .graph import Convolution, Graph, Int8, Layer, MaxPool, Tensor, View
from .tabulate import from_codes, to_codes


def evaluate(graph: Graph, inputs: Mapping[str, Int8]) -> dict[str, Int8]:
    """Evaluate all layers.

    Parameters
    ----------
    graph : Graph
    inputs : mapping of str to int8[height, width, channels]
        Codes of every input of the graph.

    Returns
    -------
    dict of str to int8[height, width, channels]
        Codes of every tensor, fused ones and inputs included.

    Raises
    ------
    ValueError
        If the names or shapes are not those of the graph's inputs.
    """
    if inputs.keys() != set(graph.inputs):
        raise ValueError(f"inputs must be {sorted(graph.inputs)}, not {sorted(inputs)}")
    for name, codes in inputs.items():
        if codes.shape != graph.tensors[name].shape:
            raise ValueError(f"{name} must have the shape {graph.tensors[name].shape}, not {codes.shape}")
    values = dict(inputs)
    for layer in graph.layers:
        values |= evaluate_layer(layer, values, graph.tensors)
    return values


def evaluate_layer(layer: Layer, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
    """Evaluate one layer on the codes in ``values``: its output, and the tensor in front of a fused table."""
    codes, window = values[layer.input], getattr(layer, "window", None)
    if isinstance(layer, Convolution):
        inner = layer.requantised or layer.output
        accumulators = convolve(codes, layer.weights, layer.bias, zero_point=tensors[layer.input].zero_point,
                                stride=window.stride, dilation=window.dilation, pads=window.pads)
        parameters = pack_parameters(np.zeros_like(layer.bias), layer.multiplier)
        result = requantise(accumulators, parameters, tensors[inner].zero_point, layer.low, layer.high)
    elif isinstance(layer, MaxPool):
        inner = layer.pooled or layer.output
        result = pool_maximum(codes, kernel=window.kernel, stride=window.stride, dilation=window.dilation,
                              pads=window.pads)
    else:
        return {layer.output: apply_table(codes, layer.table)}
    return {inner: result} if layer.table is None else {inner: result, layer.output: apply_table(result, layer.table)}


def to_onnx(view: View, codes: Int8) -> np.ndarray:
    """The ONNX tensor of a view, int8 or uint8 of ``view.shape``, that ``codes`` int8[height, width, channels] are."""
    array = np.ascontiguousarray(codes.transpose(view.axes)).reshape(view.shape)
    return from_codes(array, np.dtype(np.uint8 if view.unsigned else np.int8))


def from_onnx(view: View, shape: tuple[int, int, int], array: np.ndarray) -> Int8:
    """The codes int8[height, width, channels], of ``shape``, of an ONNX tensor; the inverse of :func:`to_onnx`.

    Raises
    ------
    ValueError
        If the array has not the type and shape of the view.
    """
    dtype = np.dtype(np.uint8 if view.unsigned else np.int8)
    if array.dtype != dtype or array.shape != view.shape:
        raise ValueError(f"{view.name} must be {dtype}{list(view.shape)}, not {array.dtype}{list(array.shape)}")
    permuted = to_codes(array).reshape([shape[axis] for axis in view.axes])
    return np.ascontiguousarray(permuted.transpose(np.argsort(view.axes)))
