"""Units: how a program counts what lies in the memories, and one numbering of all of it, for synchronisation."""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np

from ....golden.config import Config
from ....golden.memories import LocalMemory, memories
from .storage import Addresses


def unit_bytes(config: Config, memory: LocalMemory) -> int:
    """What a COMPUTE command counts addresses of this memory in."""
    return memory.unit_bytes(config)


def capacity(config: Config, memory: LocalMemory) -> int:
    """Units that a memory holds."""
    return config.size_bytes(memory) // unit_bytes(config, memory)


def list_share(config: Config) -> int:
    """Entries of the list memory that lie together at most, but for those of one tile."""
    return config.memory.list_entries // 4


def is_roomy(config: Config, entries: int, weight_words: int) -> bool:
    """Whether there is room for step lists of so many entries, and twice for so many weight words of a tile: one tile's
    can be streamed beside another's."""
    return 2 * weight_words * config.weight_word_bytes <= config.memory.weight_bytes and entries <= list_share(config)


def unit_numbers(config: Config, memory: LocalMemory, first: int, count: int) -> Addresses:
    """Numbers of some units of a memory: int64[count]. Those of the feature memory are its addresses."""
    return _starts(config)[memory] + first + np.arange(count)


def unit_count(config: Config) -> int:
    """How many units all memories hold."""
    return sum(capacity(config, memory) for memory in memories(config))


@lru_cache(maxsize=8)
def _starts(config: Config) -> dict[LocalMemory, int]:
    there = memories(config)
    assert there[0] is LocalMemory.FEATURE, "feature addresses are their own numbers"
    sizes = [capacity(config, memory) for memory in there]
    return dict(zip(there, itertools.accumulate(sizes, initial=0), strict=False))
