# amaranth: UnusedElaboratable=no
"""One stage against the formula of golden.fpc: every density, pairs within a word and across words, skips."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.array_bench import BorrowedMultipliers
from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.numerics.butterfly import Density
from lutterfly.golden.numerics.fpc import FRACTION_BITS, UNIT_WEIGHT, VALUE_BITS, round_shift
from lutterfly.hdl.engines.butterfly import SETTING_LATENCY, ButterflyStage

LANES, WORDS = 4, 8
SKIP_BITS = 18
LEAST, GREATEST = -(1 << VALUE_BITS - 1), (1 << VALUE_BITS - 1) - 1
#: Distance of the pairs, density, and bits of what is skipped.
STAGES = {
    "within a word": (2, Density.FULL, 0),
    "in the next word": (4, Density.CROSS, SKIP_BITS),
    "far": (16, Density.FULL, SKIP_BITS),
    "unit": (8, Density.UNIT, 0),
}


def stage_of(name: str) -> ButterflyStage:
    distance, density, skip_bits = STAGES[name]
    return ButterflyStage(lanes=LANES, distance=distance, density=density, skip_bits=skip_bits)


@pytest.mark.parametrize("name", sweep(STAGES, kept=("in the next word", "unit")))
def test_matches_golden(simulate, name: str) -> None:
    simulate(stage_of(name), env={"STAGE": name})


def packed(values: np.ndarray, bits: int) -> int:
    return sum((int(value) & (1 << bits) - 1) << bits * lane for lane, value in enumerate(values))


class Pixels:
    """Random pixels of WORDS words with their weights and what is skipped, and what must come of them."""

    def __init__(self, name: str, rng: np.random.Generator, count: int, *, halves: int, is_used: int):
        distance, density, skip_bits = STAGES[name]
        width, partner = LANES * WORDS, np.arange(LANES * WORDS) ^ distance
        reach = rng.choice([40, 1 << VALUE_BITS - 1], (count, 1))
        self.values = rng.integers(-reach, reach, (count, width)).astype(np.int16)
        unit = np.full(width, UNIT_WEIGHT, np.int8)
        own, cross = (
            rng.integers(-128, 128, width).astype(np.int8) if trained else unit
            for trained in (density.trains_own and is_used, density.trains_cross and is_used)
        )
        limit = 1 << max(skip_bits - 1, 0)
        self.skipped = rng.integers(-limit, limit, (count, width)) * bool(skip_bits)
        before = self.values.astype(np.int64)
        total = own * before + cross * before[:, partner] * is_used
        result = round_shift(total, FRACTION_BITS + halves) + self.skipped
        self.expected = np.clip(result, LEAST, GREATEST).astype(np.int16)
        # The weight of a partner within the word stands in the partner's lane.
        crossed = cross[partner] if distance < LANES else cross
        columns = [own] * density.trains_own + [crossed] * density.trains_cross
        self.weights = np.array(columns, np.int8).reshape(len(columns), WORDS, LANES)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(halves=[0, 1], is_used=[0, 1], p_gap=[0.0, 0.5])
async def every_value(dut, halves: int, is_used: int, p_gap: float) -> None:
    name, rng = os.environ["STAGE"], np.random.default_rng(8)
    stage, (distance, _, skip_bits) = stage_of(name), STAGES[name]
    lent = BorrowedMultipliers(LANES, stage.weight_times) if stage.columns else None
    pixels = Pixels(name, rng, 30, halves=halves, is_used=is_used)
    # The number of a word among all, or none between two pixels.
    schedule: list[int | None] = []
    for pixel in range(len(pixels.values)):
        schedule += range(pixel * WORDS, (pixel + 1) * WORDS)
        schedule += [None] * (int(rng.integers(1, 4)) if rng.random() < p_gap else 0)
    schedule += [None] * stage.latency
    words = {"values": pixels.values.reshape(-1, LANES), "skipped": pixels.skipped.reshape(-1, LANES)}
    await start(dut, {"values": 0, "is_second": 0, "halves": halves, "is_used": is_used})
    for _ in range(SETTING_LATENCY):
        await cycle(dut, {})
    found = []

    def at(now: int) -> int | None:
        """The word that began in a cycle."""
        return schedule[now] if 0 <= now < len(schedule) else None

    for now in range(len(schedule)):
        word = at(now)
        inputs = {"values": packed(rng.integers(-99, 99, LANES) if word is None else words["values"][word], VALUE_BITS)}
        of_partner, of_skip = at(now - stage.partner_time + 1), at(now - stage.skip_time)
        inputs["is_second"] = 0 if of_partner is None else of_partner % WORDS * LANES // distance & 1
        if skip_bits and of_skip is not None:
            inputs["skipped"] = packed(words["skipped"][of_skip], skip_bits)
        if lent:
            weights = pixels.weights[:, 0 if word is None else word % WORDS]
            inputs["multipliers__products"] = lent.products(weights)
        outputs = await cycle(dut, inputs, "results", *(["multipliers__factors"] if lent else []))
        if lent:
            lent.take(outputs[1])
        if at(now - stage.latency) is not None:
            found.append(np.frombuffer(outputs[0].to_bytes(2 * LANES, "little"), np.int16))
    np.testing.assert_array_equal(np.concatenate(found).reshape(pixels.expected.shape), pixels.expected)
