"""Lower a quantised convolution or matrix product to the graph's Convolution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ....golden.numerics.convolution import Int32
from ...graph import CodeFinish, Convolution, Int8
from ...graph.tabulate import code_offset
from ..building.build import Build, attributes
from ..building.checks import check_layers
from ..building.kernels import lower_product, lower_spatial
from ..building.layout import Place
from ..fragments.fragments import Fragment, Kind, label
from ..fragments.lowering import refuses
from ..reading.errors import ONE_TYPE, ModelError
from ..reading.source import Source


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
    at, given = _POSITIONS[node.op_type], attributes(node)
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
    """Check that all products read codes of one type: what ONNX Runtime needs for exact sums of the one (see
    ``host/model/reference.py``) it has no kernels for with the other.
    """
    first: dict[str, Fragment] = {}
    for fragment in fragments:
        if fragment.kind is Kind.LINEAR:
            first.setdefault(str(source.types[fragment.inputs[0]]), fragment)
    if len(first) > 1:
        shown = " and ".join(f"{fragment.label} reads {kind} codes" for kind, fragment in first.items())
        raise ModelError(f"{source.name}: {shown}; {ONE_TYPE}")


def constant(source: Source, node: NodeProto, position: int) -> np.ndarray | None:
    """The constant at an input of a node, or None if the input is absent or no constant."""
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
    """Check that a product reads codes with the zero point, as an int8 code, that they were quantised with.

    Raises
    ------
    ModelError
        If not.
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
    if node.op_type != "QLinearConv" and not attributes(node).get("transB", 0):
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
    """Add the layer of a convolution or matrix product, and its result, which is quantised as an ONNX tensor is.

    Parameters
    ----------
    build : Build
    node : NodeProto
    place : Place
        Of what it reads.
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
        If its values do not lie as it wants them.
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
            finish=CodeFinish(low, high),
            groups=attributes(node).get("group", 1),
        )
    )
    return Place(output, axes, onnx_shape)


def multiplier_of(source: Source, node: NodeProto, channels: int) -> np.ndarray:
    """float32[channels]: the scale from accumulator to result, in ONNX Runtime's order of float32 operations."""
    at = _POSITIONS[node.op_type]
    positions = (1, at.weight + 1, at.output_scale)
    input_scale, weight_scale, output_scale = (source.constants[node.input[at]].reshape(-1) for at in positions)
    alpha = np.float32(attributes(node).get("alpha", 1.0))
    scale = (alpha * input_scale) * weight_scale / output_scale
    return np.ascontiguousarray(np.broadcast_to(scale, channels), dtype=np.float32)
