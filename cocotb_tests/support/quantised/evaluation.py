"""The evaluation of quantised graphs in float32, apart from everything under test."""

from __future__ import annotations

import itertools
import math

import numpy as np

from lutterfly.golden.numerics.multiplication import PRODUCT_FRACTION_BITS
from lutterfly.host.graph import (
    Add,
    Arrange,
    AveragePool,
    BinaryConvolution,
    Concat,
    Convolution,
    ElementwiseMaximum,
    ElementwiseProduct,
    Graph,
    MatrixProduct,
    MaxPool,
    Pad,
    Rearrange,
    Slice,
    Window,
)


def evaluate_float(graph: Graph, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor that a layer writes, int8[height, width, channels], by the formulas of ``docs/numerics.md`` in
    float32."""
    tensors = dict(inputs)
    for layer in graph.layers:
        codes = tensors[layer.input]
        if isinstance(layer, Convolution | AveragePool | Pad):
            zero_point = graph.tensors[layer.input].zero_point
            border = layer.pad if isinstance(layer, BinaryConvolution) else 0
            taps = _taps(codes.astype(np.int64) - zero_point, layer.window, border)
            inputs = layer.weights.shape[3]
            acc = np.stack(
                [
                    np.einsum("tyxc,tc->yx", taps[..., group * inputs : (group + 1) * inputs], kernel)
                    for group, kernel in (
                        (
                            output * layer.groups // len(layer.weights),
                            weights.reshape(len(taps), inputs).astype(np.int64),
                        )
                        for output, weights in enumerate(layer.weights)
                    )
                ],
                axis=-1,
            )
            acc = (acc + layer.bias).astype(np.int32)
            target = graph.tensors[layer.epilogue.inner or layer.output].zero_point
            multiplier = layer.multiplier
            if isinstance(layer, AveragePool) and layer.multipliers:
                counts = counts_inside(layer.window, tensors[layer.input].shape[:2])
                multiplier = np.vectorize(layer.multipliers.get, otypes=[np.float32])(counts)[..., None]
            scaled = acc.astype(np.float32) * multiplier
            codes = (
                np.rint(np.clip(scaled, layer.epilogue.low - target, layer.epilogue.high - target)).astype(np.int64)
                + target
            ).astype(np.int8)
        elif isinstance(layer, Add):
            first, second = (
                table[tensors[name].astype(np.int64) + 128]
                for name, table in zip(layer.inputs, (layer.first, layer.second), strict=True)
            )
            total = (first + second).astype(np.float32) * np.float32(2.0**-layer.fraction)
            codes = np.clip(np.rint(total) + layer.offset, layer.epilogue.low, layer.epilogue.high).astype(np.int8)
        elif isinstance(layer, ElementwiseProduct):
            differences = (
                tensors[name].astype(np.int64) - zero_point
                for name, zero_point in zip(layer.inputs, layer.zero_points, strict=True)
            )
            acc = (math.prod(differences) * 2**PRODUCT_FRACTION_BITS + layer.scaling.bias).astype(np.float32)
            rounded = np.rint(acc * layer.scaling.scale) + layer.scaling.zero_point
            codes = np.clip(rounded, layer.epilogue.low, layer.epilogue.high).astype(np.int8)
        elif isinstance(layer, MatrixProduct):
            # The inputs of an output are the elements of the second activation in an order of its own.
            matrix = tensors[layer.inputs[1]].astype(np.int64).reshape(-1)[layer.order]
            target = graph.tensors[layer.epilogue.inner or layer.output].zero_point
            scaled = np.einsum("yxc,oc->yxo", codes.astype(np.int64), matrix).astype(np.float32) * layer.multiplier
            codes = np.clip(np.rint(scaled) + target, layer.epilogue.low, layer.epilogue.high).astype(np.int8)
        elif isinstance(layer, ElementwiseMaximum):
            codes = np.maximum(*(tensors[name] for name in layer.inputs))
        elif isinstance(layer, Concat):
            looked_up = [
                tensors[name] if table is None else table[tensors[name].astype(np.int64) + 128]
                for name, table in zip(layer.inputs, layer.tables, strict=True)
            ]
            codes = np.concatenate(looked_up, axis=2)
        elif isinstance(layer, Slice):
            codes = codes[..., layer.first : layer.first + layer.channels]
        elif isinstance(layer, Arrange):
            codes = _element_by_element(layer, [tensors[name] for name in layer.inputs], graph)
        elif isinstance(layer, Rearrange):
            codes = _arranged(layer, codes)
        elif isinstance(layer, MaxPool):
            codes = _taps(codes.astype(np.int64), layer.window, -128).max(axis=0).astype(np.int8)
        if layer.table is not None:
            codes = layer.table[codes.astype(np.int64) + 128]
        if graph.tensors[layer.output].bits == 1:
            codes = np.where(codes < 0, -1, 1).astype(np.int8)
        tensors[layer.output] = codes
    return tensors


def _element_by_element(layer: Arrange, sources: list[np.ndarray], graph: Graph) -> np.ndarray:
    """Each element of each piece by its place."""
    height, width, channels = graph.tensors[layer.output].shape
    found = np.full((height, width, channels), 99, np.int16)
    for part in layer.pieces:
        rows = range(part.written.row, height, part.written.steps[0])
        columns = range(part.written.column, width, part.written.steps[1])
        for (i, row), (j, column), k in itertools.product(enumerate(rows), enumerate(columns), range(part.channels)):
            if part.size and (i >= part.size[0] or j >= part.size[1]):
                continue
            if part.code is not None:
                found[row, column, part.target + k * part.spread] = part.code
                continue
            ways = zip((i, j, k), part.vectors, strict=True)
            start = np.array([part.read.row, part.read.column, part.first])
            code = sources[part.source][tuple(start + sum(np.multiply(count, way) for count, way in ways))]
            found[row, column, part.target + k * part.spread] = (
                code if part.table is None else part.table[int(code) + 128]
            )
    return found.astype(np.int8)


def _arranged(layer: Rearrange, codes: np.ndarray) -> np.ndarray:
    """By the formulas of ONNX' operators, on a map without channels in front."""
    height, width, channels = codes.shape
    down, across = layer.window.up
    if layer.title == "nearest upsampling":
        return codes.repeat(down, axis=0).repeat(across, axis=1)
    if layer.title == "depth to space":
        of_pixel = channels // (down * across)
        if layer.pieces[0].step == 1:
            split = codes.reshape(height, width, down, across, of_pixel)
        else:
            split = codes.reshape(height, width, of_pixel, down, across).transpose(0, 1, 3, 4, 2)
        return split.transpose(0, 2, 1, 3, 4).reshape(height * down, width * across, of_pixel)
    if layer.title == "space to depth":
        down, across = layer.window.stride
        split = codes.reshape(height // down, down, width // across, across, channels)
        return split.transpose(0, 2, 1, 3, 4).reshape(height // down, width // across, -1)
    assert layer.title == "crop"
    top, left, bottom, right = layer.window.pads
    return codes[-top : height + bottom, -left : width + right]


def counts_inside(window: Window, size: tuple[int, int]) -> np.ndarray:
    """How many elements of each window lie in the map, int64[output rows, output columns]."""
    return _taps(np.ones((*size, 1), np.int64), window, 0).sum(axis=0)[..., 0]


def _taps(codes: np.ndarray, window: Window, pad: int) -> np.ndarray:
    """int64[taps, output rows, output columns, channels]."""
    top, left, bottom, right = window.pads
    rows, columns = window.output_size(*codes.shape[:2])
    padded = np.pad(codes, ((top, bottom), (left, right), (0, 0)), constant_values=pad)
    (sy, sx), (dy, dx) = window.stride, window.dilation
    return np.stack(
        [
            padded[i * dy : i * dy + (rows - 1) * sy + 1 : sy, j * dx : j * dx + (columns - 1) * sx + 1 : sx]
            for i in range(window.kernel[0])
            for j in range(window.kernel[1])
        ]
    )
