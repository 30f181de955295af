"""Lower a quantised convolution or matrix product to the graph's Convolution."""
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from ..graph import Convolution, Int8, Window
from .build import Build, follow_trunk, image_place, window_of
from .errors import ModelError
from .executed import INTEGER_PRODUCTS, Executed, float_remedy
from .layout import CHANNELS_FIRST, CHANNELS_LAST, Place, Shape3, image_shape, same_order
from .source import Source
from .units import LAYOUT, LINEAR, POOLING, QUANTISERS, TRANSPARENT, Unit, label

_REMOVED_BY_FUSION = ("Relu", "Clip", "Min", "Max", "Add", *TRANSPARENT)


@dataclass(frozen=True)
class _Operands:
    """Positions of the operands of an integer product."""

    weight: int
    bias: int
    output_scale: int


_POSITIONS = {"QLinearConv": _Operands(3, 8, 6), "QGemm": _Operands(3, 6, 7), "QLinearMatMul": _Operands(3, 9, 6)}


def check_linear(source: Source, unit: Unit, executed: dict[str, Executed]) -> None:
    """Check that ONNX Runtime computes a convolution or matrix product in integers, and that the accelerator can.

    Raises
    ------
    ModelError
        If not, with the reason and the remedy.
    """
    products = [node for node in unit.nodes if node.op_type in LINEAR]
    node = products[0]
    if len(products) > 1:
        raise ModelError(f"{source.name}: {label(products[1])} follows {label(node)} in float; put QuantizeLinear and "
                         "DequantizeLinear between them")
    if len(source.dynamic_inputs(node)) > 1:
        raise ModelError(f"{source.name}: {label(node)} multiplies two activations, which is not supported; one "
                         "operand must be a constant")
    if len(unit.inputs) > 1:
        raise ModelError(f"{source.name}: {label(node)} is combined with {len(unit.inputs)} activations "
                         f"({', '.join(map(repr, unit.inputs))}) in float; "
                         "put QuantizeLinear and DequantizeLinear behind it")
    before, behind = _around(unit, node)
    if node.name not in executed:
        raise ModelError(float_remedy(source, node, [*behind, *before]))
    foreign = [other for other in before if other.op_type not in (*LAYOUT, *POOLING, *TRANSPARENT)]
    foreign += [other for other in behind if other.op_type not in (*LAYOUT, *POOLING, *_REMOVED_BY_FUSION)]
    if foreign:
        raise ModelError(float_remedy(source, node, foreign))
    _check_operands(source, node, executed[node.name])


def _around(unit: Unit, node: NodeProto) -> tuple[list[NodeProto], list[NodeProto]]:
    """The operators between a product and its quantised ends."""
    at = unit.nodes.index(node)
    return ([other for other in unit.nodes[:at] if other.op_type not in QUANTISERS],
            [other for other in unit.nodes[at + 1:] if other.op_type not in QUANTISERS])


def _check_operands(source: Source, node: NodeProto, product: Executed) -> None:
    name, at, given = source.name, _POSITIONS[product.node.op_type], product.attributes()
    weights, zeros = product.constant(at.weight), product.constant(at.weight + 2)
    weight_name = product.node.input[at.weight]
    original = node.input[0 if node.input[0] in source.constants else 1]
    if node.op_type not in INTEGER_PRODUCTS and not _is_codes(source, original):
        # ONNX Runtime would quantise them itself, with a zero point.
        raise ModelError(f"{name}: the weights {original!r} of {label(node)} must be int8, not "
                         f"{source.constants[original].dtype}; quantise with weight_type=QuantType.QInt8")
    if weights is None or product.constant(at.weight + 1) is None:
        raise ModelError(f"{name}: the weights {weight_name!r} of {label(node)} must be constants")
    if zeros is not None and zeros.any():
        raise ModelError(f"{name}: the zero point of the weights {weight_name!r} of {label(node)} must be 0, not "
                         f"{zeros[zeros != 0].flat[0]}; "
                         "quantise with symmetric int8 weights (weight_type=QuantType.QInt8, "
                         "extra_options={'WeightSymmetric': True})")
    if weights.dtype != np.int8:
        raise ModelError(f"{name}: the weights {weight_name!r} of {label(node)} must be int8, not {weights.dtype}; "
                         "quantise with weight_type=QuantType.QInt8")
    if weights.ndim > 4:
        raise ModelError(f"{name}: {label(node)} must have one or two spatial dimensions, not {weights.ndim - 2}")
    if product.node.op_type != "QLinearConv" and weights.ndim != 2:
        raise ModelError(f"{name}: the weights {weight_name!r} of {label(node)} must be one matrix, not a stack of the "
                         f"shape {list(weights.shape)}; use a product for each")
    if given.get("transA", 0):
        raise ModelError(f"{name}: {label(node)} must not transpose its activation; set transA to 0")
    if given.get("channels_last", 0):
        raise ModelError(f"{name}: {label(node)} must be a standard QLinearConv, not one with channels_last; import "
                         "the model before ONNX Runtime optimises it")


def _is_codes(source: Source, name: str) -> bool:
    """Whether constant weights come from a DequantizeLinear."""
    return any(name in node.output and node.op_type == "DequantizeLinear" for node in source.model.graph.node)


def lower_linear(build: Build, unit: Unit) -> None:
    """Add the layer of a unit that :func:`check_linear` accepts, and of the max pooling around it.

    Raises
    ------
    ModelError, UnsupportedError
        If its values do not lie as it wants them.
    """
    node = next(node for node in unit.nodes if node.op_type in LINEAR)
    before, behind = _around(unit, node)
    before = [other for other in before if other.op_type not in TRANSPARENT]
    behind = [other for other in behind if other.op_type not in _REMOVED_BY_FUSION]
    product = build.executed[node.name]
    start, end = unit.inputs[0], unit.outputs[0]
    place = follow_trunk(build, before, build.places[start], start)
    place = Place(place.tensor, place.axes, build.source.shapes[build.source.dynamic_inputs(node)[0]])
    _check_zero_point(build, node, product, place)
    pooled = any(other.op_type in POOLING for other in behind)
    place = _convolve(build, node, product, place, node.output[0] if pooled else end, end)
    build.add_view(end, follow_trunk(build, behind, place, end, end))


def _check_zero_point(build: Build, node: NodeProto, product: Executed, place: Place) -> None:
    tensor = build.graph.tensors[place.tensor]
    codes = product.constant(2)
    own = 0 if codes is None else int(codes.item()) - (128 if codes.dtype == np.uint8 else 0)
    if own != tensor.zero_point:
        raise ModelError(f"{build.source.name}: {label(node)} reads {tensor.name!r} with the zero point {own}, but it "
                         f"was quantised with {tensor.zero_point}; "
                         "quantise the model again")


def _convolve(build: Build, node: NodeProto, product: Executed, place: Place, output: str, like: str) -> Place:
    at = _POSITIONS[product.node.op_type]
    weights = product.constant(at.weight)
    onnx_shape = build.source.shapes[node.output[0]]
    if product.node.op_type == "QLinearConv":
        weights, window, shape, axes = _spatial(build, node, product, place, onnx_shape)
    else:
        transposed = product.attributes().get("transB", 0)
        weights, window, shape, axes = _product(build, node, place, weights if transposed else weights.T)
    channels = weights.shape[0]
    bias = product.constant(at.bias)
    bias = np.zeros(channels, np.int32) if bias is None else np.broadcast_to(bias.reshape(-1), channels)
    if bias.dtype != np.int32:
        raise ModelError(f"{build.source.name}: the bias {product.node.input[at.bias]!r} of {label(node)} must be "
                         f"int32, not {bias.dtype}; quantise the model again")
    build.add_tensor(output, shape, like)
    build.graph.layers.append(Convolution(
        node.name, (place.tensor,), output, weights=np.ascontiguousarray(weights), bias=np.ascontiguousarray(bias),
        multiplier=_multiplier(product, at, channels), window=window, requantised=output,
        groups=product.attributes().get("group", 1),
    ))
    return Place(output, axes, onnx_shape)


def _multiplier(product: Executed, at: _Operands, channels: int) -> np.ndarray:
    """float32[channels]: the scale from accumulator to result, in ONNX Runtime's order of float32 operations."""
    positions = (1, at.weight + 1, at.output_scale)
    input_scale, weight_scale, output_scale = (product.constant(position).reshape(-1) for position in positions)
    alpha = np.float32(product.attributes().get("alpha", 1.0))
    scale = (alpha * input_scale) * weight_scale / output_scale
    return np.ascontiguousarray(np.broadcast_to(scale, channels), dtype=np.float32)


#: Kernel int8[outputs, rows, columns, inputs], its window, shape of the result and order of its axes.
_Lowered = tuple[Int8, Window, Shape3, Shape3]


def _spatial(build: Build, node: NodeProto, product: Executed, place: Place, onnx_shape: tuple[int, ...]) -> _Lowered:
    weights = product.constant(3)
    rank = weights.ndim - 2
    output_shape = image_shape(onnx_shape)
    wanted = image_shape(place.shape)
    kernel = weights.shape[2:]
    on_vector = wanted is not None and wanted[:2] == output_shape[:2] == (1, 1) and math.prod(kernel) == 1
    grouped = product.attributes().get("group", 1) > 1
    # A 1x1 convolution on what was flattened before is a matrix product, unless its one window lies on the border.
    if on_vector and not grouped and not any(window_of(product.node, kernel, rank, wanted, output_shape).pads):
        return _product(build, node, place, weights.reshape(len(weights), -1))
    shape = image_place(build, node, place)
    window = window_of(product.node, kernel, rank, shape, output_shape)
    weights = weights.reshape(*weights.shape[:2], *window.kernel).transpose(0, 2, 3, 1)
    return weights, window, output_shape, CHANNELS_FIRST


def _product(build: Build, node: NodeProto, place: Place, matrix: Int8) -> _Lowered:
    """A matrix product, ``matrix`` int8[outputs, features]: a kernel over the whole map, or 1x1 on rows of features."""
    shape = build.shape_of(place)
    outputs, features = matrix.shape
    if math.prod(shape) == features:
        kernel = matrix.reshape(outputs, *(shape[axis] for axis in place.axes))
        kernel = kernel.transpose(0, *(1 + place.axes.index(axis) for axis in range(3)))
        return kernel, Window(shape[:2]), (1, 1, outputs), CHANNELS_LAST
    if shape[2] != features or not same_order(place.axes, CHANNELS_LAST, shape):
        raise ModelError(f"{build.source.name}: {label(node)} works on {math.prod(shape) // features} rows of "
                         f"{features} values that do not lie together; transpose "
                         "its input such that the features are the channels")
    return matrix.reshape(outputs, 1, 1, features), Window((1, 1)), (*shape[:2], outputs), CHANNELS_LAST

