"""Lower functions of the model that are layers: fast pointwise and binary convolutions."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from onnx import NodeProto

from ....golden.elements import BINARY_BITS
from ....golden.numerics.binary import signs
from ...graph import BinaryConvolution, CodeEpilogue, FastPointwiseConvolution, Pointwise, Tensor, Window
from ...graph.tabulate import CODES
from ..build import CHANNELS_FIRST, CHANNELS_LAST, Build, Place, Shape3, check_layers, image_place, image_shape
from ..elements import as_image
from ..fragments import Fragment, label
from ..functions.binary_body import BinaryBody
from ..source import UnsupportedError
from .lowering import refuses
from .products import Lowered, lower_product


@refuses(
    "its input is no feature map with one or two spatial dimensions",
    "ONNX Runtime's bytes are not those of the layer on some codes",
)
def lower_fast_pointwise(build: Build, fragment: Fragment) -> None:
    """Add the layer of a fast pointwise convolution."""
    node, start, end = fragment.main, fragment.inputs[0], fragment.outputs[0]
    body, place = build.source.function(node), build.places[start]
    place = Place(place.tensor, place.axes, build.source.shapes[start])
    pattern, first_layer = body.stages.pattern, len(build.graph.layers)
    if len(place.shape) > 2:
        place = as_image(build, node, place)
        shape, axes = image_place(build, node, place), CHANNELS_FIRST
    else:
        shape, axes = build.shape_of(place), CHANNELS_LAST
        if shape != (1, 1, pattern.inputs):
            raise UnsupportedError(
                f"{label(node)} reads {shape[0]}x{shape[1]} pixels as the channels of a single one",
                "pool it to one pixel before",
            )
    build.add_tensor(end, (*shape[:2], pattern.outputs), end)
    build.graph.layers.append(
        FastPointwiseConvolution(
            node.name,
            (place.tensor,),
            end,
            stages=body.stages,
            bias=body.epilogue.bias,
            scale=body.epilogue.scale,
            zero_point=body.zero_point,
            result_zero_point=body.epilogue.zero_point,
            epilogue=CodeEpilogue(body.epilogue.low, body.epilogue.high),
        )
    )
    build.add_view(end, Place(end, axes, build.source.shapes[end]))
    check_layers(build, fragment, first_layer)


# Lower a binary convolution, a function of the model that stays whole, to the signs of its input and its layer.
#
# Its result is codes at first, even if they are +1 and -1, so that every other layer may read them;
# :func:`.tables.pack_signs` makes binary tensors of those that only binary convolutions read.

#: A table from codes to +1 and -1.
SIGNS = signs(CODES)


@refuses(
    "its input is no feature map with one or two spatial dimensions",
    "ONNX Runtime's bytes are not those of the layer on some codes",
)
def lower_binary(build: Build, fragment: Fragment) -> None:
    """Add the layers of a binary convolution."""
    node, start, end = fragment.main, fragment.inputs[0], fragment.outputs[0]
    body, place = build.source.function(node), build.places[start]
    place, first_layer = Place(place.tensor, place.axes, build.source.shapes[start]), len(build.graph.layers)
    place, weights, window, shape, axes = _kernel(build, node, place, body, build.source.shapes[end])
    outputs, is_signs = len(weights), body.scale is None
    build.add_tensor(end, shape, end)
    # A reader may require another shape.
    build.graph.tensors[end] = dataclasses.replace(build.graph.tensors[end], zero_point=body.result_zero_point)
    codes = _add_tensor(build, f"{end} (codes)", shape) if is_signs else end
    build.graph.layers.append(
        BinaryConvolution(
            node.name,
            (_add_signs(build, node, place.tensor, body.zero_point),),
            codes,
            weights=np.ascontiguousarray(weights),
            bias=body.bias,
            multiplier=np.ones(outputs, np.float32) if is_signs else body.scale,
            window=window,
            epilogue=CodeEpilogue(body.low, body.high),
            pad=body.pad_value,
        )
    )
    if is_signs:
        build.graph.layers.append(Pointwise(node.name, (codes,), end, epilogue=CodeEpilogue(table=SIGNS)))
    build.add_view(end, Place(end, axes, build.source.shapes[end]))
    check_layers(build, fragment, first_layer)


def _kernel(build: Build, node: NodeProto, place: Place, body: BinaryBody, onnx_shape: tuple[int, ...]) -> Lowered:
    """Return the input's place, weights [outputs, rows, columns, inputs], window, and shape and axis order of the
    result."""
    geometry, weights = body.geometry, body.weights
    wanted, output_shape = image_shape(place.shape), image_shape(onnx_shape)
    on_vector = wanted is None or wanted[:2] == output_shape[:2] == (1, 1)
    if on_vector and not any(geometry.pads) and math.prod(geometry.kernel) == 1:
        return lower_product(build, node, place, weights.reshape(len(weights), -1))
    place = as_image(build, node, place)
    shape = image_place(build, node, place)
    window = _window(body, shape, output_shape)
    return place, weights.transpose(0, 2, 3, 1), window, output_shape, CHANNELS_FIRST


def _window(body: BinaryBody, shape: Shape3, output_shape: Shape3) -> Window:
    """Return the geometry, with only the padding that windows reach below and to the right."""
    geometry = body.geometry
    window = Window(geometry.kernel, geometry.strides, geometry.dilations, geometry.pads)
    below, beside = (
        max((output_shape[axis] - 1) * window.stride[axis] + window.extent[axis] - shape[axis] - window.pads[axis], 0)
        for axis in range(2)
    )
    return dataclasses.replace(window, pads=(*window.pads[:2], below, beside))


def _add_signs(build: Build, node: NodeProto, tensor: str, zero_point: int) -> str:
    """Add the binary tensor that is +1 where a tensor is at least the zero point."""
    name = _add_tensor(build, f"{node.output[0]} (signs of {tensor})", build.graph.tensors[tensor].shape, BINARY_BITS)
    table = None
    if zero_point:
        table = np.clip(CODES.astype(np.int64) - zero_point, -128, 127).astype(np.int8)
    build.graph.layers.append(Pointwise(node.name, (tensor,), name, epilogue=CodeEpilogue(table=table)))
    return name


def _add_tensor(build: Build, name: str, shape: Shape3, bits: int = 8) -> str:
    """Add a tensor that the model does not have."""
    name = build.own_name(name)
    build.graph.tensors[name] = Tensor(name, shape, 1.0, 0, (), bits)
    return name
