"""The graph under construction: where every ONNX tensor lies, and what becomes of layout operators."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto

from ...graph import Graph, Tensor, View, Window, own_name
from ..fragments.fragments import label
from ..fragments.quantisation import quantisation
from ..reading.errors import UnsupportedError
from ..reading.source import Source
from .layout import CHANNELS_FIRST, Place, Shape3, image_shape, same_order


@dataclass
class Build:
    """State of the lowering.

    Attributes
    ----------
    source : Source
    graph : Graph
    places : dict of str to Place
        Where the ONNX tensors lie that have been lowered.
    made : dict of tuple to str
        Tensors of which a node needs one only, by what they are.
    """

    source: Source
    graph: Graph
    places: dict[str, Place] = field(default_factory=dict)
    made: dict[tuple[str | int, ...], str] = field(default_factory=dict)

    def own_name(self, wanted: str) -> str:
        """A name for a tensor that the model does not have, which is neither one of the model's nor of the graph's."""
        return own_name(wanted, self.source.shapes, self.source.constants, self.graph.tensors)

    def shape_of(self, place: Place) -> Shape3:
        """(height, width, channels) of the tensor that a place views."""
        return self.graph.tensors[place.tensor].shape

    def add_tensor(self, name: str, shape: Shape3, like: str) -> None:
        """Add a tensor of the graph with the scale and zero point of the ONNX tensor ``like``."""
        scale, zero_point = quantisation(self.source, like)
        self.graph.tensors[name] = Tensor(name, shape, scale, zero_point, ())

    def add_view(self, name: str, place: Place) -> None:
        """Note where an ONNX tensor of codes lies; one whose elements are to be moved yet is no view."""
        self.places[name] = place
        if place.order is not None:
            return
        tensor = self.graph.tensors[place.tensor]
        view = View(name, place.shape, place.axes, self.source.types[name] == np.uint8)
        self.graph.tensors[place.tensor] = dataclasses.replace(tensor, views=(*tensor.views, view))


def attributes(node: NodeProto) -> dict[str, object]:
    """The attributes of a node by name."""
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def permutation_of(node: NodeProto, rank: int) -> tuple[int, ...]:
    """The permutation of a Transpose."""
    return tuple(attributes(node).get("perm", range(rank)[::-1]))


def image_place(build: Build, node: NodeProto, place: Place) -> Shape3:
    """(height, width, channels) of what a spatial operator reads, which lies as an image.

    Raises
    ------
    UnsupportedError
        If it has more than two spatial dimensions.
    """
    wanted = image_shape(place.shape)
    if wanted is None:
        raise UnsupportedError(
            f"{label(node)} must work on one or two spatial dimensions, not on shape {list(place.shape)}"
        )
    shape = build.shape_of(place)
    assert shape == wanted, node.name
    assert same_order(place.axes, CHANNELS_FIRST, shape), node.name
    return shape


def show(shape: tuple[int, ...]) -> str:
    """A shape in a message."""
    return "x".join(map(str, shape))


def window_of(node: NodeProto, kernel: tuple[int, ...], rank: int, input_shape: Shape3, output_shape: Shape3) -> Window:
    """Geometry of a convolution or pooling, with the borders that its windows really reach below and to the right.

    Parameters
    ----------
    node : NodeProto
    kernel : tuple of int
        One or two sizes.
    rank : int
        Spatial dimensions, 1 or 2.
    input_shape, output_shape : tuple of int
        (height, width, channels), as ONNX Runtime has them; ``ceil_mode`` and ``auto_pad`` show in the latter.
    """
    given = attributes(node)
    lead = (1,) * (2 - rank)
    kernel = lead + tuple(kernel)
    stride = lead + tuple(given.get("strides", (1,) * rank))
    dilation = lead + tuple(given.get("dilations", (1,) * rank))
    pads = given.get("pads", (0,) * (2 * rank))
    begin = [0] * (2 - rank) + list(pads[:rank])
    auto = given.get("auto_pad", b"NOTSET")
    after = []
    for axis in range(2):
        reach = (output_shape[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        missing = max(reach - input_shape[axis], 0)
        if auto == b"VALID":
            begin[axis] = 0
        elif auto in (b"SAME_UPPER", b"SAME_LOWER"):
            begin[axis] = missing // 2 if auto == b"SAME_UPPER" else missing - missing // 2
        after.append(max(reach - input_shape[axis] - begin[axis], 0))
    return Window(kernel, stride, dilation, (begin[0], begin[1], after[0], after[1]))


def skipped(node: NodeProto, window: Window, input_shape: Shape3, output_shape: Shape3) -> tuple[int, int]:
    """Rows and columns in front of the first window of a convolution.

    There are some where ``auto_pad`` is SAME_UPPER or SAME_LOWER and the stride is larger than the kernel: the border
    that ONNX Runtime computes is negative then. How it rounds the half of it is found by trial (onnxruntime 1.31).
    """
    rounding = {b"SAME_UPPER": 1, b"SAME_LOWER": 2}.get(attributes(node).get("auto_pad", b""))
    if rounding is None:
        return 0, 0
    below, beside = (
        max(
            (input_shape[axis] - (output_shape[axis] - 1) * window.stride[axis] - window.extent[axis] - rounding) // 2,
            0,
        )
        for axis in range(2)
    )
    return below, beside
