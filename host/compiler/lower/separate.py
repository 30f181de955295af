"""Separate: max pooling with large windows runs along the columns, then along the rows."""

from __future__ import annotations

import dataclasses
import math

from ....golden.isa import LocalMemory
from ...graph import Layer, MaxPool, Tensor, Window
from ..plan import Plan
from ..units import capacity
from .border_classes import border_classes


def separate(plan: Plan) -> Plan:
    """Replace max pooling layers by two each, where that at least halves the steps, or where the step lists of all
    border classes would exceed their memory.

    The maximum of a window is that of its rows' maxima. The tensor in between has no views: it is not the model's.
    """
    layers: list[Layer] = []
    tensors = dict(plan.graph.tensors)
    for layer in plan.graph.layers:
        if not isinstance(layer, MaxPool) or not _is_worth_it(plan, layer):
            layers.append(layer)
            continue
        name, window = f"{layer.output} along columns", layer.window
        top, left, bottom, right = window.pads
        along = Window((1, window.kernel[1]), (1, window.stride[1]), (1, window.dilation[1]), (0, left, 0, right))
        down = Window((window.kernel[0], 1), (window.stride[0], 1), (window.dilation[0], 1), (top, 0, bottom, 0))
        source = tensors[layer.input]
        tensors[name] = Tensor(
            name,
            (*along.output_size(*source.shape[:2]), source.shape[2]),
            source.scale,
            source.zero_point,
            views=(),
            bits=source.bits,
        )
        layers.append(MaxPool(f"{layer.name} along columns", layer.inputs, name, along))
        layers.append(dataclasses.replace(layer, inputs=(name,), window=down))
    return dataclasses.replace(plan, graph=dataclasses.replace(plan.graph, layers=layers, tensors=tensors))


def _is_worth_it(plan: Plan, layer: MaxPool) -> bool:
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
