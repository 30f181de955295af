# amaranth: UnusedElaboratable=no
"""The weight memory: written in units of one column, read column after column."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from benches.clocking import cycle, start
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.memories.weight_memory import WeightMemory
from lutterfly.hdl.parts.device import RAM_LATENCY


@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_weight_memory(simulate, preset: str) -> None:
    simulate(WeightMemory(PRESETS[preset]), env={"PRESET": preset})


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def each_column_one_cycle_later(dut) -> None:
    config, rng = PRESETS[os.environ["PRESET"]], np.random.default_rng(1)
    lanes, columns = config.array.lanes, config.array.columns
    words = [0, 1, 2, 3, config.weight_words // 2, config.weight_words - 1]
    weights = {word: rng.integers(0, 256, (columns, lanes), dtype=np.uint8) for word in words}
    await start(dut, {"write__en": 0})
    for word, columns_bytes in weights.items():
        for column in range(columns):
            await cycle(
                dut,
                {
                    "write__en": 1,
                    "write__addr": word * columns + column,
                    "write__data": int.from_bytes(columns_bytes[column].tobytes(), "little"),
                },
            )
    dut.write__en.value = 0

    addresses = rng.choice(words, 200)
    outputs = []
    for address in [*addresses, *[0] * (RAM_LATENCY + columns)]:
        outputs += await cycle(dut, {"address": int(address)}, "weights")
    for column in range(columns):
        late = RAM_LATENCY + column
        got = [
            output.to_bytes(columns * lanes, "little")[column * lanes :][:lanes]
            for output in outputs[late : late + len(addresses)]
        ]
        assert got == [weights[address][column].tobytes() for address in addresses]
