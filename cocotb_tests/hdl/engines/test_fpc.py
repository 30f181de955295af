# amaranth: UnusedElaboratable=no
"""Fast pointwise convolution as an engine against golden.fpc, with multipliers that the bench lends it."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.array_bench import BorrowedMultipliers
from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from cocotb_tests.support.networks.butterflies import FPC_CONFIGS, random_stages, smaller_pattern
from lutterfly.golden.engines import FPC
from lutterfly.golden.numerics.butterfly import Pattern, pixel_words
from lutterfly.golden.numerics.fpc import Stages, enter, place, run_stages
from lutterfly.hdl.engines.engine import SELECT_LATENCY
from lutterfly.hdl.engines.fpc import FastPointwise
from lutterfly.hdl.parts.pipeline import SIMULATED


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["further", "bottom-up"])
def test_matches_golden(simulate, name: str) -> None:
    simulate(FastPointwise(FPC_CONFIGS[name]), env={"CONFIG": name})


@pytest.mark.regress
def test_matches_golden_where_it_sleeps(simulate) -> None:
    simulate(FastPointwise(FPC_CONFIGS["further"]), env={"CONFIG": "further"}, platform=SIMULATED)


def packed(array: np.ndarray) -> int:
    return int.from_bytes(array.tobytes(), "little")


class Bench:
    """Feeds the words of pixels, multiplies what is lent by the weights of each word, and keeps results."""

    def __init__(self, dut):
        self.dut, self.config = dut, FPC_CONFIGS[os.environ["CONFIG"]]
        self.component = FastPointwise(self.config)
        self.own, self.lanes = self.config.engines[FPC], self.config.array.lanes
        self.columns = self.component.borrowed_columns
        self.rng = np.random.default_rng(4)
        self.lent = BorrowedMultipliers(self.lanes, self.component.weight_times)
        self.results: list[np.ndarray] = []
        self.fed: list[int] = []
        self.given: list[int] = []
        self.factors = self.now = 0

    async def start(self) -> None:
        writes = {"write__en": 0} if self.component.has_own_columns else {}
        await start(self.dut, {"step": 0, "word": 0, "selected": 1, **writes})

    def any_weights(self) -> np.ndarray:
        return self.rng.integers(-128, 128, (self.columns, self.lanes), dtype=np.int8)

    async def feed(self, word: np.ndarray, weights: np.ndarray, step: dict) -> None:
        inputs = {"word": packed(word), "step": pack(step, self.component.step.shape())}
        inputs["borrowed_multipliers__products"] = self.lent.products(weights)
        self.factors, result = await cycle(self.dut, inputs, "borrowed_multipliers__factors", "result")
        self.lent.take(self.factors)
        if result & 1:
            self.results.append(np.frombuffer((result >> 1).to_bytes(4 * self.lanes, "little"), np.int32))
            self.given.append(self.now)
        self.now += 1

    async def idle(self, cycles: int, fields: dict[str, int]) -> None:
        """Words that belong to no step."""
        for _ in range(cycles):
            word = self.rng.integers(-128, 128, self.lanes, dtype=np.int8)
            step = {"valid": 0, "clear": int(self.rng.integers(2)), "fire": 0, "fields": {"fpc": fields}}
            await self.feed(word, self.any_weights(), step)

    async def write(self, first: int, words: np.ndarray) -> None:
        """The columns that the array has not: int8[words, columns, lanes]."""
        address_step = self.own.own_word_bytes(self.config.array) // self.lanes
        for number, word in enumerate(words):
            for column, weights in enumerate(word):
                address = (first + number) * address_step + column
                await cycle(self.dut, {"write__en": 1, "write__addr": address, "write__data": packed(weights)})
        self.dut.write__en.value = 0

    async def run(self, stages: Stages, codes: np.ndarray, zero_point: int) -> np.ndarray:
        """Pixels int8[pixels, inputs]: int32[words of results, lanes]."""
        pattern, hardware = stages.pattern, self.own.pattern
        placed = place(stages, hardware, self.lanes)
        count, first = pixel_words(pattern.width, self.lanes), 0
        if self.component.has_own_columns:
            first = int(self.rng.integers(1 + self.own.own_words - count))
            await self.write(first, placed.words[:, self.config.array.columns :])
        fields = {"stages": pattern.width.bit_length() - 1, "channels": pattern.inputs, "lanes": pattern.outputs}
        fields |= {"input_zero_point": zero_point, "input_shift": stages.input_shift, "own_weight": first}
        fields |= {"halves": placed.halves, "skips": placed.skips}
        self.results.clear()
        for pixel in codes:
            words = self.rng.integers(-128, 128, count * self.lanes, dtype=np.int8)
            words[: len(pixel)] = pixel
            for position, word in enumerate(words.reshape(-1, self.lanes)):
                step = {"valid": 1, "clear": int(position == 0), "fire": int(position == count - 1)}
                if position < -(-pattern.outputs // self.lanes):
                    self.fed.append(self.now)
                await self.feed(word, placed.words[position, : self.columns], step | {"fields": {"fpc": fields}})
            await self.idle(int(self.rng.integers(3)), fields)
        await self.idle(self.component.latencies[FPC], fields)
        return np.stack(self.results)


def expected(codes: np.ndarray, zero_point: int, stages: Stages, lanes: int) -> np.ndarray:
    """The words of results, with zeros after the last result of a pixel."""
    values = run_stages(enter(codes, zero_point, stages), stages)
    words = -(-stages.pattern.outputs // lanes)
    padded = np.zeros((len(codes), max(words * lanes, values.shape[1])), np.int32)
    padded[:, : values.shape[1]] = values
    return padded[:, : words * lanes].reshape(-1, lanes)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_layer_that_fits(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    hardware: Pattern = bench.own.pattern
    for number in range(30):
        pattern = hardware if number < 3 else smaller_pattern(hardware, bench.rng)
        stages = random_stages(pattern, number, extreme=number % 4 == 1)
        codes = bench.rng.integers(-128, 128, (3, pattern.inputs), dtype=np.int8)
        zero_point = int(bench.rng.integers(-128, 128))
        wanted = expected(codes, zero_point, stages, bench.lanes)
        found = await bench.run(stages, codes, zero_point)
        # What is after the channels of the smallest layers is anything.
        width = min(pattern.width, bench.lanes)
        np.testing.assert_array_equal(found[:, :width], wanted[:, :width])
    latency = bench.component.latencies[FPC]
    assert [given - fed for given, fed in zip(bench.given, bench.fed, strict=True)] == [latency] * len(bench.fed)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def factors_are_zero_while_it_is_not_selected(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    hardware: Pattern = bench.own.pattern
    codes = bench.rng.integers(-128, 128, (2, hardware.inputs), dtype=np.int8)
    await bench.run(random_stages(hardware, 1, extreme=True), codes, 0)
    # What belongs to no step looks like channels still.
    assert bench.factors
    dut.selected.value = 0
    await bench.idle(SELECT_LATENCY, {})
    for _ in range(20):
        await bench.idle(1, {})
        assert bench.factors == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def other_engines_may_be_selected_between_layers(dut) -> None:
    """For any time: where parts sleep, it has fallen asleep, is about to, or has not."""
    bench = Bench(dut)
    await bench.start()
    hardware: Pattern = bench.own.pattern
    latency = bench.component.latencies[FPC]
    for number, others in enumerate((1, latency - 1, latency, latency + 1, 3 * latency)):
        stages = random_stages(hardware, number)
        codes = bench.rng.integers(-128, 128, (2, hardware.inputs), dtype=np.int8)
        found = await bench.run(stages, codes, number)
        np.testing.assert_array_equal(found, expected(codes, number, stages, bench.lanes))
        dut.selected.value = 0
        await bench.idle(others, {})
        assert len(bench.results) == len(found)
        dut.selected.value = 1
        await bench.idle(SELECT_LATENCY, {})
