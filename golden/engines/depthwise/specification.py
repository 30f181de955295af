"""The columns of the multiplier array chained: sums of products of each lane over columns and steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...config import Config
from ...memories import LocalMemory
from ...numerics import windows
from ..issue import Issue
from ..mac.specification import MULTIPLIER_LATENCY
from ..specification import Command, EngineSpecification, Int8, Int32, Int64, RandomWindow, TileWindows, require_int8
from . import DEPTHWISE


def depthwise(words: Int8, weights: Int8, *, ends: Int64, count: int) -> Int32:
    """Sums of products of each lane: the columns of the multiplier array chained.

    Parameters
    ----------
    words : int8[..., steps, lanes]
        A stream of words, one for each step; column j takes at every step the word of ``j * rows`` steps before.
    weights : int8[rows, columns, lanes]
        The last ``rows`` steps of a window take one each, those before the first.
    ends : int64[windows]
        Last step of each window.
    count : int
        Steps that each window adds up; before the first of them the stream holds at least the words that the last
        column takes.

    Returns
    -------
    int32[..., windows, lanes]
        Modulo 2**32.

    Raises
    ------
    TypeError
        If an array is not int8.
    ValueError
        If a window would need words from before the stream, or lanes differ.
    """
    words, weights = np.asarray(words), np.asarray(weights)
    require_int8(words=words, weights=weights)
    rows, columns, lanes = weights.shape
    if words.shape[-1] != lanes:
        raise ValueError(f"words must have the {lanes} lanes of weights, not {words.shape[-1]}")
    steps = np.asarray(ends)[:, None] - count + 1 + np.arange(count)
    if steps.min() < (columns - 1) * rows:
        raise ValueError(f"ends must be at least {(columns - 1) * rows + count - 1}, not {min(ends)}")
    row = np.maximum(np.arange(count) - (count - rows), 0)
    total = np.zeros((*words.shape[:-2], len(steps), lanes), np.int64)
    for column in range(columns):
        if weights[:, column].any():
            taken = words[..., steps - column * rows, :]
            total += np.einsum("...wsl,sl->...wl", taken, weights[row, column], dtype=np.int64)
    return total.astype(np.int32)


def _totals(tile: TileWindows) -> Int32:
    command, weights = tile.command, tile.weights[:, : tile.config.engines[DEPTHWISE].taps]
    steps, skip, rows = command["steps"], command["skip"], command["rows"]
    issued = windows.in_issue_order(command, tile.words, axis=1)
    # What columns multiply that is from before the inner loop may be anything.
    after = (weights.shape[1] - 1) * rows
    before = tile.rng.integers(-128, 128, (len(issued), after, issued.shape[-1]), dtype=np.int8)
    ends = after + steps - 1 + np.arange(command["inner"]) * (steps - skip)
    start = windows.sum_start(command, tile.memories[LocalMemory.LIST].view(np.uint32))
    assert start is not None, "the list of a legal command frames one window"
    return depthwise(np.concatenate([before, issued], axis=1), weights, ends=ends, count=steps - start)


def _latency(config: Config, command: Command) -> int:
    """Multiply, add from column to column, settle and accumulate."""
    return MULTIPLIER_LATENCY + config.engines[DEPTHWISE].taps + 2


def _conditions(command: Any, config: Config) -> list[Any]:
    return [
        ~command["tile_inner"],
        command["rows"].any(),
        command["skip"] + command["rows"] <= command["steps"],
    ]


def _random_window(config: Config, rng: np.random.Generator, size: int) -> RandomWindow:
    rows = int(rng.integers(1, 1 + min(5, size)))
    # Every column's words are from the same inner loop.
    start = (config.engines[DEPTHWISE].taps - 1) * rows + int(rng.integers(3))
    steps = max(start, rows) + int(rng.integers(1, 2 * rows + 1))
    skip = int(rng.integers(1 + min(start, steps - rows)))
    return RandomWindow({"steps": steps, "rows": rows, "skip": skip, "tile_inner": 0}, start)


SPECIFICATION = EngineSpecification(
    engine=DEPTHWISE,
    notes="Chains the products of a lane over the first DEPTHWISE_TAPS columns, and column j sees the word of "
    "`j * rows` steps before: with an image read column by column, `rows` words each, it sees the image column j "
    "before. Its last `rows` steps take one weight word each, those before the first of them (`weight_words` is "
    "`rows`); the flag `clear` may stand at any entry from `skip` on. `tile_inner`, `rows` of zero and `skip + rows` "
    "above `steps` are illegal.",
    results="array.lanes",
    totals=_totals,
    latency=_latency,
    random_window=_random_window,
    conditions=_conditions,
    issue=Issue(weight_words="rows", has_streams=True, fields=("rows",)),
)
