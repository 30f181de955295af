"""Lower concatenations and slices of channels; pointwise operators beside them become tables."""

from __future__ import annotations

import dataclasses

from onnx import NodeProto, helper

from ...graph import CodeFinish, Concat, Pointwise, Slice
from ...graph.tabulate import CODES
from ..building.build import Build, attributes
from ..building.checks import check_layers
from ..building.elements import settle_inputs
from ..building.layout import CHANNELS_FIRST, CHANNELS_LAST, Place, Shape3, image_shape, same_order
from ..fragments.fragments import CONCAT, SLICE, Fragment, label
from ..fragments.lowering import refuses
from ..reading.errors import UnsupportedError
from ..reading.source import Source
from .arranging import lower_joined, lower_parts
from .past import ancestors, tabulate_past


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
            # The float tensor in front of QuantizeLinear lends its name: nothing else in the graph has it.
            selected = source.producer[end].input[0]
            build.add_tensor(selected, shape, fragment.inputs[0])
            build.add_tensor(end, shape, end)
            build.graph.layers.append(Slice(node.name, (place.tensor,), selected, first, channels))
            build.graph.layers.append(
                Pointwise(source.producer[end].name, (selected,), end, finish=CodeFinish(table=table))
            )
        build.add_view(end, Place(end, channels_order(axis, len(place.shape)), source.shapes[end]))
    check_layers(build, fragment, first_layer)


def channel_axis(source: Source, node: NodeProto) -> int | None:
    """The axis that a concatenation, Split or Slice works on; None where a Slice shortens no axis or several."""
    if node.op_type == "Slice":
        ends = (source.shapes[node.input[0]], source.shapes[node.output[0]])
        changed = [axis for axis, (before, after) in enumerate(zip(*ends, strict=True)) if before != after]
        return changed[0] if len(changed) == 1 else None
    return int(attributes(node).get("axis", 0)) % len(source.shapes[node.output[0]])


def _place_of(build: Build, name: str) -> Place:
    """Where the codes of an operand lie, which may have passed pointwise operators."""
    origin = name
    while origin not in build.places:
        origin = build.source.dynamic_inputs(build.source.producer[origin])[0]
    return dataclasses.replace(build.places[origin], shape=build.source.shapes[name])


def channels_order(axis: int, rank: int) -> Shape3:
    """The order of height, width and channels in an ONNX tensor of a rank whose channels are an axis."""
    return CHANNELS_FIRST if axis == 1 and rank > 2 else CHANNELS_LAST


def _works_on_channels(build: Build, place: Place, axis: int) -> bool:
    """Whether an axis of an ONNX tensor is the channels of the feature map that it is."""
    shape, order = build.shape_of(place), channels_order(axis, len(place.shape))
    if order == CHANNELS_FIRST:
        fits = image_shape(place.shape) == shape
    else:
        fits = axis == len(place.shape) - 1 and place.shape[axis] == shape[2]
    return place.order is None and fits and same_order(place.axes, order, shape)


def _ranges(source: Source, node: NodeProto, axis: int) -> list[tuple[int, int]] | None:
    """First channel and channels of each output; None where these are no neighbours."""
    sizes = [source.shapes[name][axis] for name in node.output]
    if node.op_type == "Split":
        return [(sum(sizes[:at]), size) for at, size in enumerate(sizes)]
    given = attributes(node)
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
    """A concatenation of one operand alone."""
    inputs = (
        [*node.input[:2], *node.input[2 + 3 * at : 5 + 3 * at]] if node.op_type == "QLinearConcat" else [node.input[at]]
    )
    return helper.make_node(node.op_type, inputs, node.output, node.name, domain=node.domain, axis=0)
