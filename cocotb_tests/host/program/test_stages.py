"""The prologue in stages: windows of every size leave the local memories as the whole prologue does."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lutterfly.examples import digits
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.isa import END, LOAD, SYNC
from lutterfly.golden.machine.images import new_arena
from lutterfly.golden.machine.machine import Machine
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Program
from lutterfly.golden.program.stages import CUT_BYTES, stages
from lutterfly.golden.units import Queue
from lutterfly.host.compiler import compile_model
from lutterfly.host.program import SpreadBy

CONFIGS = {
    "tiny": (PRESETS["tiny"], SpreadBy.SAMPLE),
    "ecp5-85k": (PRESETS["ecp5-85k"], SpreadBy.SAMPLE),
    "two cores by sample": (dataclasses.replace(PRESETS["tiny"], cluster=ClusterConfig(2)), SpreadBy.SAMPLE),
    "two cores by layer": (dataclasses.replace(PRESETS["tiny"], cluster=ClusterConfig(2)), SpreadBy.LAYER),
}


@functools.cache
def compiled(name: str) -> tuple[Program, Config]:
    config, spread_by = CONFIGS[name]
    return compile_model(digits.model_path("qop").read_bytes(), config, spread_by=spread_by), config


def memories_after(name: str, arena_bytes: int, order: str = "dma-first") -> tuple[list[bytes], bytes]:
    """The local memories after the prologue, all cores', and the arena."""
    program, config = compiled(name)
    machine, arena = Machine(config, seed=7), np.full(arena_bytes, 0xA5, np.uint8)
    machine.run_prologue(program, arena, order=order)
    return [image.tobytes() for core in machine.cores for image in core.memories.values()], arena.tobytes()


@functools.cache
def whole(name: str) -> list[bytes]:
    return memories_after(name, compiled(name)[0].arena_bytes)[0]


@pytest.mark.regress
@pytest.mark.parametrize("name", CONFIGS)
@given(data=st.data())
def test_every_window_leaves_the_memories_of_the_whole_prologue(name: str, data: st.DataObject) -> None:
    program, _ = compiled(name)
    arena_bytes = data.draw(st.integers(program.body_bytes, program.arena_bytes + 1))
    found, arena = memories_after(name, arena_bytes, data.draw(st.sampled_from(["dma-first", "random"])))
    assert found == whole(name)
    for address, contents in program.contents():
        assert arena[address : address + len(contents)] == contents


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CONFIGS)
@given(window=st.integers(1, 40))
def test_windows_are_as_small_as_the_arena_and_none_is_left_out(name: str, window: int) -> None:
    """Of a program whose inference needs next to nothing, so that the windows may be as small as can be."""
    program, config = compiled(name)
    least = min(len(program.constants), window * CUT_BYTES)
    commands = sum(len(core.prologue.dma.commands) + len(core.prologue.compute.commands) for core in program.cores)
    small = _without_body(program, commands + least)
    machine, arena = Machine(config, seed=7), np.zeros(commands + least, np.uint8)
    found = stages(small, len(arena))
    assert len(found) == -(-len(program.constants) // least)
    for stage in found:
        assert max(address + len(contents) for address, contents in stage.contents) <= len(arena)
        for address, contents in stage.contents:
            arena[address : address + len(contents)] = np.frombuffer(contents, np.uint8)
        machine.run(stage.cores, arena)
    assert [image.tobytes() for core in machine.cores for image in core.memories.values()] == whole(name)


def _without_body(program: Program, arena_bytes: int) -> Program:
    """The same prologue before an inference that needs no more than ``arena_bytes``."""
    fitting = object.__new__(Program)
    for field in dataclasses.fields(Program):
        object.__setattr__(fitting, field.name, getattr(program, field.name))
    object.__setattr__(fitting, "body_bytes", arena_bytes)
    return fitting


def test_a_program_that_fits_has_its_prologue_as_the_only_stage() -> None:
    program, _ = compiled("ecp5-85k")
    (stage,) = stages(program, program.arena_bytes)
    assert stage.cores == tuple(core.prologue for core in program.cores)
    assert stages(program, 1 << 28) == (stage,)
    (window,) = stages(program, program.arena_bytes - 1)
    assert window.contents[0] == (0, program.constants)
    assert len(stages(program, len(program.constants))) > 1


def test_an_arena_on_the_chip_is_as_large_as_the_configuration_says() -> None:
    program, config = compiled("ecp5-85k")
    assert len(new_arena(program, config)) == program.arena_bytes
    assert len(new_arena(program, PRESETS["ecp5-25k-on-chip"])) == 16384


def test_refuses_an_arena_that_an_inference_does_not_fit() -> None:
    program, _ = compiled("tiny")
    message = (
        f"^program must fit the arena of {program.body_bytes - 1} bytes, "
        f"not need {program.body_bytes} bytes for an inference$"
    )
    with pytest.raises(ValueError, match=message):
        stages(program, program.body_bytes - 1)


def test_refuses_an_arena_without_room_for_a_window() -> None:
    program, _ = compiled("tiny")
    commands = len(program.cores[0].prologue.dma.commands) + 64
    small = _without_body(program, 64)
    assert len(stages(small, commands + CUT_BYTES)) == -(-len(program.constants) // CUT_BYTES)
    message = f"^program must fit the arena of .* bytes, not need {commands + CUT_BYTES} bytes for its prologue$"
    with pytest.raises(ValueError, match=message):
        stages(small, commands + CUT_BYTES - 1)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rows", lambda program: 2),
        ("signal", lambda program: 1),
        ("after", lambda program: 1),
        ("external", lambda program: program.constants_address - CUT_BYTES),
        ("external", lambda program: program.constants_address + CUT_BYTES // 2),
        ("external", lambda program: program.constants_address + len(program.constants)),
    ],
)
def test_refuses_a_prologue_that_does_more_than_load_constants(name: str, change: Callable[[Program], int]) -> None:
    program, _ = compiled("tiny")
    first = LOAD.decode(program.cores[0].prologue.dma.commands[:64])
    changed = _with_prologue(program, dma=LOAD.encode(**first | {name: change(program)}) + END.encode())
    with pytest.raises(ValueError, match=r"^program\.prologue must do nothing but load constants"):
        stages(changed, program.arena_bytes - 1)


@pytest.mark.parametrize("queue", Queue)
def test_refuses_a_prologue_with_other_commands(queue: Queue) -> None:
    program, _ = compiled("tiny")
    changed = _with_prologue(program, **{queue.value: SYNC.encode() + END.encode()})
    with pytest.raises(ValueError, match=r"^program\.prologue must do nothing but load constants"):
        stages(changed, program.arena_bytes - 1)


def _with_prologue(program: Program, **commands: bytes) -> Program:
    """With other commands in some queues of the prologue."""
    (core,) = program.cores
    queues = {name: dataclasses.replace(getattr(core.prologue, name), commands=new) for name, new in commands.items()}
    prologue = dataclasses.replace(core.prologue, **queues)
    return dataclasses.replace(program, cores=(dataclasses.replace(core, prologue=prologue),))
