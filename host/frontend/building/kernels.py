"""Kernels of products: weights as a layer has them, by how the values that they multiply lie in the graph."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from onnx import NodeProto

from ...graph import Int8, Window
from .build import Build, attributes, image_place, skipped, window_of
from .elements import as_image, as_rows
from .layout import CHANNELS_FIRST, CHANNELS_LAST, Place, Shape3, image_shape

#: What is read, kernel int8[outputs, rows, columns, inputs], its window, shape of the result and order of its axes.
Lowered = tuple[Place, Int8, Window, Shape3, Shape3]


def lower_spatial(build: Build, node: NodeProto, place: Place, weights: Int8, onnx_shape: tuple[int, ...]) -> Lowered:
    """A convolution, ``weights`` int8[outputs, inputs / groups, ...], whose result has the shape ``onnx_shape``."""
    rank = weights.ndim - 2
    output_shape = image_shape(onnx_shape)
    wanted = image_shape(place.shape)
    kernel = weights.shape[2:]
    on_vector = wanted is not None and wanted[:2] == output_shape[:2] == (1, 1) and math.prod(kernel) == 1
    grouped = attributes(node).get("group", 1) > 1
    # A 1x1 convolution on what was flattened before is a matrix product, unless its one window lies on the border.
    if on_vector and not grouped and not any(window_of(node, kernel, rank, wanted, output_shape).pads):
        return lower_product(build, node, place, weights.reshape(len(weights), -1))
    place = as_image(build, node, place)
    shape = image_place(build, node, place)
    window = window_of(node, kernel, rank, shape, output_shape)
    weights = weights.reshape(*weights.shape[:2], *window.kernel).transpose(0, 2, 3, 1)
    rows, columns = skipped(node, window, shape, output_shape)
    if rows or columns:
        # Windows begin at the first element, and weights of zero leave out what ONNX Runtime does.
        weights = np.pad(weights, ((0, 0), (rows, 0), (columns, 0), (0, 0)))
        window = dataclasses.replace(window, kernel=weights.shape[1:3])
    return place, weights, window, output_shape, CHANNELS_FIRST


def lower_product(build: Build, node: NodeProto, place: Place, matrix: Int8) -> Lowered:
    """A matrix product, ``matrix`` int8[outputs, features]: a kernel over the whole map, or 1x1 on rows of features."""
    shape = build.shape_of(place)
    outputs, features = matrix.shape
    if math.prod(shape) == features:
        kernel = matrix.reshape(outputs, *(shape[axis] for axis in place.axes))
        kernel = kernel.transpose(0, *(1 + place.axes.index(axis) for axis in range(3)))
        return place, kernel, Window(shape[:2]), (1, 1, outputs), CHANNELS_LAST
    place = as_rows(build, node, place)
    size = build.shape_of(place)[:2]
    return place, matrix.reshape(outputs, 1, 1, features), Window((1, 1)), (*size, outputs), CHANNELS_LAST
