"""The local memories: one table for the hardware, the golden machine and the compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .isa import ADD_ENTRIES, ADD_ENTRY_BYTES, LIST_ENTRY_BYTES, TABLE_BYTES, LocalMemory

if TYPE_CHECKING:
    from .config import Config

#: Bytes of a channel's parameters, see :mod:`.requant`.
PARAMETER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Memory:
    """What there is to know of a memory, beside what it is for.

    Attributes
    ----------
    name : str
        For people.
    write_bytes : function of int
        Bytes that are written at a time, of the lanes of the array: ``local`` and ``piece_bytes`` of a LOAD are
        multiples of it.
    unit_bytes : function of Config
        What a COMPUTE command counts its addresses in, in bytes; a multiple of ``write_bytes``.
    size_bytes : function of Config
        All of it, a power of two.
    """

    name: str
    write_bytes: Callable[[int], int]
    unit_bytes: Callable[[Config], int]
    size_bytes: Callable[[Config], int]


MEMORIES: dict[LocalMemory, Memory] = {
    LocalMemory.FEATURE: Memory(
        "feature memory",
        lambda lanes: 1,
        lambda config: 1,
        lambda config: config.memory.feature_bytes,
    ),
    LocalMemory.WEIGHT: Memory(
        "weight memory",
        lambda lanes: lanes,
        lambda config: config.weight_word_bytes,
        lambda config: config.memory.weight_bytes,
    ),
    LocalMemory.PARAMETER: Memory(
        "parameter memory",
        lambda lanes: PARAMETER_BYTES,
        lambda config: config.parameter_word_bytes,
        lambda config: config.memory.parameter_bytes,
    ),
    LocalMemory.TABLE: Memory(
        "table memory",
        lambda lanes: 1,
        lambda config: TABLE_BYTES,
        lambda config: config.memory.tables * TABLE_BYTES,
    ),
    LocalMemory.LIST: Memory(
        "list memory",
        lambda lanes: LIST_ENTRY_BYTES,
        lambda config: LIST_ENTRY_BYTES,
        lambda config: config.memory.list_entries * LIST_ENTRY_BYTES,
    ),
    LocalMemory.ADD_TABLE: Memory(
        "Add tables",
        lambda lanes: ADD_ENTRY_BYTES,
        lambda config: ADD_ENTRIES * ADD_ENTRY_BYTES,
        lambda config: config.add.tables * ADD_ENTRIES * ADD_ENTRY_BYTES,
    ),
    LocalMemory.FPC_WEIGHT: Memory(
        "FPC weight memory",
        lambda lanes: lanes,
        lambda config: config.further_word_bytes,
        lambda config: config.fpc.further_words * config.further_word_bytes,
    ),
}
#: Those of every core; of the others each belongs to an engine, see :func:`.engines.memories`.
SHARED = (LocalMemory.FEATURE, LocalMemory.WEIGHT, LocalMemory.PARAMETER, LocalMemory.TABLE, LocalMemory.LIST)
#: Those that hold constants.
CONSTANTS = tuple(memory for memory in LocalMemory if memory is not LocalMemory.FEATURE)
