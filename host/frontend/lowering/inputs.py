"""Place the accelerator's inputs, with height, width and channels in the order that the first layer needs."""

from __future__ import annotations

from onnx import NodeProto

from ..build import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Build,
    Place,
    Shape3,
    image_shape,
    inverse,
    permutation_of,
    transposed,
)
from ..classify import is_choice, is_move
from ..fragments import AVERAGE, CONCAT, LAYOUT, LINEAR, PAD, POOLING, SLICE, TRANSPOSED
from ..source import Source, UnsupportedError, size
from .copies import border_order, channel_axis, channels_order


def place_input(build: Build, name: str) -> None:
    """Add the graph's tensor for an ONNX tensor of codes that the host delivers."""
    shape, axes = feature_shape(build.source, name)
    build.add_tensor(name, shape, name)
    build.graph.inputs.append(name)
    build.add_view(name, Place(name, axes, build.source.shapes[name]))


def feature_shape(source: Source, name: str) -> tuple[Shape3, Shape3]:
    """Return the feature map of a tensor of codes, and the order of its axes.

    The first spatial operator after it decides; where there is none, or values would move on the way, the tensor keeps
    its layout, as an image or a vector.
    """
    found = _find_spatial(source, name)
    # An operator that repeats elements on the way changes the size.
    if found is not None and size(found[1]) == size(source.shapes[name]):
        path, shape, axes, onnx_shape = found
        here: Shape3 | None = axes
        for node in reversed(path):
            if node.op_type == "Transpose":
                here = transposed(here, onnx_shape, inverse(permutation_of(node, len(onnx_shape))), shape)
            onnx_shape = source.shapes[node.input[0]]
            if here is None:
                break
        else:
            return shape, here
        image = image_shape(source.shapes[name])
        if image is not None:
            return image, CHANNELS_FIRST
    return (1, 1, size(source.shapes[name])), CHANNELS_LAST


_Wish = tuple[list[NodeProto], Shape3, Shape3, tuple[int, ...]]


def _find_spatial(source: Source, name: str) -> _Wish | None:
    """Find the first operator that requires a layout: return layout operators before it, shape, axes and ONNX shape."""
    # The search is depth first and visits each tensor once, as a residual network of n sums has 2**n paths.
    seen = {name}
    ways: list[tuple[NodeProto, str, list[NodeProto]]] = [(node, name, []) for node in _readers(source, name)]
    while ways:
        node, name, path = ways.pop()
        shape = source.shapes[name]
        is_moved = is_move(source, node) or is_choice(source, node) or _works_on_rows(source, node)
        if source.function(node) or is_moved or node.op_type in TRANSPOSED:
            image = image_shape(shape)
            if image is not None:
                return path, image, CHANNELS_FIRST, shape
        elif node.op_type in (*LINEAR, *POOLING, *AVERAGE):
            if len(shape) > 2 and node.op_type in ("Conv", "QLinearConv", *POOLING, *AVERAGE):
                image = image_shape(shape)
                if image is not None:
                    return path, image, CHANNELS_FIRST, shape
            elif size(shape[:-1]) > 1:
                return path, (1, size(shape[:-1]), shape[-1]), CHANNELS_LAST, shape
        elif node.op_type in (*CONCAT, *SLICE, *PAD):
            return _wish_of_channels(source, node, shape, path)
        else:
            step = [node] if node.op_type in LAYOUT else []
            outputs = [output for output in node.output if output in source.shapes and output not in seen]
            seen.update(outputs)
            ways += [
                (reader, output, path + step) for output in reversed(outputs) for reader in _readers(source, output)
            ]
    return None


def _works_on_rows(source: Source, node: NodeProto) -> bool:
    """Return whether a concatenation, Split or Slice works on several axes, or on one that cannot be channels."""
    if node.op_type not in (*CONCAT, *SLICE):
        return False
    return channel_axis(source, node) not in (1, len(source.shapes[node.output[0]]) - 1)


def _readers(source: Source, name: str) -> list[NodeProto]:
    """Return the consumers of a tensor, the first one last."""
    return source.consumers.get(name, [])[::-1]


def _wish_of_channels(source: Source, node: NodeProto, shape: tuple[int, ...], path: list[NodeProto]) -> _Wish | None:
    try:
        order = (
            border_order(source, node)
            if node.op_type in PAD
            else (channels_order(channel_axis(source, node), len(shape)))
        )
    except UnsupportedError:
        return None
    if order == CHANNELS_FIRST:
        image = image_shape(shape)
        return None if image is None else (path, image, order, shape)
    height = shape[1] if len(shape) == 4 else 1
    return path, (height, size(shape[:-1]) // height, shape[-1]), order, shape
