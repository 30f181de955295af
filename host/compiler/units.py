"""Units: how a program counts what lies in the memories, and one numbering of all of it, for synchronisation."""

from __future__ import annotations

import itertools

import numpy as np

from ...golden.config import Config
from ...golden.isa import ADD_ENTRIES, ADD_ENTRY_BYTES, LIST_ENTRY_BYTES, TABLE_BYTES, LocalMemory
from .storage import Addresses

_NAMES = {
    LocalMemory.WEIGHT: "weight memory",
    LocalMemory.PARAMETER: "parameter memory",
    LocalMemory.TABLE: "table memory",
    LocalMemory.LIST: "list memory",
    LocalMemory.ADD_TABLE: "Add tables",
}
#: The memories for constants.
MEMORIES = tuple(_NAMES)


def name_of(memory: LocalMemory) -> str:
    """What messages call a memory for constants."""
    return _NAMES[memory]


def unit_bytes(config: Config, memory: LocalMemory) -> int:
    """What a COMPUTE command counts addresses of this memory in."""
    return {
        LocalMemory.FEATURE: 1,
        LocalMemory.WEIGHT: config.weight_word_bytes,
        LocalMemory.PARAMETER: config.parameter_word_bytes,
        LocalMemory.TABLE: TABLE_BYTES,
        LocalMemory.LIST: LIST_ENTRY_BYTES,
        LocalMemory.ADD_TABLE: ADD_ENTRIES * ADD_ENTRY_BYTES,
    }[memory]


def capacity(config: Config, memory: LocalMemory) -> int:
    """Units that a memory holds."""
    return config.memory.size_bytes(memory) // unit_bytes(config, memory)


def numbers(config: Config, memory: LocalMemory, first: int, count: int) -> Addresses:
    """Numbers of some units of a memory: int64[count]. Those of the feature memory are its addresses."""
    return _starts(config)[memory] + first + np.arange(count)


def number_count(config: Config) -> int:
    """How many units all memories hold."""
    return sum(capacity(config, memory) for memory in LocalMemory)


def _starts(config: Config) -> dict[LocalMemory, int]:
    assert next(iter(LocalMemory)) is LocalMemory.FEATURE, "feature addresses are their own numbers"
    sizes = [capacity(config, memory) for memory in LocalMemory]
    return dict(zip(LocalMemory, itertools.accumulate(sizes, initial=0), strict=False))
