"""Folds: how many source rows a stored row of the network's input interleaves.

The DMA writes the input's layout anyway. Where a window's rows lie side by side, fewer words cover it.
"""

from __future__ import annotations

import math

import numpy as np

from ....golden.config import Config
from ....golden.timing.latencies import run_cycles
from ...graph import Tensor, Window
from ..data.operation import Operation
from ..data.plan import Plan
from ..data.storage import Fold, Storage
from ..lower.operations import planned_lowering
from .placement import extent, lifetimes, place
from .streaming import row_groups


def fold_storage(window: Window, source: Tensor, rows: int) -> Storage:
    """The layout of what these windows read with ``rows`` source rows in a stored row."""
    height, width, channels = source.shape
    need = window.reach(height, width)
    stored_rows_per_window = -(-window.kernel[0] // rows)
    advance = rows * window.dilation[0]
    # Stored rows begin where a window's first, second, ... stored row may begin. Where source rows overlap they are
    # stored again.
    step = window.stride[0] if stored_rows_per_window == 1 else math.gcd(window.stride[0], advance)
    output_rows = window.output_size(height, width)[0]
    stored = ((output_rows - 1) * window.stride[0] + (stored_rows_per_window - 1) * advance) // step + 1
    return Storage(
        stored,
        width,
        rows * channels,
        left=need.left,
        right=need.right,
        gap=max(need.left, need.right, window.extent[1] - width),
        value=source.zero_point,
        fold=Fold(rows, step, window.dilation[0], window.pads[0]),
        bits=source.bits,
    )


def source_rows(storage: Storage, height: int) -> np.ndarray:
    """Source row of each fold: int64[stored rows, folds], -1 where it lies beyond the ``height`` source rows."""
    fold = storage.fold or Fold(1, 1, 1, 0)
    stored = np.arange(storage.row, storage.row + storage.height)
    row = stored[:, None] * fold.step + np.arange(fold.rows) * fold.dilation - fold.top
    return np.where((row >= 0) & (row < height), row, -1)


def load_estimate(storage: Storage, source: Tensor, config: Config) -> int:
    """Cycles to load an input into ``storage``: the DMA writes one piece, or one beat of it, a cycle."""
    height, width, _ = source.shape
    beat = config.axi.data_bytes
    if storage.fold is None:
        return height * math.ceil(source.row_bytes / beat) if storage.gap else math.ceil(source.size_bytes / beat)
    loaded = np.count_nonzero(source_rows(storage, height) >= 0)
    return loaded * max(width * math.ceil(source.pixel_bytes / beat), run_cycles(config, source.row_bytes))


def head_start(plan: Plan, operation: Operation) -> int:
    """Cycles by which the first layer is done sooner if it begins while its input arrives; of other layers none.

    It cannot where it has constants that are loaded in every inference: each group of rows would load them again.
    """
    layer = operation.layer
    if operation.index != 0 or layer.input not in plan.graph.inputs:
        return 0
    height, width, _ = plan.graph.tensors[layer.output].shape
    loading = load_estimate(plan.storages[layer.input], plan.graph.tensors[layer.input], plan.config)
    done, _ = row_groups(plan, operation, loading)
    return max(loading + operation.cycles(height, width, range(operation.tiles)) - int(done), 0)


def fold_choices(plan: Plan, name: str) -> list[Storage]:
    """Layouts of a tensor with rows folded and without, the fastest first; none where it cannot be folded."""
    if name not in plan.graph.inputs or name in plan.graph.outputs:
        return []
    if any(name == place.tensor for place in plan.views.values()):
        return []
    consumers, source = plan.consumers(name), plan.graph.tensors[name]
    if len(consumers) != 1 or not planned_lowering(plan, consumers[0][1]).reads_folds:
        return []
    ((index, layer),), plain = consumers, plan.storages[name]
    window, target = layer.window, plan.storages[layer.output]
    height, width, _ = plan.graph.tensors[layer.output].shape
    choices = [plain, *(fold_storage(window, source, rows) for rows in range(2, min(window.kernel[0], 255) + 1))]

    def cost(storage: Storage) -> tuple[float, int]:
        loading = load_estimate(storage, source, plan.config)
        operation = planned_lowering(plan, layer).make(plan, index, (storage,), target)
        if index == 0:
            return row_groups(plan, operation, loading)[0], loading
        # It arrives while other layers are computed.
        return max(loading, operation.cycles(height, width, range(operation.tiles))), loading

    return sorted(choices, key=cost)


def plan_folds(plan: Plan) -> Plan:
    """Fold each input in height as far as its layer is done sooner for it, and as the memory holds it."""
    spans = lifetimes(plan)
    for name in plan.graph.inputs:
        plain = plan.storages[name]
        for choice in fold_choices(plan, name):
            plan.storages[name] = choice
            sizes = {other: plan.storages[other].size_bytes for other in spans}
            if extent(place(spans, sizes, plan.config.array.lanes), sizes) <= plan.config.memory.feature_bytes:
                break
        else:
            plan.storages[name] = plain
    return plan
