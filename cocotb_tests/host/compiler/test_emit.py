"""An arena on the chip: an inference fits, or the network is refused with what takes the room."""

from __future__ import annotations

import dataclasses
import re

import pytest

from lutterfly.examples import digits
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArenaConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import CompileError, compile_model

MODEL = digits.model_path("qop").read_bytes()


def with_arena(config: Config, size: int) -> Config:
    return dataclasses.replace(config, arena=ArenaConfig(size))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("preset", [name for name, config in PRESETS.items() if config.arena.on_chip_bytes])
def test_the_digits_fit_every_board(preset: str) -> None:
    program = compile_model(MODEL, PRESETS[preset])
    assert program.body_bytes <= PRESETS[preset].arena.on_chip_bytes
    # The same program as with external memory.
    other = compile_model(MODEL, with_arena(PRESETS[preset], 0))
    assert [core.body for core in program.cores] == [core.body for core in other.cores]
    assert program.predicted_cycles == other.predicted_cycles


def test_what_streams_is_refused_by_name() -> None:
    memory = dataclasses.replace(PRESETS["tiny"].memory, weight_bytes=2048)
    small = with_arena(dataclasses.replace(PRESETS["tiny"], memory=memory), 4096)
    whole = compile_model(MODEL, with_arena(small, 0))
    assert whole.streamed
    with pytest.raises(CompileError) as caught:
        compile_model(MODEL, small)
    message = (
        rf"an inference needs {whole.body_bytes} bytes of the arena \(\d+ for inputs, outputs and what does not fit "
        rf"the feature memory, {len(whole.streamed)} for constants of [\w/]+, .* that do not stay on the chip, \d+ for "
        r"commands\), the configuration has 4096 on the chip; choose a --config with larger memories or with external "
        "memory"
    )
    assert re.fullmatch(message, str(caught.value))


@pytest.mark.regress
def test_an_arena_a_little_too_small_is_refused() -> None:
    """Of powers of two, the one that holds an inference and the one below."""
    memory = dataclasses.replace(PRESETS["tiny"].memory, weight_bytes=8192)
    config = dataclasses.replace(PRESETS["tiny"], memory=memory)
    need = compile_model(MODEL, config).body_bytes
    assert 8192 < need <= 16384
    with pytest.raises(CompileError, match=rf"^an inference needs {need} bytes of the arena"):
        compile_model(MODEL, with_arena(config, 8192))
    assert compile_model(MODEL, with_arena(config, 16384)).body_bytes == need
