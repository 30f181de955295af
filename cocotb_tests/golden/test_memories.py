"""The table of memories: every memory is there, and what is written, addressed and held fits together."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lutterfly.golden.config import Config
from lutterfly.golden.engines import ADD, ENGINES, FPC, MAC, EngineConfigs
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.isa import Load
from lutterfly.golden.machine import dma
from lutterfly.golden.machine.flights import CommandError
from lutterfly.golden.machine.machine import Machine
from lutterfly.golden.memories import PARAMETER_BYTES, SHARED_MEMORIES, LocalMemory
from lutterfly.golden.memories import memories as built
from lutterfly.golden.numerics import requant
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.stages import CUT_BYTES
from lutterfly.golden.units import ErrorCode

MEMORIES = [*SHARED_MEMORIES, FPC.memory, ADD.memory]


def test_every_memory_has_a_line_and_a_name_of_its_own() -> None:
    assert built(PRESETS["ecp5-85k"]) == MEMORIES
    assert len({memory.name for memory in MEMORIES}) == len({memory.title for memory in MEMORIES}) == len(MEMORIES)


@pytest.mark.parametrize("lanes", [4, 8, 16, 32, 64])
def test_every_memory_may_be_cut_where_constants_are(lanes: int) -> None:
    own = [engine.memory for engine in ENGINES.values() if engine.memory is not None]
    assert len(own) > 1
    for memory in (*SHARED_MEMORIES, *own):
        assert CUT_BYTES % memory.write_bytes(lanes) == 0, memory.name


@pytest.mark.parametrize(("preset", "memory"), [(name, memory) for name in PRESETS for memory in built(PRESETS[name])])
def test_units_are_whole_writes_and_memories_whole_units(preset: str, memory: LocalMemory) -> None:
    config = PRESETS[preset]
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
        (PRESETS["tiny"], {FPC.memory}),
        (
            dataclasses.replace(PRESETS["ecp5-85k"], engines=EngineConfigs.of(MAC, FPC, FPC=FpcConfig(256))),
            {ADD.memory},
        ),
        # All columns of the butterfly lie in the weight memory.
        (
            dataclasses.replace(PRESETS["ecp5-85k"], engines=PRESETS["ecp5-85k"].engines.having(FPC, FpcConfig(128))),
            {FPC.memory},
        ),
    ],
    ids=["all", "without FPC", "without ADD", "without columns of its own"],
)
def test_a_load_to_a_memory_that_is_not_built_is_refused(config: Config, absent: set[LocalMemory]) -> None:
    assert set(built(config)) == set(MEMORIES) - absent
    memories, lanes = Machine(config).cores[0].memories, config.array.lanes
    size = max(lanes, PARAMETER_BYTES)
    for memory in MEMORIES:
        command = Load(memory=memory, piece_bytes=size, rows=1, folds=1, row_pieces=1)
        if memory in absent:
            with pytest.raises(CommandError) as caught:
                dma.load(command, np.zeros(size, np.uint8), memories, lanes=lanes)
            assert caught.value.code is ErrorCode.ILLEGAL_FIELD
        else:
            dma.load(command, np.zeros(size, np.uint8), memories, lanes=lanes)
            assert not memories[memory][:size].any()
