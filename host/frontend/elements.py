"""Operators that move elements: tracking the place of each element, and adding layers that move them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ..graph import Int8, MaxPool, Rearrange, Slice, Window, copies
from ..graph.geometry import composed
from ..model.executed import Transposed, uncut_size
from ..model.onnx_graph import attributes_of
from .build import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Build,
    Place,
    Shape3,
    image_place,
    image_shape,
    permutation_of,
    same_order,
    show,
    transposed,
    window_of,
)
from .classify import is_choice, is_layout
from .fragments import CROP, MOVES, POOLING, Fragment, label
from .lowering.lowering import OperatorLowering, Runs, refuses
from .source import Source, UnsupportedError

#: int64 of the ONNX tensor's shape: the index of each element in the graph's tensor; negative where it is none of its
#: elements.
Elements = npt.NDArray[np.int64]


def elements_of(place: Place, shape: Shape3) -> Elements:
    """Return the elements of an ONNX tensor that is a view of a feature map of ``shape``."""
    if place.order is not None:
        return place.order.reshape(place.shape)
    return np.arange(np.prod(shape)).reshape(shape).transpose(place.axes).reshape(place.shape)


def place_with(tensor: str, elements: Elements, shape: Shape3, mover: NodeProto) -> Place:
    """Return the place of an operator's result with these elements of a feature map of ``shape``."""
    every = np.arange(np.prod(shape)).reshape(shape)
    for axes in itertools.permutations(range(3)) if elements.size == every.size else ():
        if np.array_equal(every.transpose(axes).reshape(-1), elements.reshape(-1)):
            return Place(tensor, axes, elements.shape)
    return Place(tensor, CHANNELS_LAST, elements.shape, elements.reshape(-1), mover)


def settle(build: Build, place: Place, name: str, like: str) -> Place:
    """Add the layer that moves the elements of an ONNX tensor into a feature map in normal order.

    Parameters
    ----------
    build : Build
    place : Place
    name : str
        Name of the feature map.
    like : str
        ONNX tensor with its scale and zero point.

    Raises
    ------
    UnsupportedError
        If they take too many pieces.
    """
    if place.order is None:
        return place
    if place.tensor == name:
        place = dataclasses.replace(place, tensor=_renamed(build, name))
    moved = as_map(elements_of(place, build.shape_of(place)))
    add_arrangement(build, [place.tensor], moved, name, like, place.mover)
    return settled_place(name, place.shape)


def settle_inputs(build: Build, fragment: Fragment) -> None:
    """Add layers that move the inputs of a fragment into normal order, where layout operators have moved elements."""
    for name in fragment.inputs:
        if build.places[name].order is not None:
            build.add_view(name, settle(build, build.places[name], name, name))


def settle_output(build: Build, name: str) -> str:
    """Return the tensor of the graph for an ONNX tensor that the host reads, and add its pending move."""
    if not build.graph.tensors[build.places[name].tensor].views:
        build.add_view(name, settle(build, build.places[name], name, name))
    return build.places[name].tensor


def settled_place(name: str, shape: tuple[int, ...]) -> Place:
    """Return the place of an ONNX tensor of a shape in a feature map in normal order."""
    return Place(name, _order(shape), shape)


@refuses(f"elements have to move, in more than {copies.MOST_PIECES:,} pieces")
def add_arrangement(
    build: Build,
    sources: list[str],
    moved: Elements,
    name: str,
    like: str | None,
    node: NodeProto | None,
    *,
    what: str = "",
    table: Int8 | None = None,
) -> None:
    """Add the layer that copies elements of feature maps, which are numbered through all of them.

    Parameters
    ----------
    build : Build
    sources : list of str
        The feature maps.
    moved : int64[height, width, channels]
    name : str
        Name of the result.
    like : str or None
        ONNX tensor with its scale and zero point; None for those of the first source.
    node : NodeProto or None
        The operator that moves them; None where it is a Reshape of a map.
    what : str
        The layer's kind: by default a shuffle or an arrangement.
    table : int8[256] or None
        The table for the codes of the sources.
    """
    tensors = [build.graph.tensors[source] for source in sources]
    own = name if node is None else node.name
    layer = copies.arrange(own, what, sources, name, [tensor.shape for tensor in tensors], moved)
    if layer is None:
        moves = f"{'a Reshape' if node is None else label(node)} moves elements of {sources[0]!r}"
        raise UnsupportedError(
            f"{moves} ({show(tensors[0].shape)}, height x width x channels) to {show(moved.shape)} in more than "
            f"{copies.MOST_PIECES} pieces",
            "move whole rows, columns or channels, or move them at an end of the network",
        )
    if table is not None:
        pieces = tuple(
            dataclasses.replace(part, table=composed(table, part.table)) if part.code is None else part
            for part in layer.pieces
        )
        layer = dataclasses.replace(layer, pieces=pieces)
    if like is None:
        build.graph.tensors[name] = dataclasses.replace(tensors[0], name=name, shape=moved.shape, views=())
    else:
        build.add_tensor(name, moved.shape, like)
    build.graph.layers.append(layer)


def as_image(build: Build, node: NodeProto, place: Place) -> Place:
    """Return a place with the channels of an image [1, channels, height, width] or [1, channels, width] last.

    A layer moves them if necessary; a tensor that is not an image stays unchanged.
    """
    wanted, shape = image_shape(place.shape), build.shape_of(place)
    fits = wanted == shape and place.order is None and same_order(place.axes, CHANNELS_FIRST, shape)
    return place if wanted is None or fits else _moved(build, node, place, as_map(elements_of(place, shape)))


def as_rows(build: Build, node: NodeProto, place: Place) -> Place:
    """Return a place whose last axis is the channels of the feature map, with a layer that moves them if necessary."""
    shape, features = build.shape_of(place), place.shape[-1]
    if shape[2] == features and place.order is None and same_order(place.axes, CHANNELS_LAST, shape):
        return place
    return _moved(build, node, place, elements_of(place, shape).reshape(1, -1, features), CHANNELS_LAST)


def as_other(build: Build, node: NodeProto, place: Place, other: Place) -> Place:
    """Return a place with the layout of another one, broadcast as in ONNX, with a layer if necessary."""
    ends = [build.shape_of(one) for one in (place, other)]
    here, there = (elements_of(one, shape) for one, shape in zip((place, other), ends, strict=True))
    here = np.broadcast_to(here, other.shape)
    if ends[0] == ends[1] and np.array_equal(here, there):
        return dataclasses.replace(place, axes=other.axes)
    moved = np.empty(there.size, np.int64)
    moved[there.reshape(-1)] = here.reshape(-1)
    return dataclasses.replace(_moved(build, node, place, moved.reshape(ends[1])), axes=other.axes, shape=other.shape)


def _moved(build: Build, node: NodeProto, place: Place, moved: Elements, axes: Shape3 = CHANNELS_FIRST) -> Place:
    """Add a layer that moves elements for one node only, and return the new place."""
    key = place.tensor, node.name
    if key not in build.made:
        build.made[key] = build.own_name(f"{place.tensor} for {node.name}")
        add_arrangement(build, [place.tensor], moved, build.made[key], None, place.mover)
    return Place(build.made[key], axes, place.shape)


def channels_of(build: Build, node: NodeProto, name: str, first: int, channels: int) -> str:
    """Add a tensor of some channels of another one, for one node only."""
    tensor = build.graph.tensors[name]
    if channels == tensor.shape[2]:
        return name
    key = name, first, node.name
    if key not in build.made:
        part = build.made[key] = build.own_name(f"{name} from channel {first} for {node.name}")
        build.graph.tensors[part] = dataclasses.replace(
            tensor, name=part, shape=(*tensor.shape[:2], channels), views=()
        )
        build.graph.layers.append(Slice(node.name, (name,), part, first, channels))
    return build.made[key]


def as_map(elements: Elements) -> Elements:
    """Reshape an array of an ONNX tensor's shape to [height, width, channels]."""
    if _order(elements.shape) == CHANNELS_FIRST:
        height, width, channels = image_shape(elements.shape)
        return elements.reshape(channels, height, width).transpose(1, 2, 0)
    return elements.reshape(1, -1, elements.shape[-1])


def _order(shape: tuple[int, ...]) -> Shape3:
    """Return the order of axes, which has the channels first in an image."""
    return CHANNELS_LAST if image_shape(shape) is None else CHANNELS_FIRST


def _renamed(build: Build, name: str) -> str:
    """Rename a tensor of the graph that is not yet one of the model's."""
    graph, other = build.graph, build.own_name(f"{name} unmoved")
    tensor = graph.tensors.pop(name)
    assert not tensor.views, f"{name} is a tensor of the model"
    graph.tensors[other] = dataclasses.replace(tensor, name=other)
    graph.layers = [
        dataclasses.replace(layer, output=other) if layer.output == name else layer for layer in graph.layers
    ]
    return other


# Operators that move elements of a feature map: nearest upsampling, depth to space, space to depth, crops.

#: Coordinates in the input for elements of the result, as in ONNX's Resize: functions of outputs, their number, that of
#: the inputs, and the scale.
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
    names, given = (node.name, source, output), attributes_of(node)
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
    """Return rows and columns that a Slice removes above, to the left, below and to the right."""
    rank = len(source.shapes[node.input[0]])
    starts = source.constants[node.input[1]].tolist()
    axes = source.constants[node.input[3]].tolist() if len(node.input) > 3 and node.input[3] else range(rank)
    first = dict(zip((axis % rank for axis in axes), starts, strict=True))
    sizes = source.shapes[node.input[0]]
    start = {axis: max(at + sizes[axis], 0) if at < 0 else at for axis, at in first.items()}
    top, left = (0, *(start.get(axis, 0) for axis in range(2, rank)))[-2:]
    return top, left, shape[0] - top - target[0], shape[1] - left - target[1]


def _factors(source: Source, node: NodeProto, shape: Shape3, target: Shape3) -> tuple[int, int]:
    """Return how often a Resize repeats each row and column, if it does nothing else."""
    given, mode = attributes_of(node), attributes_of(node).get("mode", b"nearest").decode()
    if mode != "nearest" or given.get("antialias", 0):
        raise UnsupportedError(
            f"{label(node)} interpolates (mode {mode})", "upsample with mode nearest, or by a transposed convolution"
        )
    # Before operator set 11 there is no other mode.
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
    """Return the vertical and horizontal scale, as given or from the sizes."""
    at = 1 if len(node.input) == 2 else 2
    scales = source.constants.get(node.input[at]) if at < len(node.input) else None
    if scales is None or not scales.size:
        return target[0] / shape[0], target[1] / shape[1]
    rank = len(source.shapes[node.input[0]])
    axes = [axis % rank for axis in attributes_of(node).get("axes", range(rank))]
    of_axis = dict.fromkeys(range(rank), 1.0) | dict(zip(axes, scales.tolist(), strict=True))
    return (1.0, *(of_axis[axis] for axis in range(2, rank)))[-2:]


# Evaluation of moving operators on arrays of element indices.

_PAD_MODES = {"constant": "constant", "edge": "edge", "reflect": "reflect", "wrap": "wrap"}


def moved_by(source: Source, node: NodeProto, elements: Elements) -> list[Elements]:
    """Return the outputs of an operator that moves elements, as arrays of elements.

    Raises
    ------
    UnsupportedError
        If its parameters are not constant.
    """
    given, operator = attributes_of(node), node.op_type
    constants = [source.constants.get(name) for name in node.input[1:]]
    if any(name and value is None for name, value in zip(node.input[1:], constants, strict=True)):
        raise UnsupportedError(f"what {label(node)} moves where must be constant")
    if operator == "Transpose":
        return [elements.transpose(permutation_of(node, elements.ndim))]
    if operator == "Gather":
        return [elements.take(constants[0].astype(np.int64), axis=given.get("axis", 0))]
    if operator == "GatherND" and not given.get("batch_dims", 0):
        return [elements[tuple(np.moveaxis(constants[0], -1, 0))]]
    if operator == "Split":
        sizes = [source.shapes[name][given.get("axis", 0)] for name in node.output]
        return np.split(elements, np.cumsum(sizes)[:-1], axis=given.get("axis", 0))
    if operator == "Slice":
        return [elements[_taken(given, constants, elements.ndim)]]
    if operator == "Pad":
        return [_padded(given, constants, elements, label(node))]
    return [elements.reshape(source.shapes[node.output[0]])]


def _taken(given: dict[str, object], constants: list[np.ndarray | None], rank: int) -> tuple[slice, ...]:
    names = ("starts", "ends", "axes", "steps")
    bounds = {name: given.get(name) for name in names}
    bounds |= {name: value.tolist() for name, value in zip(names, constants, strict=False) if value is not None}
    count = len(bounds["starts"])
    axes, steps = bounds["axes"] or range(count), bounds["steps"] or [1] * count
    taken = [slice(None)] * rank
    for axis, start, end, step in zip(axes, bounds["starts"], bounds["ends"], steps, strict=True):
        taken[axis] = slice(start, end, step)
    return tuple(taken)


def _padded(given: dict[str, object], constants: list[np.ndarray | None], elements: Elements, name: str) -> Elements:
    mode, rank = given.get("mode", b"constant").decode(), elements.ndim
    pads = constants[0].tolist() if constants else given["pads"]
    axes = range(rank) if len(constants) < 3 or constants[2] is None else constants[2].tolist()
    widths = np.zeros((rank, 2), np.int64)
    for at, axis in enumerate(axes):
        widths[axis] = pads[at], pads[len(axes) + at]
    kept = tuple(
        slice(max(-before, 0), size - max(-after, 0))
        for (before, after), size in zip(widths, elements.shape, strict=True)
    )
    if mode not in _PAD_MODES:
        raise UnsupportedError(f"{name} pads with mode {mode}", f"pad with one of {', '.join(_PAD_MODES)}")
    fill = {"constant_values": -1} if mode == "constant" else {}
    return np.pad(elements[kept], np.maximum(widths, 0), _PAD_MODES[mode], **fill)


# Chains of operators on codes: layout operators, max pooling and moves of elements, lowered in order.


def follow_trunk(build: Build, nodes: list[NodeProto], place: Place, like: str, output: str | None = None) -> Place:
    """Lower layout operators, max pooling and moves in a row.

    Parameters
    ----------
    build : Build
    nodes : list of NodeProto
        In order of execution.
    place : Place
        Place of the first node's input.
    like : str
        ONNX tensor with the scale and zero point of the results.
    output : str or None
        Name of the last layer's result, by default that of its float tensor.
    """
    makers = [node for node in nodes if not is_layout(build.source, node)]
    for node in nodes:
        # Pointwise operators may have added leading dimensions of one element.
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
    """Return the place after successive layout operators; no layer is added, even where they move elements."""
    for node in nodes:
        # Pointwise operators may have added leading dimensions of one element.
        place = follow_layout(build, node, dataclasses.replace(place, shape=build.source.shapes[node.input[0]]))
    return place


def follow_layout(build: Build, node: NodeProto, place: Place) -> Place:
    """Return the place after an operator that reshapes, reorders or selects elements; no layer is added."""
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
        kernel = tuple(attributes_of(node)["kernel_shape"])
        window = window_of(node, kernel, len(onnx_shape) - 2, shape, output_shape)
    build.add_tensor(output, output_shape, like)
    build.graph.layers.append(MaxPool(node.name, (place.tensor,), output, window=window))
    return Place(output, CHANNELS_FIRST, onnx_shape)


def _reduced(source: Source, node: NodeProto, shape: Shape3) -> tuple[int, int]:
    """Return the window of a ReduceMax on a feature map of ``shape``."""
    rank, axes = len(source.shapes[node.input[0]]), attributes_of(node).get("axes")
    if len(node.input) > 1 and node.input[1]:
        axes = source.constants[node.input[1]].reshape(-1).tolist() if node.input[1] in source.constants else None
    reduced = {int(axis) % rank for axis in axes or range(rank)}
    if min(reduced) < rank - 2 or min(reduced) < 2:
        raise UnsupportedError(
            f"{label(node)} takes the greatest over the axes {sorted(reduced)} of a tensor of rank {rank}",
            "take it over rows and columns alone",
        )
    return tuple(size if rank - 2 + at in reduced else 1 for at, size in enumerate(shape[:2]))


#: Operators of a chain that become layers: poolings, and moves of elements.
STEPS: tuple[OperatorLowering, ...] = (
    OperatorLowering(lower_pool, POOLING, Runs.LAYER, (MaxPool,), title="max pooling"),
    OperatorLowering(lower_move, (*MOVES, *CROP), Runs.COPY, (Rearrange,), title="moves of elements of a feature map"),
)


# Geometry of a ConvTranspose, with the borders that ONNX Runtime chooses.


def geometry_of(source: Source, node: NodeProto) -> Transposed:
    """Return the geometry of a ConvTranspose on one or two spatial dimensions.

    Raises
    ------
    UnsupportedError
        If it has more dimensions.
    """
    shapes = [source.shapes[name] for name in (node.input[0], node.output[0])]
    images = [image_shape(shape) for shape in shapes]
    if None in images:
        raise UnsupportedError(
            f"{label(node)} must work on one or two spatial dimensions, not on shape {list(shapes[0])}"
        )
    before, after = (image[:2] for image in images)
    rank, given = len(shapes[0]) - 2, attributes_of(node)
    lead = (1,) * (2 - rank)
    kernel = lead + tuple(source.constants[node.input[1]].shape[2:])
    strides, dilations = (lead + tuple(given.get(name, (1,) * rank)) for name in ("strides", "dilations"))
    begin = (0,) * (2 - rank) + tuple(given.get("pads", (0,) * rank)[:rank])
    auto = given.get("auto_pad", b"NOTSET")
    if auto != b"NOTSET" or "output_shape" in given:
        more = (0,) * (2 - rank) + tuple(given.get("output_padding", (0,) * rank))
        totals = [
            max(uncut_size(before[axis], kernel[axis], strides[axis], dilations[axis], more[axis]) - size, 0)
            for axis, size in enumerate(after)
        ]
        begin = tuple(total // 2 if auto == b"SAME_UPPER" else total - total // 2 for total in totals)
    return Transposed(kernel, strides, dilations, begin, before, after, given.get("group", 1))
