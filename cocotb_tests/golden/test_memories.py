"""The table of memories: every memory is there, and what is written, addressed and held fits together."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lutterfly.golden import dma, requant
from lutterfly.golden.command_error import CommandError
from lutterfly.golden.config import PRESETS, Config
from lutterfly.golden.engines import memories as built
from lutterfly.golden.isa import LOAD, Engine, ErrorCode, LocalMemory
from lutterfly.golden.machine import Machine
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


@pytest.mark.parametrize(
    ("config", "absent"),
    [
        (PRESETS["ecp5-85k"], set()),
        (PRESETS["tiny"], {LocalMemory.FPC_WEIGHT}),
        (
            dataclasses.replace(PRESETS["ecp5-85k"], engines=(Engine.MAC, Engine.FPC)),
            {LocalMemory.ADD_TABLE},
        ),
        # All columns of the butterfly lie in the weight memory.
        (
            dataclasses.replace(PRESETS["ecp5-85k"], fpc=dataclasses.replace(PRESETS["ecp5-85k"].fpc, width=128)),
            {LocalMemory.FPC_WEIGHT},
        ),
    ],
    ids=["all", "without FPC", "without ADD", "without further columns"],
)
def test_a_load_to_a_memory_that_is_not_built_is_refused(config: Config, absent: set[LocalMemory]) -> None:
    assert set(built(config)) == set(LocalMemory) - absent
    memories, lanes = Machine(config).memories, config.array.lanes
    size = max(lanes, PARAMETER_BYTES)
    for memory in LocalMemory:
        command = LOAD.decode(LOAD.encode(memory=memory, piece_bytes=size, rows=1, folds=1, row_pieces=1))
        if memory in absent:
            with pytest.raises(CommandError) as caught:
                dma.load(command, np.zeros(size, np.uint8), memories, lanes=lanes)
            assert caught.value.code is ErrorCode.ILLEGAL_FIELD
        else:
            dma.load(command, np.zeros(size, np.uint8), memories, lanes=lanes)
            assert not memories[memory][:size].any()
