"""The engine ADD: sums of two operands, each looked up in a table of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..elements import ADDEND_BITS
from ..isa import place_fields
from ..numerics.addition import add_words
from ..numerics.requant import requantise_sum
from ..records import check, check_integers, is_power_of_two
from .engine import Engine, EngineConfig, OwnMemory
from .specification import (
    Command,
    EngineSpecification,
    Epilogue,
    Int8,
    Int64,
    RandomWindow,
    TileWindows,
    UInt64,
    clamp_of,
)

if TYPE_CHECKING:
    from ..config import Config


@dataclass(frozen=True, slots=True)
class AddConfig(EngineConfig):
    """The configuration of ADD.

    Attributes
    ----------
    tables : int
        Pairs of tables, a power of two.
    """

    tables: int = 2

    def __post_init__(self) -> None:
        check_integers(self, "tables")
        check(is_power_of_two(self.tables), "tables", "a power of two", self.tables)
        check(self.tables <= 16, "tables", "at most 16", self.tables)


FIELDS = place_fields(("add_table", 4, "The pair of Add tables."))


# The memory of ADD holds pairs of tables.

#: Entries of a pair, one table after the other, each indexed by an operand's code plus 128. An entry is a signed
#: fixed-point number of ``ENTRY_BITS`` in the low bits of ``ENTRY_BYTES``.
ENTRIES = 2 * 256
ENTRY_BITS = ADDEND_BITS
ENTRY_BYTES = 8

ADD_TABLE = OwnMemory(
    "ADD_TABLE",
    "Add tables",
    write_bytes=lambda lanes: ENTRY_BYTES,
    unit_bytes=lambda config, own: ENTRIES * ENTRY_BYTES,
    size_bytes=lambda config, own: own.tables * ENTRIES * ENTRY_BYTES,
)


ADD = Engine(5, "ADD", configuration=AddConfig, fields=FIELDS, memory=ADD_TABLE)


def _totals(windows: TileWindows) -> Int64:
    assert ADD.memory is not None, "it has tables"
    tables = windows.memories[ADD.memory].view(np.int64).reshape(-1, 2, ENTRIES // 2)
    return add_words(windows.words, tables[windows.command["add_table"]])


def _requantise_sum(totals: Int64, parameters: UInt64, command: Command) -> Int8:
    return requantise_sum(totals, parameters, *clamp_of(command))


#: Cycles from a code to its entry.
_LOOK_UP = 2

#: The requantiser adds two entries of the tables.
SUM = Epilogue(name="sum", codes=_requantise_sum, addends_latency=_LOOK_UP, fields=("add_table",))


def _latency(config: Config, command: Command) -> int:
    """Return the cycles to take the word and to keep it beside the one before."""
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
    epilogues=(SUM,),
    # This scale brings the sum of two random entries into the range of a code.
    random_scale=2.0**-24,
)
