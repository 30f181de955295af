"""Lower concatenations, slices and pads along any axis: arrangements of the elements of feature maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from onnx import NodeProto, helper

from ...graph import CodeEpilogue, Concat, Graph, Int8, Layer, Pad, Pointwise, Slice, Window
from ...graph.geometry import to_codes
from ...graph.tabulate import CODES, code_offset, open_part
from ...model.onnx_graph import attributes_of
from ..build import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Build,
    Place,
    Shape3,
    ancestors,
    check_layers,
    image_shape,
    same_order,
    tabulate_past,
)
from ..classify import quantisation
from ..elements import add_arrangement, as_map, elements_of, moved_by, place_with, settle_inputs, settled_place
from ..fragments import CONCAT, PAD, SLICE, Fragment, label
from ..source import Source, UnsupportedError, cut
from .lowering import refuses


def lower_parts(build: Build, fragment: Fragment, node: NodeProto, place: Place) -> None:
    """Record the elements of each output of a Split or Slice, and add the table of each.

    Parameters
    ----------
    build : Build
    fragment : Fragment
    node : NodeProto
        The Split or Slice.
    place : Place
        Place of its input.

    Raises
    ------
    UnsupportedError
        If its parameters are not constant, or the move takes too many pieces.
    """
    source, first_layer, shape = build.source, len(build.graph.layers), build.shape_of(place)
    found = dict(zip(node.output, moved_by(source, node, elements_of(place, shape)), strict=True))
    for end in fragment.outputs:
        taken = next(name for name in node.output if name in ancestors(source, fragment, end))
        whole = helper.make_node("Identity", node.input[:1], [taken], node.name)
        table = tabulate_past(source, fragment, whole, end)
        here = place_with(place.tensor, found[taken].reshape(source.shapes[end]), shape, node)
        if not keeps(build, place.tensor, end, table):
            moved = as_map(elements_of(here, shape))
            add_arrangement(build, [place.tensor], moved, end, end, node, table=table)
            here = settled_place(end, here.shape)
        build.add_view(end, here)
    check_layers(build, fragment, first_layer)


def lower_joined(
    build: Build, fragment: Fragment, node: NodeProto, axis: int, places: Sequence[Place], tables: Sequence[Int8]
) -> None:
    """Add the layer of a concatenation along any axis, and the tables of its operands.

    Parameters
    ----------
    build : Build
    fragment : Fragment
    node : NodeProto
        The concatenation.
    axis : int
    places : sequence of Place
        Places of its operands.
    tables : sequence of int8[256]
        Tables from the codes of each operand to those of the result.

    Raises
    ------
    UnsupportedError
        If it takes too many pieces.
    """
    end, first_layer = fragment.outputs[0], len(build.graph.layers)
    names = [_tabulated(build, node, at, *operand, end) for at, operand in enumerate(zip(places, tables, strict=True))]
    first, firsts = 0, {}
    for name in dict.fromkeys(names):
        firsts[name] = first
        first += int(np.prod(build.graph.tensors[name].shape))
    joined = np.concatenate(
        [elements_of(place, build.shape_of(place)) + firsts[name] for place, name in zip(places, names, strict=True)],
        axis=axis,
    )
    _add(build, fragment, node, [*firsts], joined, "concatenation")
    check_layers(build, fragment, first_layer)


def _tabulated(build: Build, node: NodeProto, at: int, place: Place, table: Int8, end: str) -> str:
    """Return the tensor of an operand in the codes of the result."""
    if keeps(build, place.tensor, end, table):
        return place.tensor
    name = build.own_name(f"{end} operand {at}")
    build.add_tensor(name, build.shape_of(place), end)
    build.graph.layers.append(Pointwise(node.name, (place.tensor,), name, epilogue=CodeEpilogue(table=table)))
    return name


def lower_surrounded(build: Build, fragment: Fragment, node: NodeProto) -> None:
    """Add the layer of a Pad of any axes, mode and value, and a table before it where the fragment changes codes.

    Raises
    ------
    UnsupportedError
        If it takes too many pieces.
    """
    source, start, end = build.source, fragment.inputs[0], fragment.outputs[0]
    first_layer, place = len(build.graph.layers), build.places[start]
    moved = moved_by(source, node, elements_of(place, build.shape_of(place)))[0]
    if (moved < 0).any():
        # The padding value of ONNX Runtime does not depend on the codes.
        session = open_part(cut(source, fragment.nodes, {start: source.shapes[start]}, [end]))
        codes = np.zeros(source.shapes[start], source.types[start])
        (result,) = session.run([end], {start: codes})
        moved = np.where(moved < 0, -129 - to_codes(result).astype(np.int64).reshape(moved.shape), moved)
    whole = helper.make_node("Identity", node.input[:1], node.output, node.name)
    table, tensor = tabulate_past(source, fragment, whole, end), place.tensor
    if not keeps(build, tensor, end, table):
        # The padded float tensor lends its name: nothing else in the graph has it.
        tensor = node.output[0]
        build.add_tensor(tensor, build.shape_of(place), end)
        build.graph.layers.append(Pointwise(node.name, (place.tensor,), tensor, epilogue=CodeEpilogue(table=table)))
    _add(build, fragment, node, [tensor], moved, "border")
    check_layers(build, fragment, first_layer)


def _add(build: Build, fragment: Fragment, node: NodeProto, sources: list[str], moved: np.ndarray, what: str) -> None:
    end = fragment.outputs[0]
    moved = moved.reshape(build.source.shapes[end])
    add_arrangement(build, sources, as_map(moved), end, end, node, what=what)
    build.add_view(end, settled_place(end, moved.shape))


def keeps(build: Build, tensor: str, end: str, table: Int8) -> bool:
    """Return whether codes of a tensor of the graph are those of an ONNX tensor, with the same zero point."""
    return bool((table == CODES).all()) and build.graph.tensors[tensor].zero_point == quantisation(build.source, end)[1]


# Lower concatenations and slices of channels; pointwise operators beside them become tables.


@refuses("it joins a constant")
def lower_concat(build: Build, fragment: Fragment) -> None:
    """Add the layer of a concatenation."""
    source, end = build.source, fragment.outputs[0]
    node = next(node for node in fragment.nodes if node.op_type in CONCAT)
    operands = list(node.input[2::3] if node.op_type == "QLinearConcat" else node.input)
    if any(name in source.constants for name in operands):
        raise UnsupportedError(f"{label(node)} joins a constant", "join activations alone")
    axis = channel_axis(source, node)
    tables = [tabulate_past(source, fragment, _with_operand(node, at), end) for at in range(len(operands))]
    if channels_order(axis, len(source.shapes[end])) == CHANNELS_FIRST:
        settle_inputs(build, fragment)
    places = [_place_of(build, name) for name in operands]
    shapes = [build.shape_of(place) for place in places]
    if not all(_works_on_channels(build, place, axis) for place in places):
        lower_joined(build, fragment, node, axis, places, tables)
        return
    first_layer = len(build.graph.layers)
    build.add_tensor(end, (*shapes[0][:2], sum(shape[2] for shape in shapes)), end)
    build.graph.layers.append(
        Concat(
            node.name,
            tuple(place.tensor for place in places),
            end,
            tuple(None if (table == CODES).all() else table for table in tables),
        )
    )
    build.add_view(end, Place(end, channels_order(axis, len(places[0].shape)), source.shapes[end]))
    check_layers(build, fragment, first_layer)


@refuses("what it takes is no constant")
def lower_slice(build: Build, fragment: Fragment) -> None:
    """Add a layer for each output of a Split or Slice, and for each table after it."""
    source, first_layer = build.source, len(build.graph.layers)
    node = next(node for node in fragment.nodes if node.op_type in SLICE)
    place = _place_of(build, node.input[0])
    axis = channel_axis(source, node)
    ranges = None if axis is None or not _works_on_channels(build, place, axis) else _ranges(source, node, axis)
    if ranges is None:
        lower_parts(build, fragment, node, place)
        return
    for end in fragment.outputs:
        taken = next(at for at, name in enumerate(node.output) if name in ancestors(source, fragment, end))
        first, channels = ranges[taken]
        shape = (*build.shape_of(place)[:2], channels)
        whole = helper.make_node("Identity", node.input[:1], [node.output[taken]], node.name)
        table = tabulate_past(source, fragment, whole, end)
        if (table == CODES).all():
            build.add_tensor(end, shape, end)
            build.graph.layers.append(Slice(node.name, (place.tensor,), end, first, channels))
        else:
            # The float tensor before QuantizeLinear lends its name: nothing else in the graph has it.
            selected = source.producer[end].input[0]
            build.add_tensor(selected, shape, fragment.inputs[0])
            build.add_tensor(end, shape, end)
            build.graph.layers.append(Slice(node.name, (place.tensor,), selected, first, channels))
            build.graph.layers.append(
                Pointwise(source.producer[end].name, (selected,), end, epilogue=CodeEpilogue(table=table))
            )
        build.add_view(end, Place(end, channels_order(axis, len(place.shape)), source.shapes[end]))
    check_layers(build, fragment, first_layer)


def channel_axis(source: Source, node: NodeProto) -> int | None:
    """Return the axis of a concatenation, Split or Slice; None where a Slice shortens no axis or several."""
    if node.op_type == "Slice":
        ends = (source.shapes[node.input[0]], source.shapes[node.output[0]])
        changed = [axis for axis, (before, after) in enumerate(zip(*ends, strict=True)) if before != after]
        return changed[0] if len(changed) == 1 else None
    return int(attributes_of(node).get("axis", 0)) % len(source.shapes[node.output[0]])


def _place_of(build: Build, name: str) -> Place:
    """Return the place of an operand's codes, before any pointwise operators."""
    origin = name
    while origin not in build.places:
        origin = build.source.dynamic_inputs(build.source.producer[origin])[0]
    return dataclasses.replace(build.places[origin], shape=build.source.shapes[name])


def channels_order(axis: int, rank: int) -> Shape3:
    """Return the order of height, width and channels in an ONNX tensor of a rank with this channel axis."""
    return CHANNELS_FIRST if axis == 1 and rank > 2 else CHANNELS_LAST


def _works_on_channels(build: Build, place: Place, axis: int) -> bool:
    """Return whether an axis of an ONNX tensor is the channels of its feature map."""
    shape, order = build.shape_of(place), channels_order(axis, len(place.shape))
    if order == CHANNELS_FIRST:
        fits = image_shape(place.shape) == shape
    else:
        fits = axis == len(place.shape) - 1 and place.shape[axis] == shape[2]
    return place.order is None and fits and same_order(place.axes, order, shape)


def _ranges(source: Source, node: NodeProto, axis: int) -> list[tuple[int, int]] | None:
    """Return first channel and number of channels of each output; None where channels are not adjacent."""
    sizes = [source.shapes[name][axis] for name in node.output]
    if node.op_type == "Split":
        return [(sum(sizes[:at]), size) for at, size in enumerate(sizes)]
    given = attributes_of(node)
    for at, name in enumerate(("starts", "ends", "axes", "steps"), 1):
        if at < len(node.input) and node.input[at]:
            if node.input[at] not in source.constants:
                raise UnsupportedError(f"{name} of {label(node)} must be constant")
            given[name] = source.constants[node.input[at]].tolist()
    shape = source.shapes[node.input[0]]
    axes = [axis % len(shape) for axis in given.get("axes", range(len(given["starts"])))]
    at = axes.index(axis)
    taken = range(shape[axis])[given["starts"][at] : given["ends"][at] : given.get("steps", [1] * len(axes))[at]]
    return [(taken.start, len(taken))] if taken.step == 1 else None


def _with_operand(node: NodeProto, at: int) -> NodeProto:
    """Return a concatenation of a single operand."""
    inputs = (
        [*node.input[:2], *node.input[2 + 3 * at : 5 + 3 * at]] if node.op_type == "QLinearConcat" else [node.input[at]]
    )
    return helper.make_node(node.op_type, inputs, node.output, node.name, domain=node.domain, axis=0)


# Lower Pad to a layer, and merge the layer into the windows that read it.

Pads = tuple[int, int, int, int]


@refuses("its pads are no constants")
def lower_pad(build: Build, fragment: Fragment) -> None:
    """Add the layer of a Pad, and a table before it where the fragment changes codes."""
    source, start, end, first_layer = build.source, fragment.inputs[0], fragment.outputs[0], len(build.graph.layers)
    node = next(node for node in fragment.nodes if node.op_type in PAD)
    order, pads = _border(build, node, build.places[start])
    if pads is None or not _pads_with_zeros(source, node, start):
        lower_surrounded(build, fragment, node)
        return
    place, name = build.places[start], build.places[start].tensor
    height, width, channels = build.shape_of(place)
    table = tabulate_past(source, fragment, helper.make_node("Identity", node.input[:1], node.output, node.name), end)
    if not keeps(build, name, end, table):
        # The padded float tensor lends its name: nothing else in the graph has it.
        name = node.output[0]
        build.add_tensor(name, (height, width, channels), end)
        build.graph.layers.append(Pointwise(node.name, (place.tensor,), name, epilogue=CodeEpilogue(table=table)))
    window = Window((1, 1), pads=pads)
    build.add_tensor(end, (*window.output_size(height, width), channels), end)
    build.graph.layers.append(Pad(node.name, (name,), end, window=window, channels=channels))
    build.add_view(end, Place(end, order, source.shapes[end]))
    check_layers(build, fragment, first_layer)


def _pads_with_zeros(source: Source, node: NodeProto, start: str) -> bool:
    """Return whether the padding is the real number zero: for codes their zero point."""
    given = attributes_of(node)
    value = source.constants[node.input[2]] if len(node.input) > 2 and node.input[2] else given.get("value", 0.0)
    zero = 0
    if source.is_codes(node.input[0]):
        zero = quantisation(source, start)[1] + code_offset(source.types[start])
    return given.get("mode", b"constant") == b"constant" and float(np.asarray(value).item()) == zero


def _border(build: Build, node: NodeProto, place: Place) -> tuple[Shape3, Pads | None]:
    """Return the order of the axes, and the padding on each side; None where other axes are padded."""
    before, after = padded_axes(build.source, node)
    order, shape, rank = border_order(build.source, node), build.shape_of(place), len(place.shape)
    if order == CHANNELS_FIRST:
        fits, spatial = image_shape(place.shape) == shape, range(2, rank)
    else:
        fits, spatial = place.shape[1:] == shape, range(1, 3)
    fits = fits and place.order is None and same_order(place.axes, order, shape)
    if not fits or min(*before, *after) < 0 or any(before[at] or after[at] for at in {*range(rank)} - {*spatial}):
        return order, None
    (top, left), (bottom, right) = ([0, *(sizes[at] for at in spatial)][-2:] for sizes in (before, after))
    return order, (top, left, bottom, right)


def padded_axes(source: Source, node: NodeProto) -> tuple[list[int], list[int]]:
    """Return the padding of a Pad before and after each axis.

    Raises
    ------
    UnsupportedError
        If it is not constant.
    """
    rank, given = len(source.shapes[node.input[0]]), attributes_of(node)
    constants = [source.constants.get(name) for name in node.input[1:]]
    pads = given.get("pads") or (constants[0].tolist() if constants and constants[0] is not None else None)
    if pads is None:
        raise UnsupportedError(f"the pads of {label(node)} must be constant")
    axes = list(range(rank))
    if len(constants) > 2 and constants[2] is not None:
        axes = [int(axis) % rank for axis in constants[2]]
    before, after = [0] * rank, [0] * rank
    for at, axis in enumerate(axes):
        before[axis], after[axis] = pads[at], pads[len(axes) + at]
    return before, after


def border_order(source: Source, node: NodeProto) -> Shape3:
    """Return the order of height, width and channels of a Pad that does not pad channels."""
    padded = [bool(sizes[0] or sizes[1]) for sizes in zip(*padded_axes(source, node), strict=True)]
    return CHANNELS_LAST if len(padded) == 4 and padded[1] and not padded[3] else CHANNELS_FIRST


def merge_pads(graph: Graph) -> None:
    """Merge padding into the windows that read the padded tensor, where all of them can take it."""
    for name in [layer.output for layer in graph.layers if layer.adds_border]:
        layer = next(layer for layer in graph.layers if layer.output == name)
        readers = [other for other in graph.layers if name in other.inputs]
        zero_point = graph.tensors[name].zero_point
        if name in graph.outputs or not all(other.counts_border(zero_point) for other in readers):
            continue
        source, padded = graph.tensors[layer.input], graph.tensors.pop(name)
        views = [dataclasses.replace(view, pads=layer.window.pads, border=zero_point) for view in padded.views]
        graph.tensors[layer.input] = dataclasses.replace(source, views=(*source.views, *views))
        graph.layers = [_widen(other, layer) for other in graph.layers if other is not layer]


def _widen(layer: Layer, pad: Layer) -> Layer:
    """Return a layer with the padding in its window, which reads the tensor before padding."""
    if pad.output not in layer.inputs:
        return layer
    pads = tuple(own + more for own, more in zip(layer.window.pads, pad.window.pads, strict=True))
    return dataclasses.replace(layer, inputs=pad.inputs, window=dataclasses.replace(layer.window, pads=pads))
