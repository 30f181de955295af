"""The engine BINARY_MAXIMUM: the maximum of each bit of a word over the steps of a window, for max pooling of packed
maps."""

from __future__ import annotations

import numpy as np

from .engine import Engine, EngineConfig
from .maximum import SPECIFICATION as MAXIMUM
from .specification import EngineSpecification, Int8, Int32, TileWindows, any_steps, require_int8

BINARY_MAXIMUM = Engine(6, "BINARY_MAXIMUM", configuration=EngineConfig)


def binary_maximum(words: Int8) -> Int32:
    """Return a word with each bit that is 1 in any of the words.

    Parameters
    ----------
    words : int8[..., steps, lanes]

    Returns
    -------
    int32[..., lanes]
        The bits of each lane joined by `or`, as a signed byte.

    Raises
    ------
    TypeError
        If ``words`` is not int8.
    """
    words = np.asarray(words)
    require_int8(words=words)
    return np.bitwise_or.reduce(words, axis=-2).astype(np.int32)


def _totals(windows: TileWindows) -> Int32:
    return binary_maximum(windows.words)


SPECIFICATION = EngineSpecification(
    engine=BINARY_MAXIMUM,
    notes="Joins the bits of each lane by `or`: the greatest value of each bit, where 1 stands for +1.",
    results="array.lanes",
    totals=_totals,
    latency=MAXIMUM.latency,
    random_window=any_steps,
    is_binary=True,
)
