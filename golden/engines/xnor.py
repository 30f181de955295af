"""The engine XNOR: inner products of binary values, a bit for each, on the words and weights of the array."""

from __future__ import annotations

import numpy as np

from ..memories import LocalMemory
from ..numerics.windows import step_counts
from .engine import Engine, EngineConfig
from .mac import SPECIFICATION as ARRAY
from .specification import Bool, EngineSpecification, Int8, Int32, Issue, TileWindows, any_steps, require_words

XNOR = Engine(3, "XNOR", configuration=EngineConfig)


def agreeing(words: Int8, weights: Int8, counted: Bool | None = None) -> Int32:
    """Return twice the number of bits in which words and weights agree, column by column.

    The inner product of n values is this less n, see :func:`~lutterfly.golden.numerics.binary.inner_product`; the bias
    subtracts n.

    Parameters
    ----------
    words : int8[..., steps, lanes]
        Activation words of each window, eight binary values in a byte.
    weights : int8[steps, columns, lanes]
    counted : bool[steps, lanes], optional
        The bytes that count; by default all.

    Returns
    -------
    int32[..., columns]

    Raises
    ------
    TypeError
        If an array is not int8.
    ValueError
        If steps or lanes differ.
    """
    words, weights = np.asarray(words), np.asarray(weights)
    require_words(words, weights)
    bits, kernels = words.view(np.uint8), weights.view(np.uint8)
    totals = np.empty((*words.shape[:-2], weights.shape[1]), np.int32)
    for column in range(weights.shape[1]):
        counts = np.bitwise_count(~(bits ^ kernels[:, column]))
        if counted is not None:
            counts *= counted
        totals[..., column] = 2 * counts.sum(axis=(-2, -1), dtype=np.int32)
    return totals


def _totals(windows: TileWindows) -> Int32:
    lanes = windows.config.array.lanes
    counts = step_counts(windows.command, windows.memories[LocalMemory.LIST].view(np.uint32), lanes=lanes)
    return agreeing(windows.words, windows.weights, np.arange(lanes) < counts[:, None])


SPECIFICATION = EngineSpecification(
    engine=XNOR,
    notes="Every bit of a word is a binary value, 1 for +1; a result is twice the number of bits in which words and "
    "weights agree, and the inner product of n values is that less n. A list entry says in its bits 24 to 29 how many "
    "bytes of its word count, 0 for all. Takes one weight word with every step (`weight_words` is "
    "`steps`).",
    results="array.columns",
    totals=_totals,
    latency=ARRAY.latency,
    random_window=any_steps,
    issue=Issue(weight_words="steps", masks_words=True),
    is_binary=True,
)
