"""The trunk: layout operators, max pooling and moves of elements, which work on codes, lowered one after the other."""

from __future__ import annotations

from onnx import NodeProto

from ...graph import MaxPool, Window
from ..fragments.fragments import LAYOUT, POOLING, label
from ..reading.errors import UnsupportedError
from ..reading.source import Source
from .build import Build, attributes, follow_layout, image_place, window_of
from .layout import CHANNELS_FIRST, Place, Shape3, image_shape
from .moves import lower_move


def follow_trunk(build: Build, nodes: list[NodeProto], place: Place, like: str, output: str | None = None) -> Place:
    """Lower layout operators, max pooling and moves in a row.

    Parameters
    ----------
    build : Build
    nodes : list of NodeProto
        In order of execution.
    place : Place
        Of the first node's input.
    like : str
        ONNX tensor with the scale and zero point of the results.
    output : str or None
        Name of the last layer's result, by default that of its float tensor.
    """
    makers = [node for node in nodes if node.op_type not in LAYOUT]
    for node in nodes:
        # Pointwise operators may have added dimensions of one element in front.
        place = Place(place.tensor, place.axes, build.source.shapes[node.input[0]])
        if node.op_type in LAYOUT:
            place = follow_layout(build, node, place)
        else:
            last = output is not None and node is makers[-1]
            lower = lower_pool if node.op_type in POOLING else lower_move
            place = lower(build, node, place, output if last else node.output[0], like)
    return place


def lower_pool(build: Build, node: NodeProto, place: Place, output: str, like: str) -> Place:
    """Add the layer of a MaxPool or ReduceMax; its result becomes the graph's tensor ``output``.

    Raises
    ------
    UnsupportedError
        If it returns indices, cannot read its input as it lies, or compares channels.
    """
    if len([name for name in node.output if name]) > 1:
        raise UnsupportedError(f"{label(node)} must not return indices", "remove its second output")
    shape = image_place(build, node, place)
    onnx_shape = build.source.shapes[node.output[0]]
    if node.op_type == "ReduceMax":
        window = Window(_reduced(build.source, node, shape))
        output_shape = (*window.output_size(*shape[:2]), shape[2])
    else:
        output_shape = image_shape(onnx_shape)
        kernel = tuple(attributes(node)["kernel_shape"])
        window = window_of(node, kernel, len(onnx_shape) - 2, shape, output_shape)
    build.add_tensor(output, output_shape, like)
    build.graph.layers.append(MaxPool(node.name, (place.tensor,), output, window=window))
    return Place(output, CHANNELS_FIRST, onnx_shape)


def _reduced(source: Source, node: NodeProto, shape: Shape3) -> tuple[int, int]:
    """Rows and columns of which a ReduceMax takes the greatest, from a feature map of ``shape``."""
    rank, axes = len(source.shapes[node.input[0]]), attributes(node).get("axes")
    if len(node.input) > 1 and node.input[1]:
        axes = source.constants[node.input[1]].reshape(-1).tolist() if node.input[1] in source.constants else None
    reduced = {int(axis) % rank for axis in axes or range(rank)}
    if min(reduced) < rank - 2 or min(reduced) < 2:
        raise UnsupportedError(
            f"{label(node)} takes the greatest over the axes {sorted(reduced)} of a tensor of rank {rank}",
            "take it over rows and columns alone",
        )
    return tuple(size if rank - 2 + at in reduced else 1 for at, size in enumerate(shape[:2]))
