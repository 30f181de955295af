# amaranth: UnusedElaboratable=no
"""The lane-wise maximum against its golden twin, with gaps between steps."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest
from clocking import cycle, start

from lutterfly.golden.config import PRESETS
from lutterfly.golden.engines.maximum import maximum
from lutterfly.hdl.engines.engine import Step
from lutterfly.hdl.engines.maximum import Maximum
from streams import pack


@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_matches_golden(simulate, preset: str) -> None:
    simulate(Maximum(PRESETS[preset]), env={"PRESET": preset})


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def every_window(dut, p_stall: float) -> None:
    lanes, rng = PRESETS[os.environ["PRESET"]].array.lanes, np.random.default_rng(1)
    await start(dut, {"step": 0})
    expected, results = [], []

    async def feed(word: np.ndarray, **step: int) -> None:
        inputs = {"step": pack(step, Step), "word": int.from_bytes(word.tobytes(), "little")}
        (result,) = await cycle(dut, inputs, "result")
        if result is not None and result & 1:
            results.append(np.frombuffer((result >> 1).to_bytes(4 * lanes, "little"), np.int32))

    for _ in range(100):
        words = rng.integers(-128, rng.choice([-100, 128]), (int(rng.integers(1, 6)), lanes), dtype=np.int8)
        expected.append(maximum(words))
        for index, word in enumerate(words):
            while rng.random() < p_stall:
                await feed(rng.integers(-128, 128, lanes, dtype=np.int8), valid=0, clear=1, fire=1)
            await feed(word, valid=1, clear=int(index == 0), fire=int(index == len(words) - 1))
    for _ in range(3):
        await feed(np.zeros(lanes, np.int8), valid=0, clear=0, fire=0)
    np.testing.assert_array_equal(results, expected)
