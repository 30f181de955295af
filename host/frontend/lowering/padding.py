"""Lower Pad to a layer, and merge the layer into the windows that read it."""

from __future__ import annotations

import dataclasses

import numpy as np
from onnx import NodeProto, helper

from ...graph import CodeFinish, Graph, Layer, Pad, Pointwise, Window
from ...graph.tabulate import code_offset
from ..building.build import Build, attributes
from ..building.checks import check_layers
from ..building.layout import CHANNELS_FIRST, CHANNELS_LAST, Place, Shape3, image_shape, same_order
from ..fragments.fragments import PAD, Fragment, label
from ..fragments.lowering import refuses
from ..fragments.quantisation import quantisation
from ..reading.errors import UnsupportedError
from ..reading.source import Source
from .arranging import keeps, lower_surrounded
from .past import tabulate_past

Pads = tuple[int, int, int, int]


@refuses("its pads are no constants")
def lower_pad(build: Build, fragment: Fragment) -> None:
    """Add the layer of a Pad, and a table in front of it where the fragment changes codes."""
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
        build.graph.layers.append(Pointwise(node.name, (place.tensor,), name, finish=CodeFinish(table=table)))
    window = Window((1, 1), pads=pads)
    build.add_tensor(end, (*window.output_size(height, width), channels), end)
    build.graph.layers.append(Pad(node.name, (name,), end, window=window, channels=channels))
    build.add_view(end, Place(end, order, source.shapes[end]))
    check_layers(build, fragment, first_layer)


def _pads_with_zeros(source: Source, node: NodeProto, start: str) -> bool:
    """Whether what is put around is the real number zero: on codes their zero point."""
    given = attributes(node)
    value = source.constants[node.input[2]] if len(node.input) > 2 and node.input[2] else given.get("value", 0.0)
    zero = 0
    if source.is_codes(node.input[0]):
        zero = quantisation(source, start)[1] + code_offset(source.types[start])
    return given.get("mode", b"constant") == b"constant" and float(np.asarray(value).item()) == zero


def _border(build: Build, node: NodeProto, place: Place) -> tuple[Shape3, Pads | None]:
    """The order of the axes, and the border on each side; None where something else is padded."""
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
    """What a Pad adds before and after each axis.

    Raises
    ------
    UnsupportedError
        If it is not constant.
    """
    rank, given = len(source.shapes[node.input[0]]), attributes(node)
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
    """The order of height, width and channels that a Pad works on, as it leaves the channels alone."""
    padded = [bool(sizes[0] or sizes[1]) for sizes in zip(*padded_axes(source, node), strict=True)]
    return CHANNELS_LAST if len(padded) == 4 and padded[1] and not padded[3] else CHANNELS_FIRST


def merge_pads(graph: Graph) -> None:
    """Let the windows that read a padded tensor reach into its border themselves, where all of them can."""
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
    """A layer that reads what a border is put around, instead of the result."""
    if pad.output not in layer.inputs:
        return layer
    pads = tuple(own + more for own, more in zip(layer.window.pads, pad.window.pads, strict=True))
    return dataclasses.replace(layer, inputs=pad.inputs, window=dataclasses.replace(layer.window, pads=pads))
