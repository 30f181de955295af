"""Evaluate a quantised graph with the golden functions: the codes of every tensor, as the accelerator computes them."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from ..golden.addition import add
from ..golden.binary import convolve_binary, signs
from ..golden.convolution import Int32, convolve
from ..golden.elements import BINARY_BITS
from ..golden.fpc import fast_pointwise
from ..golden.pooling import pool_maximum
from ..golden.requant import pack_parameters, requantise
from ..golden.tables import apply_table
from .graph import (
    Add,
    AveragePool,
    BinaryConvolution,
    Concat,
    Convolution,
    FastPointwise,
    Graph,
    Int8,
    Layer,
    MaxPool,
    Pointwise,
    Slice,
    Tensor,
    View,
)
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


@functools.singledispatch
def evaluate_layer(layer: Layer, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
    """Evaluate one layer on the codes in ``values``: its output, and the tensor in front of a fused table.

    A kind of layer registers how: ``@evaluate_layer.register``.

    Raises
    ------
    TypeError
        If none is registered.
    """
    raise TypeError(f"{layer.name}: layer must be of a kind that has golden functions, not {type(layer).__name__}")


@evaluate_layer.register
def _(layer: Convolution, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
    inner = layer.requantised or layer.output
    result = _convolve(layer, values[layer.input], tensors[layer.input].zero_point, tensors[inner].zero_point)
    return _finished(layer, inner, result, tensors)


@evaluate_layer.register
def _(layer: BinaryConvolution, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
    inner, window, codes = layer.requantised or layer.output, layer.window, values[layer.input]
    geometry = {"stride": window.stride, "dilation": window.dilation, "pads": window.pads}
    if layer.pad:
        sums = convolve_binary(codes, layer.weights, pad_value=layer.pad, **geometry)
    else:
        # What is no binary value counts as nothing: as the sum of products has it.
        sums = convolve(codes, layer.weights, np.zeros_like(layer.bias), zero_point=0, **geometry)
    parameters = pack_parameters(layer.bias, layer.multiplier)
    return _finished(
        layer, inner, requantise(sums, parameters, tensors[inner].zero_point, layer.low, layer.high), tensors
    )


@evaluate_layer.register
def _(layer: FastPointwise, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
    result = fast_pointwise(values[layer.input], layer.zero_point, layer.stages, layer.finish)
    return _finished(layer, layer.requantised or layer.output, result, tensors)


@evaluate_layer.register
def _(layer: MaxPool, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
    window = layer.window
    result = pool_maximum(
        values[layer.input], kernel=window.kernel, stride=window.stride, dilation=window.dilation, pads=window.pads
    )
    return _finished(layer, layer.pooled or layer.output, result, tensors)


@evaluate_layer.register
def _(layer: Add, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
    first, second = (values[name] for name in layer.inputs)
    result = add(
        first,
        second,
        layer.first,
        layer.second,
        layer.fraction,
        offset=layer.offset,
        low=layer.low,
        high=layer.high,
    )
    return _finished(layer, layer.requantised or layer.output, result, tensors)


@evaluate_layer.register
def _(layer: Concat, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
    parts = zip((values[name] for name in layer.inputs), layer.tables, strict=True)
    return {layer.output: np.concatenate([_look_up(part, table) for part, table in parts], axis=2)}


@evaluate_layer.register
def _(layer: Slice, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
    return {layer.output: values[layer.input][:, :, layer.first : layer.first + layer.channels]}


@evaluate_layer.register
def _(layer: Pointwise, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
    return _finished(layer, layer.input, values[layer.input], tensors)


def _finished(
    layer: Convolution | FastPointwise | MaxPool | Add | Pointwise,
    inner: str,
    result: Int8,
    tensors: Mapping[str, Tensor],
) -> dict[str, Int8]:
    """A result by its name, and what its table, or the sign, makes of it if there is one."""
    output = _look_up(result, layer.table)
    if tensors[layer.output].bits == BINARY_BITS:
        output = signs(output)
    return {inner: result, layer.output: output}


def _convolve(layer: Convolution, codes: Int8, zero_point: int, output_zero_point: int) -> Int8:
    window = layer.window
    accumulators = convolve(
        codes,
        layer.weights,
        layer.bias,
        zero_point=zero_point,
        stride=window.stride,
        dilation=window.dilation,
        pads=window.pads,
        groups=layer.groups,
    )

    def requantised(sums: Int32, multiplier: np.ndarray) -> Int8:
        parameters = pack_parameters(np.zeros_like(layer.bias), multiplier)
        return requantise(sums, parameters, output_zero_point, layer.low, layer.high)

    if not (isinstance(layer, AveragePool) and layer.multipliers):
        return requantised(accumulators, layer.multiplier)
    # A border holds the zero point, which adds nothing to a sum: only what that is divided by differs.
    counts, result = window.counts(*codes.shape[:2]), np.empty(accumulators.shape, np.int8)
    for count, multiplier in layer.multipliers.items():
        members = counts == count
        result[members] = requantised(accumulators[members], np.full_like(layer.multiplier, multiplier))
    return result


def _look_up(codes: Int8, table: Int8 | None) -> Int8:
    return codes if table is None else apply_table(codes, table)


def to_onnx(view: View, codes: Int8) -> np.ndarray:
    """The ONNX tensor of a view, int8 or uint8 of ``view.shape``, that ``codes`` int8[height, width, channels] are."""
    top, left, bottom, right = view.pads
    sides = ((top, bottom), (left, right), (0, 0))
    padded = np.pad(_look_up(codes, view.table), sides, constant_values=np.int8(view.border))
    array = np.ascontiguousarray(padded.transpose(view.axes)).reshape(view.shape)
    return from_codes(array, np.dtype(np.uint8 if view.unsigned else np.int8))


def from_onnx(view: View, shape: tuple[int, int, int], array: np.ndarray) -> Int8:
    """The codes int8[height, width, channels], of ``shape``, of an ONNX tensor; the inverse of :func:`to_onnx`.

    The view has neither a border nor a table.

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
