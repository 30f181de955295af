"""The table of memories: every memory is there, and what is written, addressed and held fits together."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.golden import requant
from lutterfly.golden.config import PRESETS
from lutterfly.golden.isa import LocalMemory
from lutterfly.golden.memories import MEMORIES, PARAMETER_BYTES


def test_every_memory_has_a_line_and_a_name_of_its_own() -> None:
    assert list(MEMORIES) == list(LocalMemory)
    assert len({memory.name for memory in MEMORIES.values()}) == len(MEMORIES)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", LocalMemory)
def test_units_are_whole_writes_and_memories_whole_units(preset: str, kind: LocalMemory) -> None:
    config, memory = PRESETS[preset], MEMORIES[kind]
    written, unit, size = (
        memory.write_bytes(config.array.lanes),
        memory.unit_bytes(config),
        memory.size_bytes(config),
    )
    assert unit % written == size % unit == 0
    assert size & (size - 1) == 0


def test_a_channels_parameters_fill_their_bytes() -> None:
    assert requant.pack_parameters(np.zeros(1, np.int32), np.ones(1, np.float32)).nbytes == PARAMETER_BYTES
