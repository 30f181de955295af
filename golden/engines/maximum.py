"""The engine MAXIMUM: the greatest byte of each lane over the steps of a window, for max pooling and, with one step,
plain copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .engine import Engine, EngineConfig
from .specification import Command, EngineSpecification, Int8, Int32, TileWindows, any_steps, require_int8

if TYPE_CHECKING:
    from ..config import Config

MAXIMUM = Engine(1, "MAXIMUM", configuration=EngineConfig)


def maximum(words: Int8) -> Int32:
    """Return the greatest byte of each lane.

    Parameters
    ----------
    words : int8[..., steps, lanes]

    Returns
    -------
    int32[..., lanes]
        ``max(words[..., s, :])`` over the steps.

    Raises
    ------
    TypeError
        If ``words`` is not int8.
    """
    words = np.asarray(words)
    require_int8(words=words)
    return words.max(axis=-2).astype(np.int32)


def _totals(windows: TileWindows) -> Int32:
    return maximum(windows.words)


def _latency(config: Config, command: Command) -> int:
    """Return the cycles to take the word and compare."""
    return 2


SPECIFICATION = EngineSpecification(
    engine=MAXIMUM,
    notes="Gives the greatest byte of each lane.",
    results="array.lanes",
    totals=_totals,
    latency=_latency,
    random_window=any_steps,
)
