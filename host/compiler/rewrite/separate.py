"""Separate: max pooling with large windows runs along the columns, then along the rows."""

from __future__ import annotations

import dataclasses
import math

from ....golden.memories import LocalMemory
from ...graph import Layer, Tensor, own_name
from ..data.plan import Plan
from ..data.units import capacity
from ..steps.border_classes import border_classes


def separate(plan: Plan) -> Plan:
    """Replace layers whose windows can be separated by two each, where that at least halves the steps, or where the
    step lists of all border classes would exceed their memory.

    The maximum of a window is that of its rows' maxima. The tensor in between has no views: it is not the model's.
    """
    layers: list[Layer] = []
    tensors = dict(plan.graph.tensors)
    for layer in plan.graph.layers:
        name, source = own_name(f"{layer.output} along columns", tensors), tensors[layer.input]
        parts = layer.separated(name)
        if parts is None or not _is_worth_it(plan, layer):
            layers.append(layer)
            continue
        tensors[name] = Tensor(
            name,
            (*parts[0].window.output_size(*source.shape[:2]), source.shape[2]),
            source.scale,
            source.zero_point,
            views=(),
            bits=source.bits,
        )
        layers += parts
    return dataclasses.replace(plan, graph=dataclasses.replace(plan.graph, layers=layers, tensors=tensors))


def _is_worth_it(plan: Plan, layer: Layer) -> bool:
    window, source = layer.window, plan.graph.tensors[layer.input]
    height, width, channels = source.shape
    rows, columns = window.output_size(height, width)
    if min(window.kernel) == 1:
        return False
    classes = border_classes(window, (height, width), range(rows), range(columns))
    lists = {(len(part.kernel_rows), len(part.kernel_columns)) for part in classes}
    if sum(map(math.prod, lists)) > capacity(plan.config, LocalMemory.LIST):
        return True
    joint = rows * columns * math.prod(window.kernel)
    separated = height * columns * window.kernel[1] + rows * columns * window.kernel[0]
    # Beside both, the tensor in between must not need more memory than there is.
    between = dataclasses.replace(source, shape=(height, columns, channels)).size_bytes
    needed = between + max(source.size_bytes, plan.graph.tensors[layer.output].size_bytes)
    return 2 * separated <= joint and needed <= plan.config.memory.feature_bytes
