"""Layers whose channels become phases of a map write each phase as a tensor of its own, or channels side by side."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from ....golden.config import Config
from ....golden.elements import CODE_BITS
from ....golden.timing.issue import result_groups
from ...graph import ChannelRule, Graph, Layer, Phase, Selection, own_name
from ..network import Network


def split_phases(plan: Network) -> Network:
    """Replace layers whose channels become channels of several phases of a map by a layer for each phase.

    Each of these writes its phase in place, as a view, and leaves out words that it has no weights for. Where one layer
    for all takes fewer cycles, it writes the channels of each phase side by side, so that the copy has long runs. The
    tensors of the phases have no views, as they are not the model's.
    """
    for copy in plan.graph.layers:
        layer = _maker(plan.graph, copy)
        if layer is None:
            continue
        pieces = copy.selections(plan.graph.tensors)
        found = [_part(plan.graph, layer, pieces, number) for number in range(len(pieces))]
        parts = [part for part in found if part is not None]
        if len(parts) == len(pieces) and _is_worth_it(plan, layer, pieces):
            plan = _split(plan, layer, copy, parts)
        elif any(part.step > 1 for part in pieces) and _can_reorder(plan.graph, layer):
            plan = _side_by_side(plan, layer, copy)
    return plan


def _maker(graph: Graph, copy: Layer) -> Layer | None:
    """Return the layer whose output a copy divides into phases, if no other layer reads that output."""
    pieces, name = copy.selections(graph.tensors), copy.input
    taken = sorted(channel for part in pieces for channel in part.sources)
    is_apart = len(copy.inputs) == 1 and all(part.read == Phase() and part.code is None for part in pieces)
    tensor = graph.tensors[name]
    if not is_apart or len(pieces) < 2 or taken != [*range(tensor.shape[2])] or tensor.bits != CODE_BITS:
        return None
    readers = [layer for layer in graph.layers if name in layer.inputs]
    if readers != [copy] or name in graph.outputs or tensor.order:
        return None
    return next((layer for layer in graph.layers if layer.output == name), None)


def _part(graph: Graph, layer: Layer, pieces: Sequence[Selection], number: int) -> Layer | None:
    """Return the layer that computes one piece; the last one has the name of the whole."""
    inner, output = (_name(graph, name, number) for name in (layer.inner, layer.output))
    part = layer.of_outputs(pieces[number].sources, inner, output)
    if part is None or number == len(pieces) - 1:
        return part
    return dataclasses.replace(part, name=f"{layer.name} phase {number}")


def _name(graph: Graph, name: str, number: int) -> str:
    """Return the name of the tensor of one phase."""
    return own_name(f"{name} phase {number}", graph.tensors)


def _is_worth_it(plan: Network, layer: Layer, pieces: Sequence[Selection]) -> bool:
    """Estimate whether a layer for each piece takes no more cycles than one for all with copies of its channels."""
    graph, config = plan.graph, plan.config
    if layer.input in graph.inputs:
        # Only a single reader of an input can fold its rows, or begin while they arrive.
        return False
    if layer.channel_rule(*graph.ends(layer)) is not ChannelRule.FREE:
        return True
    words = math.ceil(math.prod(layer.window.kernel) * graph.tensors[layer.input].shape[2] / config.array.lanes)
    sizes = [part.channels for part in pieces]
    copying = sum(-(-size // config.array.lanes) * _groups(config, size, config.array.lanes) for size in sizes)
    apart = sum(_tiles(config, size, words) for size in sizes)
    return apart <= _tiles(config, sum(sizes), words) + copying


def _tiles(config: Config, channels: int, words: int) -> int:
    """Return the cycles of a pixel of so many output channels."""
    columns = config.array.columns
    return -(-channels // columns) * max(words, _groups(config, channels, columns))


def _groups(config: Config, channels: int, most: int) -> int:
    return result_groups(config, min(channels, most))


def _split(plan: Network, layer: Layer, copy: Layer, parts: Sequence[Layer]) -> Network:
    """Return the plan with a layer for each piece instead of one for all."""
    graph, tensors, pieces = plan.graph, dict(plan.graph.tensors), copy.selections(plan.graph.tensors)
    for name in dict.fromkeys((layer.output, layer.inner)):
        whole = tensors.pop(name)
        for number, part in enumerate(pieces):
            own = _name(graph, name, number)
            shape = (*whole.shape[:2], part.channels)
            tensors[own] = dataclasses.replace(whole, name=own, shape=shape, views=())
    moved = [dataclasses.replace(part, source=number, first=0, step=1) for number, part in enumerate(pieces)]
    rearranged = copy.with_selections([part.output for part in parts], moved)
    changed = {layer: parts, copy: [rearranged]}
    layers = [new for old in graph.layers for new in changed.get(old, [old])]
    return dataclasses.replace(plan, graph=dataclasses.replace(graph, tensors=tensors, layers=layers))


def _can_reorder(graph: Graph, layer: Layer) -> bool:
    is_free = layer.channel_rule(*graph.ends(layer)) is ChannelRule.FREE
    return is_free and layer.inner == layer.output


def _side_by_side(plan: Network, layer: Layer, copy: Layer) -> Network:
    """Return the plan with the channels of each piece side by side in the tensor that the copy divides."""
    graph, pieces = plan.graph, copy.selections(plan.graph.tensors)
    order = np.array([channel for part in pieces for channel in part.sources])
    tensor = dataclasses.replace(graph.tensors[layer.output], order=tuple(order.tolist()))
    firsts = itertools.accumulate((part.channels for part in pieces), initial=0)
    moved = [dataclasses.replace(part, first=first, step=1) for part, first in zip(pieces, firsts, strict=False)]
    inputs = np.arange(graph.tensors[layer.input].shape[2])
    changed = {layer: layer.reordered(order, inputs), copy: copy.with_selections(copy.inputs, moved)}
    layers = [changed.get(one, one) for one in graph.layers]
    tensors = graph.tensors | {tensor.name: tensor}
    return dataclasses.replace(plan, graph=dataclasses.replace(graph, tensors=tensors, layers=layers))
