"""The graph under construction: the place of every ONNX tensor in it, and the checks of added layers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto

from ..graph import Graph, Int8, Tensor, View, Window, own_name
from ..graph.evaluate import to_onnx
from ..graph.tabulate import CODES, open_part, tabulate
from ..model.executed import open_session
from ..model.model import Model
from ..model.onnx_graph import attributes_of
from .classify import quantisation
from .fragments import Fragment, Kind, label
from .source import Source, UnsupportedError, cut

# Layout arithmetic: the layout of an ONNX tensor in a feature map, with which many reshapes and transposes cost
# nothing.
#
# A :class:`Place` means ``onnx = codes[height, width, channels].transpose(axes).reshape(shape)``. A reshape changes
# ``shape`` alone; a transpose that keeps whole axes together changes ``axes`` as well; both need no layer then. Other
# moves of bytes are kept as an ``order`` of elements, until an operator needs the elements in place.

Shape = tuple[int, ...]
Shape3 = tuple[int, int, int]

CHANNELS_FIRST: Shape3 = (2, 0, 1)
CHANNELS_LAST: Shape3 = (0, 1, 2)


@dataclass(frozen=True)
class Place:
    """An ONNX tensor of ``shape`` as a view of the graph's tensor ``tensor``; see the module.

    With an ``order``, int64[elements], ``onnx = codes.reshape(-1)[order].reshape(shape)`` instead; ``mover`` is the
    operator that changed it last.
    """

    tensor: str
    axes: Shape3
    shape: tuple[int, ...]
    order: npt.NDArray[np.int64] | None = field(default=None, compare=False, repr=False)
    mover: NodeProto | None = field(default=None, compare=False, repr=False)


def ordered_axes(axes: Shape3, feature_shape: Shape3) -> tuple[int, ...]:
    """Return the axes with more than one element, in memory order of the ONNX tensor; equal axes mean equal bytes."""
    return tuple(axis for axis in axes if feature_shape[axis] > 1)


def same_order(one: Shape3, other: Shape3, feature_shape: Shape3) -> bool:
    """Return whether two orders of the axes give the same bytes."""
    return ordered_axes(one, feature_shape) == ordered_axes(other, feature_shape)


def transposed(axes: Shape3, shape: Shape, permutation: Shape, feature_shape: Shape3) -> Shape3 | None:
    """Return the order of the axes after a transpose.

    Parameters
    ----------
    axes, shape
        The tensor that is transposed, as in :class:`Place`.
    permutation : tuple of int
        The permutation of an ONNX Transpose.
    feature_shape : tuple of int
        (height, width, channels).

    Returns
    -------
    tuple of int or None
        The order; None if a dimension holds a part of an axis, so that the transpose must move bytes.
    """
    groups = _axes_of_dimensions(ordered_axes(axes, feature_shape), shape, feature_shape)
    kept = [dimension for dimension in permutation if shape[dimension] > 1]
    if groups is None:
        return axes if kept == sorted(kept) else None
    moved = [axis for dimension in kept for axis in groups[dimension]]
    return (*moved, *(axis for axis in axes if axis not in moved))


def _axes_of_dimensions(ordered: Shape, shape: Shape, feature_shape: Shape3) -> list[list[int]] | None:
    """Return the axes that each dimension consists of, or None if a dimension does not consist of whole axes."""
    groups, rest = [], list(ordered)
    for size in shape:
        group: list[int] = []
        while math.prod(feature_shape[axis] for axis in group) < size and rest:
            group.append(rest.pop(0))
        if math.prod(feature_shape[axis] for axis in group) != size:
            return None
        groups.append(group)
    return groups


def inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    """Return the inverse of a permutation."""
    return tuple(permutation.index(axis) for axis in range(len(permutation)))


def image_shape(shape: tuple[int, ...]) -> Shape3 | None:
    """Return (height, width, channels) of an ONNX tensor [1, channels, height, width] or [1, channels, width], else
    None."""
    if len(shape) == 4 and shape[0] == 1:
        return shape[2], shape[3], shape[1]
    if len(shape) == 3 and shape[0] == 1:
        return 1, shape[2], shape[1]
    return None


@dataclass
class Build:
    """State of the lowering.

    Attributes
    ----------
    source : Source
    graph : Graph
    places : dict of str to Place
        Places of the ONNX tensors that have been lowered.
    made : dict of tuple to str
        Tensors that were made for a node, by their source and the node, so that each is made once.
    """

    source: Source
    graph: Graph
    places: dict[str, Place] = field(default_factory=dict)
    made: dict[tuple[str | int, ...], str] = field(default_factory=dict)

    def copy(self) -> Build:
        """Return a build whose additions leave this one as it is."""
        graph = self.graph
        own = dataclasses.replace(
            graph,
            tensors={**graph.tensors},
            layers=[*graph.layers],
            inputs=[*graph.inputs],
            outputs=[*graph.outputs],
        )
        return Build(self.source, own, {**self.places}, {**self.made})

    def own_name(self, wanted: str) -> str:
        """Return a name for a new tensor that neither the model nor the graph has."""
        return own_name(wanted, self.source.shapes, self.source.constants, self.graph.tensors)

    def shape_of(self, place: Place) -> Shape3:
        """Return (height, width, channels) of the tensor that a place views."""
        return self.graph.tensors[place.tensor].shape

    def add_tensor(self, name: str, shape: Shape3, like: str) -> None:
        """Add a tensor of the graph with the scale and zero point of the ONNX tensor ``like``."""
        scale, zero_point = quantisation(self.source, like)
        self.graph.tensors[name] = Tensor(name, shape, scale, zero_point, ())

    def add_view(self, name: str, place: Place) -> None:
        """Set the place of an ONNX tensor of codes; it is a view of the graph's tensor unless its elements have yet to
        move."""
        self.places[name] = place
        if place.order is not None:
            return
        tensor = self.graph.tensors[place.tensor]
        view = View(name, place.shape, place.axes, self.source.types[name] == np.uint8)
        self.graph.tensors[place.tensor] = dataclasses.replace(tensor, views=(*tensor.views, view))


def permutation_of(node: NodeProto, rank: int) -> tuple[int, ...]:
    """Return the permutation of a Transpose."""
    return tuple(attributes_of(node).get("perm", range(rank)[::-1]))


def image_place(build: Build, node: NodeProto, place: Place) -> Shape3:
    """Return (height, width, channels) of a spatial operator's input, which has the layout of an image.

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
    """Return a shape as text for messages."""
    return "x".join(map(str, shape))


def window_of(node: NodeProto, kernel: tuple[int, ...], rank: int, input_shape: Shape3, output_shape: Shape3) -> Window:
    """Return the geometry of a convolution or pooling, with the padding that its windows really reach below and to the
    right.

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
    given = attributes_of(node)
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
    """Return the rows and columns before the first window of a convolution.

    There are some where ``auto_pad`` is SAME_UPPER or SAME_LOWER and the stride is larger than the kernel: ONNX Runtime
    computes a negative padding then. Its rounding of the half was found by trial (onnxruntime 1.31).
    """
    rounding = {b"SAME_UPPER": 1, b"SAME_LOWER": 2}.get(attributes_of(node).get("auto_pad", b""))
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


# Tables of parts of the model, and the comparison of a fragment's layers with the fragment in ONNX Runtime.


def table_of(model: onnx.ModelProto, ahead: Mapping[str, Int8] | None = None) -> Int8:
    """Return the table of a part of the model, see :func:`~lutterfly.host.graph.tabulate.tabulate`.

    Raises
    ------
    UnsupportedError
        If ONNX Runtime's result for a code depends on its position.
    """
    try:
        return tabulate(model, ahead)
    except ValueError as error:
        raise UnsupportedError(f"it cannot be a table: {error}", "replace the operator") from error


def are_powers_of_two(numbers: npt.ArrayLike) -> bool:
    """Return whether all numbers are powers of two, so that multiplication by them does not round."""
    return bool((np.frexp(numbers)[0] == 0.5).all())


def check_layers(build: Build, fragment: Fragment, first_layer: int, values: Mapping[str, Int8] | None = None) -> None:
    """Compare a fragment in ONNX Runtime with its layers, on codes in random order.

    Parameters
    ----------
    build : Build
    fragment : Fragment
        A fragment whose outputs have places.
    first_layer : int
        Index of its first layer in the graph; all layers from there on are its own.
    values : mapping of str to int8[height, width, channels]
        Codes of the graph's tensors that they read, by default random ones.

    Raises
    ------
    UnsupportedError
        If a byte of an output differs.
    """
    source = build.source
    shapes = {name: source.shapes[name] for name in fragment.inputs}
    part = cut(source, fragment.nodes, shapes, fragment.outputs)
    # On processors whose kernels for products saturate, ONNX Runtime must use others.
    session = (
        open_session(Model.written(part)) if fragment.kind in (Kind.LINEAR, Kind.MATRIX_PRODUCT) else open_part(part)
    )
    # Two ONNX tensors may be views of one tensor.
    read = dict.fromkeys(build.places[name].tensor for name in fragment.inputs)
    values = dict(values or {name: random_codes(build, name, seed) for seed, name in enumerate(read)})
    feeds = {name: to_onnx(_view(build, name), values[build.places[name].tensor]) for name in fragment.inputs}
    for layer in build.graph.layers[first_layer:]:
        values |= layer.evaluate(values, build.graph.tensors)
    for name, expected in zip(fragment.outputs, session.run(fragment.outputs, feeds), strict=True):
        result = to_onnx(_view(build, name), values[build.places[name].tensor])
        if result.tobytes() != expected.tobytes():
            raise UnsupportedError(
                f"ONNX Runtime gives other bytes for {fragment.label} than its layers here",
                "replace the operator, and report the model",
            )


def random_codes(build: Build, tensor: str, seed: int = 0) -> Int8:
    """Return codes of a tensor of the graph in random order: all 256, if it has that many elements."""
    generator = np.random.default_rng(seed)
    codes = np.resize(generator.permutation(CODES), build.graph.tensors[tensor].shape)
    generator.shuffle(codes.reshape(-1))
    return codes


def _view(build: Build, name: str) -> View:
    place = build.places[name]
    return View(name, place.shape, place.axes, build.source.types[name] == np.uint8, order=place.order)


# The functions that a fragment computes beside an operator that moves codes, as tables.


def tabulate_past(source: Source, fragment: Fragment, replacement: NodeProto, end: str) -> Int8:
    """Return the table int8[256] from the codes of an input to an output, with a node replaced by one with the same
    result."""
    above, path = {end}, []
    for node in reversed(fragment.nodes):
        if not above & set(node.output):
            continue
        chosen = replacement if set(node.output) & set(replacement.output) else node
        path.append(chosen)
        above |= set(chosen.input)
    start = next(name for name in fragment.inputs if name in above)
    return table_of(cut(source, path[::-1], {start: ["codes"]}, [end]))


def ancestors(source: Source, fragment: Fragment, end: str) -> set[str]:
    """Return the tensors of a fragment that an output depends on."""
    found = {end}
    for node in reversed(fragment.nodes):
        if found & set(node.output):
            found |= set(source.dynamic_inputs(node))
    return found
