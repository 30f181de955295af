"""Lower quantised convolutions and matrix products, of constants or of two activations."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ....golden.numerics.convolution import Int32
from ...graph import CodeEpilogue, Concat, Convolution, Int8, MatrixProduct, Window
from ...graph.tabulate import code_offset
from ...model.onnx_graph import attributes_of
from ..build import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Build,
    Place,
    Shape3,
    check_layers,
    image_place,
    image_shape,
    skipped,
    window_of,
)
from ..elements import Elements, add_arrangement, as_image, as_rows, channels_of, elements_of, place_with
from ..fragments import AVERAGE, LAYOUT, POINTWISE, POOLING, Fragment, Kind, label
from ..source import ONE_TYPE, ModelError, Source, UnsupportedError
from .lowering import refuses

# Kernels of products: the layout of weights, which follows that of the input in the graph.

#: Input place, kernel int8[outputs, rows, columns, inputs], its window, shape of the result and order of its axes.
Lowered = tuple[Place, Int8, Window, Shape3, Shape3]


def lower_spatial(build: Build, node: NodeProto, place: Place, weights: Int8, onnx_shape: tuple[int, ...]) -> Lowered:
    """Return the kernel of a convolution, ``weights`` int8[outputs, inputs / groups, ...], with result
    ``onnx_shape``."""
    rank = weights.ndim - 2
    output_shape = image_shape(onnx_shape)
    wanted = image_shape(place.shape)
    kernel = weights.shape[2:]
    on_vector = wanted is not None and wanted[:2] == output_shape[:2] == (1, 1) and math.prod(kernel) == 1
    grouped = attributes_of(node).get("group", 1) > 1
    # A 1x1 convolution on a flattened tensor is a matrix product, unless its one window is in the padding.
    if on_vector and not grouped and not any(window_of(node, kernel, rank, wanted, output_shape).pads):
        return lower_product(build, node, place, weights.reshape(len(weights), -1))
    place = as_image(build, node, place)
    shape = image_place(build, node, place)
    window = window_of(node, kernel, rank, shape, output_shape)
    weights = weights.reshape(*weights.shape[:2], *window.kernel).transpose(0, 2, 3, 1)
    rows, columns = skipped(node, window, shape, output_shape)
    if rows or columns:
        # Windows begin at the first element, and zero weights skip the elements that ONNX Runtime skips.
        weights = np.pad(weights, ((0, 0), (rows, 0), (columns, 0), (0, 0)))
        window = dataclasses.replace(window, kernel=weights.shape[1:3])
    return place, weights, window, output_shape, CHANNELS_FIRST


def lower_product(build: Build, node: NodeProto, place: Place, matrix: Int8) -> Lowered:
    """Return the kernel of a matrix product, ``matrix`` int8[outputs, features]: the whole map, or 1x1 on rows of
    features."""
    shape = build.shape_of(place)
    outputs, features = matrix.shape
    if math.prod(shape) == features:
        kernel = matrix.reshape(outputs, *(shape[axis] for axis in place.axes))
        kernel = kernel.transpose(0, *(1 + place.axes.index(axis) for axis in range(3)))
        return place, kernel, Window(shape[:2]), (1, 1, outputs), CHANNELS_LAST
    place = as_rows(build, node, place)
    size = build.shape_of(place)[:2]
    return place, matrix.reshape(outputs, 1, 1, features), Window((1, 1)), (*size, outputs), CHANNELS_LAST


@dataclass(frozen=True)
class _Operands:
    """Positions of the operands of an integer product."""

    weight: int
    bias: int
    output_scale: int


_POSITIONS = {"QLinearConv": _Operands(3, 8, 6), "QGemm": _Operands(3, 6, 7), "QLinearMatMul": _Operands(3, 9, 6)}


@refuses(
    "it multiplies two activations",
    "weights are computed, not int8, of more than two spatial dimensions or a stack of matrices, or have a zero point",
    "it transposes its activation, or has its channels last",
)
def check_linear(source: Source, fragment: Fragment) -> None:
    """Check that the accelerator can compute a product as ONNX Runtime does."""
    name, node = source.name, fragment.main
    if len(source.dynamic_inputs(node)) > 1:
        raise ModelError(
            f"{name}: {label(node)} multiplies two activations, which only MatMul may; one operand must be a constant"
        )
    at, given = _POSITIONS[node.op_type], attributes_of(node)
    weight_name = node.input[at.weight]
    weights, zeros = (constant(source, node, at.weight + offset) for offset in (0, 2))
    if weights is None or constant(source, node, at.weight + 1) is None:
        raise ModelError(f"{name}: the weights {weight_name!r} of {label(node)} must be constants")
    if weights.dtype != np.int8:
        raise ModelError(
            f"{name}: the weights {weight_name!r} of {label(node)} must be int8, not {weights.dtype}; "
            "quantise with weight_type=QuantType.QInt8"
        )
    if zeros is not None and zeros.any():
        raise ModelError(
            f"{name}: the zero point of the weights {weight_name!r} of {label(node)} must be 0, not "
            f"{zeros[zeros != 0].flat[0]}; "
            "quantise with symmetric int8 weights (weight_type=QuantType.QInt8, "
            "extra_options={'WeightSymmetric': True})"
        )
    if weights.ndim > 4:
        raise ModelError(f"{name}: {label(node)} must have one or two spatial dimensions, not {weights.ndim - 2}")
    if node.op_type != "QLinearConv" and weights.ndim != 2:
        raise ModelError(
            f"{name}: the weights {weight_name!r} of {label(node)} must be one matrix, not a stack of the "
            f"shape {list(weights.shape)}; use a product for each"
        )
    if given.get("transA", 0):
        raise ModelError(f"{name}: {label(node)} must not transpose its activation; set transA to 0")
    if given.get("channels_last", 0):
        raise ModelError(
            f"{name}: {label(node)} must be a standard QLinearConv, not one with channels_last; import "
            "the model before ONNX Runtime optimises it"
        )


@refuses("some products read int8 codes and others uint8 codes")
def check_one_type(source: Source, fragments: list[Fragment]) -> None:
    """Check that all products read codes of one type.

    ONNX Runtime needs a setting for exact sums of uint8 (see ``host/model/executed.py``) with which it has no kernels
    for int8.
    """
    first: dict[str, Fragment] = {}
    for fragment in fragments:
        if fragment.kind is Kind.LINEAR:
            first.setdefault(str(source.types[fragment.inputs[0]]), fragment)
    if len(first) > 1:
        shown = " and ".join(f"{fragment.label} reads {kind} codes" for kind, fragment in first.items())
        raise ModelError(f"{source.name}: {shown}; {ONE_TYPE}")


def constant(source: Source, node: NodeProto, position: int) -> np.ndarray | None:
    """Return the constant at an input of a node, or None if the input is absent or not constant."""
    return source.constants.get(node.input[position]) if position < len(node.input) else None


@refuses(
    "its input has another zero point than it was quantised with",
    "its input is no feature map with one or two spatial dimensions and no rows of its features",
    "ONNX Runtime's bytes are not those of the layer on some codes",
)
def lower_linear(build: Build, fragment: Fragment) -> None:
    """Add the layer of a fragment that :func:`check_linear` accepts."""
    node, start, end = fragment.main, fragment.inputs[0], fragment.outputs[0]
    place, first_layer = build.places[start], len(build.graph.layers)
    place = Place(place.tensor, place.axes, build.source.shapes[start])
    codes = constant(build.source, node, 2)
    own = 0 if codes is None else int(codes.item()) - code_offset(codes.dtype)
    check_zero_point(build, node, place, own)
    build.add_view(end, _convolve(build, node, place, end))
    check_layers(build, fragment, first_layer)


def check_zero_point(build: Build, node: NodeProto, place: Place, own: int) -> None:
    """Check that a product reads codes with the zero point, as an int8 code, with which they were quantised.

    Raises
    ------
    ModelError
        If it has another one.
    """
    tensor = build.graph.tensors[place.tensor]
    if own != tensor.zero_point:
        raise ModelError(
            f"{build.source.name}: {label(node)} reads {tensor.name!r} with the zero point {own}, but it "
            f"was quantised with {tensor.zero_point}; "
            "quantise the model again"
        )


def _convolve(build: Build, node: NodeProto, place: Place, output: str) -> Place:
    source, at = build.source, _POSITIONS[node.op_type]
    weights = constant(source, node, at.weight)
    if node.op_type != "QLinearConv" and not attributes_of(node).get("transB", 0):
        weights = weights.T
    channels = weights.shape[0]
    bias = constant(source, node, at.bias)
    bias = np.zeros(channels, np.int32) if bias is None else np.broadcast_to(bias.reshape(-1), channels)
    if bias.dtype != np.int32:
        raise ModelError(
            f"{source.name}: the bias {node.input[at.bias]!r} of {label(node)} must be "
            f"int32, not {bias.dtype}; quantise the model again"
        )
    return add_convolution(build, node, place, weights, bias, multiplier_of(source, node, channels), output, output)


def add_convolution(
    build: Build,
    node: NodeProto,
    place: Place,
    weights: Int8,
    bias: Int32,
    multiplier: npt.NDArray[np.float32],
    output: str,
    like: str,
    *,
    low: int = -128,
    high: int = 127,
) -> Place:
    """Add the layer of a convolution or matrix product, and its result, with the quantisation of an ONNX tensor.

    Parameters
    ----------
    build : Build
    node : NodeProto
    place : Place
        Place of its input.
    weights : int8[outputs, inputs / groups, ...] or int8[outputs, features]
    bias : int32[outputs]
    multiplier : float32[outputs]
    output : str
        Name of the result in the graph.
    like : str
        The ONNX tensor.
    low, high : int
        Bounds of the result's codes.

    Raises
    ------
    ModelError, UnsupportedError
        If its input does not have the layout that it needs.
    """
    onnx_shape = build.source.shapes[node.output[0]]
    if weights.ndim > 2:
        place, kernel, window, shape, axes = lower_spatial(build, node, place, weights, onnx_shape)
    else:
        place, kernel, window, shape, axes = lower_product(build, node, place, weights)
    build.add_tensor(output, shape, like)
    build.graph.layers.append(
        Convolution(
            node.name,
            (place.tensor,),
            output,
            weights=np.ascontiguousarray(kernel),
            bias=np.ascontiguousarray(bias),
            multiplier=multiplier,
            window=window,
            epilogue=CodeEpilogue(low, high),
            groups=attributes_of(node).get("group", 1),
        )
    )
    return Place(output, axes, onnx_shape)


def multiplier_of(source: Source, node: NodeProto, channels: int) -> np.ndarray:
    """Return float32[channels], the scale from accumulator to result, in ONNX Runtime's order of float32 operations."""
    at = _POSITIONS[node.op_type]
    positions = (1, at.weight + 1, at.output_scale)
    input_scale, weight_scale, output_scale = (source.constants[node.input[at]].reshape(-1) for at in positions)
    alpha = np.float32(attributes_of(node).get("alpha", 1.0))
    scale = (alpha * input_scale) * weight_scale / output_scale
    return np.ascontiguousarray(np.broadcast_to(scale, channels), dtype=np.float32)


# Lower matrix products of two activations, of which one becomes weights at run time.

#: Names of the operator in ONNX and ONNX Runtime.
PRODUCTS_OF_TWO = ("MatMul", "QLinearMatMul")
#: Positions of both operands in QLinearMatMul; scale and zero point follow each.
_OPERANDS = (0, 3)


class _Operand(NamedTuple):
    """A tensor of the graph, and the indices of the elements of its matrices: int64[products, rows, columns]."""

    tensor: str
    elements: Elements


class _Result(NamedTuple):
    """A tensor of the graph with the results, concatenated in the channels.

    Attributes
    ----------
    tensor : str
    end : str
        The ONNX tensor of the results.
    size : tuple of int
        Rows and columns.
    """

    tensor: str
    end: str
    size: tuple[int, int]


@refuses("an operand has another zero point than 0", "it is a vector")
def lower_matrix_product(build: Build, fragment: Fragment) -> None:
    """Add a layer for each product of a stack; the results are concatenated in the channels."""
    source, node, end = build.source, fragment.main, fragment.outputs[0]
    first_layer = len(build.graph.layers)
    left, right = _operands(build, node)
    # Both operands have the summed axis last: rows of the left one and columns of the right one.
    right = right._replace(elements=right.elements.swapaxes(1, 2))
    is_image = _is_read_as_image(source, end)
    windows, matrices = (right, left) if is_image else (left, right)
    # Rows of several matrices, side by side in the channels, are not an ONNX tensor until a layout operator follows.
    is_one = is_image or len(matrices.elements) == 1
    tensor = end if is_one else build.own_name(f"{end} side by side")
    size = (1, windows.elements.shape[1]) if is_image else _size(build, windows, matrices)
    _add_products(build, node, windows, matrices, _Result(tensor, end, size))
    shape = build.graph.tensors[tensor].shape
    every = np.arange(np.prod(shape)).reshape(-1, len(matrices.elements), matrices.elements.shape[1])
    every = every.transpose((1, 2, 0) if is_image else (1, 0, 2))
    build.add_view(end, place_with(tensor, every.reshape(source.shapes[end]), shape, node))
    check_layers(build, fragment, first_layer)


def _operands(build: Build, node: NodeProto) -> tuple[_Operand, _Operand]:
    """Return both operands, with the same number of matrices."""
    found = []
    for at in _OPERANDS:
        name, zero = node.input[at], build.source.constants[node.input[at + 2]]
        if zero.size != 1 or int(zero.item()) - code_offset(zero.dtype):
            raise UnsupportedError(
                f"{label(node)} multiplies two activations, and the zero point {zero.reshape(-1)[0]} of {name!r} would "
                "add to each sum what depends on the codes",
                "quantise both around 0 (lutterfly quantize; extra_options={'ActivationSymmetric': True})",
            )
        place = build.places[name]
        if len(place.shape) < 2:
            raise UnsupportedError(f"{label(node)} multiplies by the vector {name!r}", "make it a matrix of one column")
        found.append((place.tensor, elements_of(place, build.shape_of(place))))
    stack = np.broadcast_shapes(*(elements.shape[:-2] for _, elements in found))
    left, right = (
        _Operand(tensor, np.broadcast_to(elements, stack + elements.shape[-2:]).reshape(-1, *elements.shape[-2:]))
        for tensor, elements in found
    )
    return left, right


def _add_products(build: Build, node: NodeProto, windows: _Operand, matrices: _Operand, result: _Result) -> None:
    """Add the layers."""
    sources, (tensor, end, size) = _window_tensors(build, node, windows, result.size), result
    results = [tensor] if len(sources) == 1 else [build.own_name(f"{end} {number}") for number in range(len(sources))]
    (multiplier,) = multiplier_of(build.source, node, 1)
    for name, part, order in zip(sources, results, matrices.elements, strict=True):
        build.add_tensor(part, (*size, len(order)), end)
        layer = MatrixProduct(node.name, (name, matrices.tensor), part, multiplier=multiplier, order=order)
        build.graph.layers.append(layer)
    if len(results) > 1:
        build.add_tensor(tensor, (*size, matrices.elements.shape[1] * len(results)), end)
        build.graph.layers.append(Concat(node.name, tuple(results), tensor, (None,) * len(results)))


def _size(build: Build, windows: _Operand, matrices: _Operand) -> tuple[int, int]:
    """Return rows and columns of the results' pixels: those of an operand, if it has as many, for layers that combine
    both."""
    rows = windows.elements.shape[1]
    sizes = [build.graph.tensors[operand.tensor].shape[:2] for operand in (windows, matrices)]
    return max([(1, rows), *(size for size in sizes if np.prod(size) == rows)])


def _window_tensors(build: Build, node: NodeProto, operand: _Operand, size: tuple[int, int]) -> list[str]:
    """Return a tensor for each matrix, with rows as pixels: channels of the operand where possible, else a moved
    copy."""
    tensor = build.graph.tensors[operand.tensor]
    pixels = np.arange(np.prod(tensor.shape)).reshape(-1, tensor.shape[2])
    firsts, channels = operand.elements[:, 0, 0], operand.elements.shape[2]
    if tensor.shape[:2] == size and all(
        np.array_equal(one, pixels[:, first : first + channels])
        for one, first in zip(operand.elements, firsts, strict=True)
    ):
        return [channels_of(build, node, operand.tensor, int(first), channels) for first in firsts]
    names = []
    for number, elements in enumerate(operand.elements):
        names.append(build.own_name(f"{tensor.name} for {node.name} {number}"))
        add_arrangement(build, [tensor.name], elements.reshape(*size, -1), names[-1], None, node)
    return names


def _is_read_as_image(source: Source, name: str) -> bool:
    """Return whether the reader of a result reduces its last axis, whose elements are pixels then."""
    waiting, seen = [name], set()
    while waiting:
        for node in source.consumers.get(waiting.pop(), []):
            if node.op_type in (*POOLING, *AVERAGE):
                return True
            if node.op_type in (*POINTWISE, *LAYOUT):
                waiting += {*node.output} - seen
                seen |= {*node.output}
    return False
