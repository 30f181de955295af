"""Elements: where those lie that layout operators have moved, and the layer that moves them to where they belong."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ...graph import Int8, Slice, copies
from ...graph.geometry import composed
from ..fragments.fragments import Fragment, label
from ..fragments.lowering import refuses
from ..reading.errors import UnsupportedError
from .build import Build, show
from .layout import CHANNELS_FIRST, CHANNELS_LAST, Place, Shape3, image_shape, same_order

#: int64 of the ONNX tensor's shape: which element of the graph's tensor each is, counted from the first on; negative
#: where it is none.
Elements = npt.NDArray[np.int64]


def elements_of(place: Place, shape: Shape3) -> Elements:
    """The elements of an ONNX tensor that is a view of a feature map of ``shape``."""
    if place.order is not None:
        return place.order.reshape(place.shape)
    return np.arange(np.prod(shape)).reshape(shape).transpose(place.axes).reshape(place.shape)


def place_with(tensor: str, elements: Elements, shape: Shape3, mover: NodeProto) -> Place:
    """Where an ONNX tensor lies whose elements are these of a feature map of ``shape``, by what an operator does."""
    every = np.arange(np.prod(shape)).reshape(shape)
    for axes in itertools.permutations(range(3)) if elements.size == every.size else ():
        if np.array_equal(every.transpose(axes).reshape(-1), elements.reshape(-1)):
            return Place(tensor, axes, elements.shape)
    return Place(tensor, CHANNELS_LAST, elements.shape, elements.reshape(-1), mover)


def settle(build: Build, place: Place, name: str, like: str) -> Place:
    """Add the layer that moves the elements of an ONNX tensor to where they belong in a feature map of its own.

    Parameters
    ----------
    build : Build
    place : Place
    name : str
        Of the feature map.
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
    """Move elements that layout operators have moved to where the layers of a fragment look for them."""
    for name in fragment.inputs:
        if build.places[name].order is not None:
            build.add_view(name, settle(build, build.places[name], name, name))


def settle_output(build: Build, name: str) -> str:
    """The tensor of the graph with an ONNX tensor that the host reads: where it is yet to be moved, it is now."""
    if not build.graph.tensors[build.places[name].tensor].views:
        build.add_view(name, settle(build, build.places[name], name, name))
    return build.places[name].tensor


def settled_place(name: str, shape: tuple[int, ...]) -> Place:
    """Where an ONNX tensor of a shape lies in a feature map of its own."""
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
    """Add the layer that gives elements of some feature maps, counted through all of them.

    Parameters
    ----------
    build : Build
    sources : list of str
        The feature maps.
    moved : int64[height, width, channels]
    name : str
        Of the result.
    like : str or None
        ONNX tensor with its scale and zero point; None for those of the first source.
    node : NodeProto or None
        The operator that moves them; None where it is a Reshape of a map.
    what : str
        What the layer is called: by default a shuffle or an arrangement.
    table : int8[256] or None
        What the codes of the sources are looked up in.
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
    """A place that has the channels of an image [1, channels, height, width] or [1, channels, width] last.

    A layer moves them where they are elsewhere; what is no image stays as it is.
    """
    wanted, shape = image_shape(place.shape), build.shape_of(place)
    fits = wanted == shape and place.order is None and same_order(place.axes, CHANNELS_FIRST, shape)
    return place if wanted is None or fits else _moved(build, node, place, as_map(elements_of(place, shape)))


def as_rows(build: Build, node: NodeProto, place: Place) -> Place:
    """A place whose last axis is the channels of the feature map, by a layer that moves them where need be."""
    shape, features = build.shape_of(place), place.shape[-1]
    if shape[2] == features and place.order is None and same_order(place.axes, CHANNELS_LAST, shape):
        return place
    return _moved(build, node, place, elements_of(place, shape).reshape(1, -1, features), CHANNELS_LAST)


def as_other(build: Build, node: NodeProto, place: Place, other: Place) -> Place:
    """A place whose elements lie as those of another one, as ONNX broadcasts them, by a layer where need be."""
    ends = [build.shape_of(one) for one in (place, other)]
    here, there = (elements_of(one, shape) for one, shape in zip((place, other), ends, strict=True))
    here = np.broadcast_to(here, other.shape)
    if ends[0] == ends[1] and np.array_equal(here, there):
        return dataclasses.replace(place, axes=other.axes)
    moved = np.empty(there.size, np.int64)
    moved[there.reshape(-1)] = here.reshape(-1)
    return dataclasses.replace(_moved(build, node, place, moved.reshape(ends[1])), axes=other.axes, shape=other.shape)


def _moved(build: Build, node: NodeProto, place: Place, moved: Elements, axes: Shape3 = CHANNELS_FIRST) -> Place:
    """A place in a feature map of elements that a layer moves for one node alone."""
    key = place.tensor, node.name
    if key not in build.made:
        build.made[key] = build.own_name(f"{place.tensor} for {node.name}")
        add_arrangement(build, [place.tensor], moved, build.made[key], None, place.mover)
    return Place(build.made[key], axes, place.shape)


def channels_of(build: Build, node: NodeProto, name: str, first: int, channels: int) -> str:
    """A tensor that is some channels of another one, for one node alone."""
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
    """[height, width, channels] of what has the shape of an ONNX tensor."""
    if _order(elements.shape) == CHANNELS_FIRST:
        height, width, channels = image_shape(elements.shape)
        return elements.reshape(channels, height, width).transpose(1, 2, 0)
    return elements.reshape(1, -1, elements.shape[-1])


def _order(shape: tuple[int, ...]) -> Shape3:
    """Channels stand in front in what is an image."""
    return CHANNELS_LAST if image_shape(shape) is None else CHANNELS_FIRST


def _renamed(build: Build, name: str) -> str:
    """Another name for a tensor of the graph that is not yet one of the model's."""
    graph, other = build.graph, build.own_name(f"{name} unmoved")
    tensor = graph.tensors.pop(name)
    assert not tensor.views, f"{name} is a tensor of the model"
    graph.tensors[other] = dataclasses.replace(tensor, name=other)
    graph.layers = [
        dataclasses.replace(layer, output=other) if layer.output == name else layer for layer in graph.layers
    ]
    return other
