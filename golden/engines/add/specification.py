"""Sums of two operands, each looked up in a table of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...config import Config
from ...requant import requantise_sum
from ..finish import Finish, clamp_of
from ..specification import Command, EngineSpecification, Int8, Int64, RandomWindow, TileWindows, UInt64, require_int8
from . import ADD
from .memory import ENTRIES, ENTRY_BITS


def add(words: Int8, tables: Int64) -> Int64:
    """Sums of two table entries for each lane.

    Parameters
    ----------
    words : int8[..., 2, lanes]
        The operands' codes.
    tables : int64[2, 256]
        One table for each operand, indexed by the code plus 128; of each entry the low ``ENTRY_BITS`` count, two's
        complement.

    Returns
    -------
    int64[..., lanes]

    Raises
    ------
    TypeError
        If ``words`` is not int8 or ``tables`` not int64.
    ValueError
        If there are not two operands.
    """
    words, tables = np.asarray(words), np.asarray(tables)
    require_int8(words=words)
    if tables.dtype != np.int64:
        raise TypeError(f"tables must be int64, not {tables.dtype}")
    if words.shape[-2] != 2:
        raise ValueError(f"words must be those of 2 operands, not {words.shape[-2]}")
    unused = 64 - ENTRY_BITS
    first, second = tables << unused >> unused
    index = words.astype(np.int64) + 128
    return first[index[..., 0, :]] + second[index[..., 1, :]]


def _totals(windows: TileWindows) -> Int64:
    assert ADD.memory is not None, "it has tables"
    tables = windows.memories[ADD.memory].view(np.int64).reshape(-1, 2, ENTRIES // 2)
    return add(windows.words, tables[windows.command["add_table"]])


def _requantise_sum(totals: Int64, parameters: UInt64, command: Command) -> Int8:
    return requantise_sum(totals, parameters, *clamp_of(command))


#: Cycles from a code to its entry.
_LOOK_UP = 2

#: The requantiser adds two entries of the tables.
SUM = Finish(name="sum", codes=_requantise_sum, addends_latency=_LOOK_UP, fields=("add_table",))


def _latency(config: Config, command: Command) -> int:
    """Take the word, keep it beside the one before."""
    return 2


def _conditions(command: Any, config: Config) -> list[Any]:
    return [command["steps"] == 2, command["add_table"] < config.engines[ADD].tables]


def _random_window(config: Config, rng: np.random.Generator, size: int) -> RandomWindow:
    return RandomWindow({"steps": 2, "add_table": int(rng.integers(config.engines[ADD].tables))})


SPECIFICATION = EngineSpecification(
    engine=ADD,
    notes="Takes two steps, one for each operand, whose codes choose two entries of the Add tables; their sum, as a "
    "multiple of 1/32, is scaled by the parameter, a power of two, without a bias. `steps` other than 2 are illegal.",
    results="array.lanes",
    totals=_totals,
    latency=_latency,
    random_window=_random_window,
    conditions=_conditions,
    finishes=(SUM,),
    # It brings the sum of two random entries into the range of a code.
    random_scale=2.0**-24,
)
