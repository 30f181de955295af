# amaranth: UnusedElaboratable=no
"""The operands of an Add: the bytes of the last two steps, side by side, with gaps between steps."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.add import AddOperands
from lutterfly.hdl.engines.engine import Step


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_operands(simulate, preset: str) -> None:
    simulate(AddOperands(PRESETS[preset]), env={"PRESET": preset})


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
            codes = np.frombuffer((result >> 1).to_bytes(4 * lanes, "little"), np.int8).reshape(lanes, 4)
            results.append(codes[:, :2].T)

    for _ in range(100):
        words = rng.integers(-128, 128, (2, lanes), dtype=np.int8)
        expected.append(words)
        for index, word in enumerate(words):
            while rng.random() < p_stall:
                await feed(rng.integers(-128, 128, lanes, dtype=np.int8), valid=0, clear=1, fire=1)
            await feed(word, valid=1, clear=int(index == 0), fire=int(index == 1))
    for _ in range(3):
        await feed(words[0], valid=0, clear=0, fire=0)
    np.testing.assert_array_equal(results, expected)
