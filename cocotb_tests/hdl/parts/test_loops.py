# amaranth: UnusedElaboratable=no
"""The nested loops against golden.numerics.windows: both pointers, the flags, commands without a gap between them."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.compute_bench import payload, random_scenario
from cocotb_tests.support.benches.streams import pack
from lutterfly.golden import isa
from lutterfly.golden.numerics import windows
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.parts.isa import command_shape
from lutterfly.hdl.parts.loops import Loops

WORD_BITS = 21


@pytest.mark.parametrize("side", ["source", "destination"])
def test_matches_golden(simulate, side: str) -> None:
    simulate(Loops(side=side, word_bits=WORD_BITS), env={"SIDE": side})


def test_matches_golden_with_a_loop_over_results(simulate) -> None:
    simulate(Loops(side="destination", word_bits=WORD_BITS, count_bits=2), env={"SIDE": "destination"})


def test_bad_side() -> None:
    with pytest.raises(ValueError, match=r"^side must be 'source' or 'destination', not 'left'$"):
        Loops(side="left", word_bits=WORD_BITS)


def expected(command: dict[str, int], side: str, further: int, pitch: int) -> list[tuple[int, int, int, int]]:
    """(pointer, word, last tile, last) of every step of every result of every window."""
    pointers = windows.loop_addresses(command, side)[..., None] + pitch * np.arange(further + 1)
    pointers %= windows.LOCAL_SPACE
    tiles = windows.tile_count(command)
    rows = []
    for position in np.ndindex(*pointers.shape):
        tile = position[windows.tile_axis(command)]
        is_last = all(index == count - 1 for index, count in zip(position, pointers.shape, strict=True))
        rows += [
            (
                int(pointers[position]),
                command["weight"] + tile * command["steps"] + step,
                int(tile == tiles - 1),
                int(is_last),
            )
            for step in range(command["steps"])
        ]
    return rows


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def every_window(dut, p_stall: float) -> None:
    rng = np.random.default_rng(5)
    commands = random_scenario(PRESETS["tiny"], rng, 25).commands
    shape = command_shape(isa.COMPUTE)
    await start(dut, {"load": 0, "step": 0, "advance": 0})
    has_results = hasattr(dut, "more")
    results = [(int(rng.integers(4)), int(rng.integers(-40, 40))) if has_results else (0, 0) for _ in commands]

    def load(number: int) -> dict[str, int]:
        command = {"index": 0, **payload(commands[number])}
        first = {"first_more": results[number][0]} if has_results else {}
        return {"load": 1, "first": pack(command, shape), "first_word": command["weight"], **first}

    await cycle(dut, load(0))
    before = None
    for number, command in enumerate(commands):
        dut.command.value = pack({"index": 0, **payload(command)}, shape)
        if has_results:
            dut.more.value, dut.pitch.value = results[number]
        rows = expected(command, os.environ["SIDE"], *results[number])
        for position, row in enumerate(rows):
            while rng.random() < p_stall:
                (pointer,) = await cycle(dut, {"load": 0, "step": 0, "advance": 0}, "pointer")
                assert before in (None, pointer)
                before = row[0]
            window_ends = position % command["steps"] == command["steps"] - 1
            is_last = position == len(rows) - 1
            inputs = {"step": 1, "advance": int(window_ends), "load": 0}
            if is_last and number < len(commands) - 1:
                inputs |= load(number + 1)
            pointer, *outputs = await cycle(dut, inputs, "pointer", "word", "last_tile", "last")
            assert tuple(outputs) == row[1:], f"command {number}, step {position}"
            assert before in (None, pointer), f"command {number}, step {position}"
            before = row[0]
