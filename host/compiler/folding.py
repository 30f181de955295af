"""Folding: which words a window takes, and how the network's input is best folded in height.

In NHWC a kernel row over neighbouring pixels is one run of bytes, and the fetch reads a word from any byte address. So
a window is a set of bytes, and its steps are the fewest words that cover the set: kernel width, pixels that a dilation
skips and rows that lie side by side need no rules of their own. What remains to choose is the layout of the input,
which the DMA writes: how many source rows a stored row interleaves.
"""

from __future__ import annotations

import math

import numpy as np

from ...golden.config import Config
from ...golden.timing import run_cycles
from ..graph import Convolution, Tensor, Window
from .borders import reach
from .placement import extent, lifetimes, place
from .plan import Plan
from .storage import Addresses, Fold, Storage


def tap_offsets(window: Window, channels: int, storage: Storage) -> Addresses:
    """Where a window's elements lie, from its first byte on.

    Returns
    -------
    int64[kernel rows, kernel columns, channels]
    """
    row, column, channel = np.ogrid[: window.kernel[0], : window.kernel[1], :channels]
    across = column * window.dilation[1] * storage.pixel_pitch + channel
    fold = storage.fold
    if fold is None:
        return row * window.dilation[0] * storage.row_pitch + across
    stored_rows = fold.rows * fold.dilation // fold.step
    return (
        row // fold.rows * stored_rows * storage.row_pitch
        + row % fold.rows * (storage.stored_bytes // fold.rows)
        + across
    )


def window_pitches(window: Window, storage: Storage) -> tuple[int, int, int]:
    """Address of the first window's first byte, and bytes from a window to the one below and to the one beside it."""
    top, left, _, _ = window.pads
    beside = window.stride[1] * storage.pixel_pitch
    if storage.fold:
        return (
            storage.origin - left * storage.pixel_pitch,
            window.stride[0] // storage.fold.step * storage.row_pitch,
            beside,
        )
    first = storage.origin - top * storage.row_pitch - left * storage.pixel_pitch
    return first, window.stride[0] * storage.row_pitch, beside


def cover(offsets: Addresses, lanes: int) -> Addresses:
    """Fewest words of ``lanes`` bytes that hold all ``offsets``.

    Parameters
    ----------
    offsets : int64[...]
        In any order.
    lanes : int
        Bytes in a word, which may begin at any byte.

    Returns
    -------
    int64[steps]
        First byte of each word, ascending. Words begin at bytes that are wanted, and no wanted byte lies in two of
        them.
    """
    wanted = np.unique(offsets)
    starts, index = [], 0
    while index < len(wanted):
        starts.append(int(wanted[index]))
        index = int(np.searchsorted(wanted, starts[-1] + lanes))
    return np.array(starts, np.int64)


def fold_storage(layer: Convolution, source: Tensor, rows: int) -> Storage:
    """The layout of a convolution's input with ``rows`` source rows in a stored row."""
    window = layer.window
    height, width, channels = source.shape
    need = reach(layer, source.shape)
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


def window_steps(layer: Convolution, channels: int, storage: Storage, lanes: int) -> int:
    """Words that a window of a convolution takes."""
    return len(cover(tap_offsets(layer.window, channels, storage), lanes))


def array_estimate(layer: Convolution, shape: tuple[int, int, int], storage: Storage, config: Config) -> int:
    """Cycles that the array needs for a convolution on an input of ``shape``, apart from waiting."""
    height, width = layer.window.output_size(*shape[:2])
    array = config.array
    steps = window_steps(layer, shape[2], storage, array.lanes)
    outputs = len(layer.weights)
    tiles = -(-outputs // array.columns)
    return height * width * max(tiles * steps, -(-outputs // array.requant_lanes))


def fold_choices(plan: Plan, name: str) -> list[Storage]:
    """Layouts of a tensor with rows folded and without, the fastest first; none where it cannot be folded."""
    if name not in plan.graph.inputs or name in plan.graph.outputs:
        return []
    if any(name == root for root, _ in plan.views.values()):
        return []
    consumers, source = plan.consumers(name), plan.graph.tensors[name]
    if len(consumers) != 1 or not isinstance(consumers[0][1], Convolution) or consumers[0][1].groups != 1:
        return []
    layer, plain = consumers[0][1], plan.storages[name]
    choices = [
        plain,
        *(fold_storage(layer, source, rows) for rows in range(2, min(layer.window.kernel[0], 255) + 1)),
    ]

    def cost(storage: Storage) -> tuple[int, int]:
        loading = load_estimate(storage, source, plan.config)
        return max(loading, array_estimate(layer, source.shape, storage, plan.config)), loading

    return sorted(choices, key=cost)


def plan_folds(plan: Plan) -> Plan:
    """Fold each input in height as far as it makes the slower of DMA and array faster, and as the memory holds it."""
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


def describe(layer: Convolution, channels: int, storage: Storage, lanes: int) -> str:
    """How a convolution reads its input, for people."""
    rows, columns = layer.window.kernel
    steps = window_steps(layer, channels, storage, lanes)
    useful = rows * columns * channels / (steps * lanes)
    folded = f"{storage.fold.rows} rows interleaved, " if storage.fold else ""
    return f"{folded}{steps} words per window, {useful:.0%} useful"
