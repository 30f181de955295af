"""Operators that move elements of a feature map: nearest upsampling, depth to space, space to depth, crops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import NodeProto

from ...graph import Rearrange, copies
from ..fragments.fragments import label
from ..fragments.lowering import refuses
from ..reading.errors import UnsupportedError
from ..reading.source import Source
from .build import Build, attributes, image_place, show
from .layout import CHANNELS_FIRST, Place, Shape3, image_shape

#: Where an element of the result lies in the input, as ONNX' Resize has it: of outputs, their number, that of the
#: inputs, and the scale.
_COORDINATES: dict[str, Callable[[np.ndarray, int, int, float], np.ndarray]] = {
    "half_pixel": lambda at, outputs, inputs, scale: (at + 0.5) / scale - 0.5,
    "half_pixel_symmetric": lambda at, outputs, inputs, scale: (
        inputs / 2 * (1 - outputs / (scale * inputs)) + (at + 0.5) / scale - 0.5
    ),
    "pytorch_half_pixel": lambda at, outputs, inputs, scale: (at + 0.5) / scale - 0.5 if outputs > 1 else at * 0.0,
    "align_corners": lambda at, outputs, inputs, scale: at * ((inputs - 1) / max(outputs - 1, 1)),
    "asymmetric": lambda at, outputs, inputs, scale: at / scale,
    "tf_half_pixel_for_nn": lambda at, outputs, inputs, scale: (at + 0.5) / scale,
}
_ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@refuses(
    "it interpolates",
    "it does not repeat every pixel equally often",
    "its input is no feature map with one or two spatial dimensions",
)
def lower_move(build: Build, node: NodeProto, place: Place, output: str, like: str) -> Place:
    """Add the layer of a Resize, DepthToSpace, SpaceToDepth or Slice, whose result is the tensor ``output``."""
    shape = image_place(build, node, place)
    onnx_shape = build.source.shapes[node.output[0]]
    target = image_shape(onnx_shape)
    layer = _layer(build, node, place.tensor, output, shape, target)
    build.add_tensor(output, target, like)
    build.graph.layers.append(layer)
    return Place(output, CHANNELS_FIRST, onnx_shape)


def _layer(build: Build, node: NodeProto, source: str, output: str, shape: Shape3, target: Shape3) -> Rearrange:
    names, given = (node.name, source, output), attributes(node)
    if node.op_type == "DepthToSpace":
        phases_first = given.get("mode", b"DCR") == b"DCR"
        block = (given["blocksize"],) * 2
        return copies.depth_to_space(*names, shape, block, phases_first=phases_first)
    if node.op_type == "SpaceToDepth":
        return copies.space_to_depth(*names, shape, (given["blocksize"],) * 2)
    if node.op_type == "Slice":
        return copies.crop(*names, shape, _cut_off(build.source, node, shape, target))
    return copies.nearest(*names, shape, _factors(build.source, node, shape, target))


def _cut_off(source: Source, node: NodeProto, shape: Shape3, target: Shape3) -> tuple[int, int, int, int]:
    """Rows and columns that a Slice leaves out above, to the left, below and to the right."""
    rank = len(source.shapes[node.input[0]])
    starts = source.constants[node.input[1]].tolist()
    axes = source.constants[node.input[3]].tolist() if len(node.input) > 3 and node.input[3] else range(rank)
    first = dict(zip((axis % rank for axis in axes), starts, strict=True))
    sizes = source.shapes[node.input[0]]
    start = {axis: max(at + sizes[axis], 0) if at < 0 else at for axis, at in first.items()}
    top, left = (0, *(start.get(axis, 0) for axis in range(2, rank)))[-2:]
    return top, left, shape[0] - top - target[0], shape[1] - left - target[1]


def _factors(source: Source, node: NodeProto, shape: Shape3, target: Shape3) -> tuple[int, int]:
    """How often a Resize repeats each row and column, if it does nothing else."""
    given, mode = attributes(node), attributes(node).get("mode", b"nearest").decode()
    if mode != "nearest" or given.get("antialias", 0):
        raise UnsupportedError(
            f"{label(node)} interpolates (mode {mode})", "upsample with mode nearest, or by a transposed convolution"
        )
    # Before operator set 11 there is nothing else.
    is_old = len(node.input) == 2
    coordinates = given.get("coordinate_transformation_mode", b"asymmetric" if is_old else b"half_pixel").decode()
    rounding = given.get("nearest_mode", b"floor" if is_old else b"round_prefer_floor").decode()
    factors = target[0] // shape[0], target[1] // shape[1]
    problem = f"{label(node)} from {show(shape)} to {show(target)} (height x width x channels)"
    remedy = "upsample by whole factors, with coordinate_transformation_mode asymmetric and nearest_mode floor"
    if target != (shape[0] * factors[0], shape[1] * factors[1], shape[2]) or coordinates not in _COORDINATES:
        raise UnsupportedError(f"{problem} does not repeat each pixel equally often", remedy)
    scales = _scales(source, node, shape, target)
    for axis, what in enumerate(("row", "column")):
        at = _COORDINATES[coordinates](np.arange(target[axis]), target[axis], shape[axis], scales[axis])
        found = np.clip(_ROUNDINGS[rounding](at), 0, shape[axis] - 1).astype(np.int64)
        wrong = np.flatnonzero(found != np.arange(target[axis]) // factors[axis])
        if len(wrong):
            raise UnsupportedError(
                f"{problem} takes {what} {found[wrong[0]]} for {what} {wrong[0]} "
                f"({coordinates}, {rounding}), and not {wrong[0] // factors[axis]}",
                remedy,
            )
    return factors


def _scales(source: Source, node: NodeProto, shape: Shape3, target: Shape3) -> tuple[float, float]:
    """The scales down and across: as they are given, or else by the sizes."""
    at = 1 if len(node.input) == 2 else 2
    scales = source.constants.get(node.input[at]) if at < len(node.input) else None
    if scales is None or not scales.size:
        return target[0] / shape[0], target[1] / shape[1]
    rank = len(source.shapes[node.input[0]])
    axes = [axis % rank for axis in attributes(node).get("axes", range(rank))]
    of_axis = dict.fromkeys(range(rank), 1.0) | dict(zip(axes, scales.tolist(), strict=True))
    return (1.0, *(of_axis[axis] for axis in range(2, rank)))[-2:]
