# amaranth: UnusedElaboratable=no
"""The butterfly against golden.numerics.fpc: patterns of every kind, smaller layers, gaps between pixels, extremes."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from cocotb_tests.support.networks.butterflies import random_stages, smaller_pattern
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.numerics.butterfly import Density, Pattern
from lutterfly.golden.numerics.fpc import Stages, enter, place, run_stages, stages_on
from lutterfly.hdl.engines.butterfly import Butterfly, settings_layout, step_layout

#: Hardware: its pattern and its lanes.
HARDWARE: dict[str, tuple[Pattern, int]] = {
    "bottom-up": (Pattern.of(32, 32, skips=[(0, 4)]), 4),
    "top-down": (Pattern.of(16, 16, "top-down", skips=[(0, 3), (2, 3)]), 4),
    "mixed": (
        Pattern(
            32,
            32,
            (8, 1, 4, 16, 2),
            tuple(map(Density, ("unit", "full", "cross", "full", "unit"))),
            ((1, 1), (0, 3), (2, 3), (1, 3)),
        ),
        4,
    ),
    "unit": (Pattern.of(8, 8, densities=["unit"] * 3), 4),
    "one word": (Pattern.of(8, 8), 8),
}


#: Each is compiled; networks run on one that goes top-down, and a stage of unit weights has a test of its own.
IN_EVERY_RUN = ("bottom-up",)


@pytest.mark.regress
@pytest.mark.parametrize("name", sweep(HARDWARE, kept=IN_EVERY_RUN))
def test_matches_golden(simulate, name: str) -> None:
    pattern, lanes = HARDWARE[name]
    simulate(Butterfly(pattern, lanes=lanes), env={"HARDWARE": name})


class Bench:
    """Feeds the words of pixels with their weights, and keeps the values that come out, with their cycles."""

    def __init__(self, dut):
        self.dut = dut
        pattern, self.lanes = HARDWARE[os.environ["HARDWARE"]]
        self.pattern = pattern
        self.component = Butterfly(pattern, lanes=self.lanes)
        self.rng = np.random.default_rng(5)
        self.late: list[np.ndarray] = []
        self.values: list[np.ndarray] = []
        self.fed: list[int] = []
        self.given: list[int] = []
        self.now = 0

    async def start(self) -> None:
        await start(self.dut, {"step": 0, "word": 0, "settings": 0})
        idle = np.zeros((self.component.columns, self.lanes), np.int8)
        self.late = [idle] * (max(self.component.weight_times, default=0) + 1)

    async def feed(self, word: np.ndarray, weights: np.ndarray, step: dict[str, int]) -> None:
        self.late = [weights, *self.late[:-1]]
        inputs = {
            "word": int.from_bytes(word.tobytes(), "little"),
            "step": pack(step, step_layout(self.pattern, self.lanes)),
        }
        if self.component.columns:
            now = [self.late[time][column] for column, time in enumerate(self.component.weight_times)]
            inputs["weights"] = int.from_bytes(np.stack(now).tobytes(), "little")
        if step["valid"]:
            self.fed.append(self.now)
        valid, values = await cycle(self.dut, inputs, "valid", "values")
        if valid:
            self.values.append(np.frombuffer(values.to_bytes(2 * self.lanes, "little"), np.int16))
            self.given.append(self.now)
        self.now += 1

    async def idle(self, cycles: int) -> None:
        """Anything but words of a pixel."""
        for _ in range(cycles):
            word = self.rng.integers(-128, 128, self.lanes, dtype=np.int8)
            weights = self.rng.integers(-128, 128, self.late[0].shape, dtype=np.int8)
            position = int(self.rng.integers(max(self.pattern.width // self.lanes, 1)))
            await self.feed(word, weights, {"valid": 0, "position": position, "exists": (1 << self.lanes) - 1})

    async def run(self, stages: Stages, codes: np.ndarray, zero_point: int, p_gap: float) -> np.ndarray:
        """Pixels int8[pixels, inputs]: int16[pixels, width]."""
        placed = place(stages, self.pattern, self.lanes)
        settings = {
            "zero_point": zero_point,
            "input_shift": stages.input_shift,
            "halves": placed.halves,
            "is_used": sum(1 << index for index in stages_on(stages.pattern, self.pattern)),
            **({"skips": placed.skips} if self.pattern.skips else {}),
        }
        self.dut.settings.value = pack(settings, settings_layout(self.pattern))
        self.values = []
        for pixel in codes:
            words = self.rng.integers(-128, 128, placed.words.shape[0] * self.lanes, dtype=np.int8)
            words[: len(pixel)] = pixel
            for position, word in enumerate(words.reshape(-1, self.lanes)):
                channels = int(np.clip(len(pixel) - position * self.lanes, 0, self.lanes))
                step = {"valid": 1, "position": position, "exists": (1 << channels) - 1}
                await self.feed(word, placed.words[position], step)
            while self.rng.random() < p_gap:
                await self.idle(1)
        await self.idle(self.component.latency)
        return np.concatenate(self.values).reshape(len(codes), -1)[:, : stages.pattern.width]


@cocotb.test(timeout_time=10, timeout_unit="ms")
@cocotb.parametrize(p_gap=[0.0, 0.4])
async def every_layer_that_fits(dut, p_gap: float) -> None:
    bench = Bench(dut)
    await bench.start()
    for number in range(40):
        pattern = bench.pattern if number < 4 else smaller_pattern(bench.pattern, bench.rng)
        stages = random_stages(pattern, number, extreme=number % 4 == 1)
        codes = bench.rng.integers(-128, 128, (3, pattern.inputs), dtype=np.int8)
        if number % 4 == 1:
            codes = bench.rng.choice(np.array([-128, 127], np.int8), codes.shape)
        zero_point = int(bench.rng.choice([-128, 0, 127, bench.rng.integers(-128, 128)]))
        values = await bench.run(stages, codes, zero_point, p_gap)
        np.testing.assert_array_equal(values, run_stages(enter(codes, zero_point, stages), stages))
    assert [given - fed for given, fed in zip(bench.given, bench.fed, strict=True)] == (
        [bench.component.latency] * len(bench.fed)
    )
