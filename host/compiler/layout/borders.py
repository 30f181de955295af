"""Borders: give each tensor room for the largest border that one of its consumers reads, filled with its zero point.

A max pooling would need the least code there instead. It reads no border: it runs in border classes, see
:mod:`.border_classes`. A binary tensor has no zero point: its border is +1 where all consumers want that, and else -1,
for which :mod:`.binary_convolution` corrects.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from ....golden.elements import BINARY_BITS
from ...graph import Layer, Reach, Tensor
from ..data.plan import Plan
from ..data.storage import Storage
from ..lower.operations import planned_lowering


def _reach_of(plan: Plan, layer: Layer, place: int) -> Reach:
    """How far a layer reads beyond one of its inputs."""
    if not planned_lowering(plan, layer).reads_border:
        return Reach()
    return layer.window_of(place).reach(*plan.graph.tensors[layer.fetched[place]].shape[:2])


def plan_borders(plan: Plan) -> Plan:
    """Choose the layout of every tensor that lies in the feature memory."""
    tensors, inputs = plan.graph.tensors, _inputs(plan)
    for name in plan.roots:
        height, width, channels = tensors[name].shape
        readers = [layer for layer, _ in inputs[name]]
        # A view that does not begin where the tensor does has no border there that is read.
        reaches = [_reach_of(plan, layer, place) for layer, place in inputs[name]]
        sides = {
            side: max((getattr(need, side) for need in reaches), default=0)
            for side in ("top", "left", "bottom", "right")
        }
        # Two kernel rows must never read the same byte with two weights: no window may be wider than the row pitch.
        widest = max((layer.window.extent[1] for layer in readers), default=0)
        gap = max(sides["left"], sides["right"], widest - width)
        value = border_byte(tensors[name], readers)
        plan.storages[name] = Storage(height, width, channels, **sides, gap=gap, value=value, bits=tensors[name].bits)
    _align_operands(plan)
    place_views(plan)
    return plan


def _inputs(plan: Plan) -> defaultdict[str, list[tuple[Layer, int]]]:
    """Of each tensor that is no view: the layers that read it or a view of it, and as which of their inputs."""
    found = defaultdict(list)
    for layer in plan.graph.layers:
        for place, source in enumerate(layer.fetched):
            found[plan.root(source)].append((layer, place))
    return found


def border_byte(tensor: Tensor, readers: Sequence[Layer]) -> int:
    """What the border of a tensor holds, as int8."""
    if tensor.bits != BINARY_BITS:
        return tensor.zero_point
    wanted = {layer.binary_border for layer in readers} - {None}
    return -1 if wanted == {1} else 0


def place_views(plan: Plan) -> None:
    """Let every view lie in its tensor."""
    for name in plan.views:
        place = plan.place_of(name)
        plan.storages[name] = plan.storages[place.tensor].view(place, plan.graph.tensors[name].shape)


def _align_operands(plan: Plan) -> None:
    """Give inputs that one pitch leads through rows that are equally far apart."""
    operands = [
        [*map(plan.root, layer.fetched)] for layer in plan.graph.layers if planned_lowering(plan, layer).has_one_pitch
    ]
    while True:
        changed = False
        for names in operands:
            gap = max(plan.storages[name].gap for name in names)
            for name in names:
                changed |= plan.storages[name].gap < gap
                plan.storages[name] = dataclasses.replace(plan.storages[name], gap=gap)
        if not changed:
            return


def check_borders(plan: Plan) -> None:
    """Every window lies within its input's storage."""
    for layer in plan.graph.layers:
        storage, shape = plan.storages[layer.input], plan.graph.tensors[layer.input].shape
        need = _reach_of(plan, layer, 0)
        assert all(getattr(storage, side) >= getattr(need, side) for side in ("left", "right")), layer.name
        assert storage.fold or (storage.top >= need.top and storage.bottom >= need.bottom), layer.name
        expected = layer.window.output_size(*shape[:2])
        assert plan.graph.tensors[layer.output].shape[:2] == tuple(expected), layer.name
