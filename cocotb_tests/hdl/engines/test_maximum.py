# amaranth: UnusedElaboratable=no
"""The lane-wise maximum against its golden twins, of codes and of bits, with gaps between steps."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.engines import BINARY_MAXIMUM, DEPTHWISE, ENGINES, MAC, MAXIMUM, EngineConfigs, find_engine
from lutterfly.golden.engines.binary_maximum import binary_maximum
from lutterfly.golden.engines.maximum import maximum
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.maximum import Maximum

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "ecp5-85k")},
    **{
        f"{name}, binary": dataclasses.replace(
            PRESETS[name], engines=EngineConfigs.of(*ENGINES.values(), DEPTHWISE=PRESETS[name].engines[DEPTHWISE])
        )
        for name in ("tiny", "ecp5-85k")
    },
    "binary alone": dataclasses.replace(PRESETS["tiny"], engines=EngineConfigs.of(MAC, BINARY_MAXIMUM)),
}


@pytest.mark.parametrize("name", sweep(CONFIGS, kept=("tiny, binary", "ecp5-85k")))
def test_matches_golden(simulate, name: str) -> None:
    simulate(Maximum(CONFIGS[name]), env={"CONFIG": name})


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def every_window(dut, p_stall: float) -> None:
    component, rng = Maximum(CONFIGS[os.environ["CONFIG"]]), np.random.default_rng(1)
    lanes, twins = component.config.array.lanes, {MAXIMUM: maximum, BINARY_MAXIMUM: binary_maximum}
    await start(dut, {"step": 0})
    expected, results = [], []

    async def feed(word: np.ndarray, **step: int) -> None:
        inputs = {"step": pack(step, component.step.shape()), "word": int.from_bytes(word.tobytes(), "little")}
        (result,) = await cycle(dut, inputs, "result")
        if result is not None and result & 1:
            results.append(np.frombuffer((result >> 1).to_bytes(4 * lanes, "little"), np.int32))

    for _ in range(100):
        words = rng.integers(-128, rng.choice([-100, 128]), (int(rng.integers(1, 6)), lanes), dtype=np.int8)
        code = find_engine(int(rng.choice(list(component.latencies))))
        of_step = {flag: int(code == own) for flag, own in component.flags.items()}
        expected.append(twins[code](words))
        for index, word in enumerate(words):
            while rng.random() < p_stall:
                await feed(rng.integers(-128, 128, lanes, dtype=np.int8), valid=0, clear=1, fire=1)
            await feed(word, valid=1, clear=int(index == 0), fire=int(index == len(words) - 1), **of_step)
    for _ in range(3):
        await feed(np.zeros(lanes, np.int8), valid=0, clear=0, fire=0)
    np.testing.assert_array_equal(results, expected)
