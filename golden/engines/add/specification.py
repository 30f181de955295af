"""Sums of two operands, each looked up in a table of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...config import Config
from ...numerics.addition import add_words
from ...numerics.requant import requantise_sum
from ..finish import Finish, clamp_of
from ..specification import Command, EngineSpecification, Int8, Int64, RandomWindow, TileWindows, UInt64
from . import ADD
from .memory import ENTRIES


def _totals(windows: TileWindows) -> Int64:
    assert ADD.memory is not None, "it has tables"
    tables = windows.memories[ADD.memory].view(np.int64).reshape(-1, 2, ENTRIES // 2)
    return add_words(windows.words, tables[windows.command["add_table"]])


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
