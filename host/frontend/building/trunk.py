"""The trunk: layout operators, max pooling and moves of elements, which work on codes, lowered one after the other."""

from __future__ import annotations

import dataclasses

from onnx import NodeProto

from ...graph import MaxPool, Rearrange, Window
from ..fragments.fragments import CROP, MOVES, POOLING, label
from ..fragments.lowering import Lowering, Runs, refuses
from ..fragments.moves import is_choice, is_layout
from ..reading.errors import UnsupportedError
from ..reading.source import Source
from .build import Build, attributes, image_place, permutation_of, window_of
from .elements import as_image, elements_of, place_with, settle
from .layout import CHANNELS_FIRST, Place, Shape3, image_shape, transposed
from .moved import moved_by
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
    makers = [node for node in nodes if not is_layout(build.source, node)]
    for node in nodes:
        # Pointwise operators may have added dimensions of one element in front.
        place = dataclasses.replace(place, shape=build.source.shapes[node.input[0]])
        if is_layout(build.source, node):
            place = follow_layout(build, node, place)
        else:
            place = settle(build, place, node.input[0], like)
            last = output is not None and node is makers[-1]
            place = as_image(build, node, place)
            step = next(step for step in STEPS if node.op_type in step.operators)
            place = step.lower(build, node, place, output if last else node.output[0], like)
    name = output or (nodes[-1].output[0] if nodes else "")
    return settle(build, place, name, like)


def follow_layouts(build: Build, nodes: list[NodeProto], place: Place) -> Place:
    """The place after layout operators in a row: no layer is added, even where they move elements."""
    for node in nodes:
        # Pointwise operators may have added dimensions of one element in front.
        place = follow_layout(build, node, dataclasses.replace(place, shape=build.source.shapes[node.input[0]]))
    return place


def follow_layout(build: Build, node: NodeProto, place: Place) -> Place:
    """The place after an operator that changes shape or order of elements, or chooses some: no layer is added."""
    shape, feature_shape = build.source.shapes[node.output[0]], build.shape_of(place)
    if node.op_type != "Transpose" and not is_choice(build.source, node):
        return dataclasses.replace(place, shape=shape)
    if node.op_type == "Transpose" and place.order is None:
        permutation = permutation_of(node, len(shape))
        axes = transposed(place.axes, place.shape, permutation, feature_shape)
        if axes is not None:
            return Place(place.tensor, axes, shape)
    (elements,) = moved_by(build.source, node, elements_of(place, feature_shape))
    return place_with(place.tensor, elements, feature_shape, node)


@refuses(
    "it returns indices",
    "it takes the greatest over channels",
    "its input is no feature map with one or two spatial dimensions",
)
def lower_pool(build: Build, node: NodeProto, place: Place, output: str, like: str) -> Place:
    """Add the layer of a MaxPool or ReduceMax; its result becomes the graph's tensor ``output``."""
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


#: What follows a trunk as layers: poolings, and moves of elements.
STEPS: tuple[Lowering, ...] = (
    Lowering(lower_pool, POOLING, Runs.LAYER, (MaxPool,), title="max pooling"),
    Lowering(lower_move, (*MOVES, *CROP), Runs.COPY, (Rearrange,), title="moves of elements of a feature map"),
)
