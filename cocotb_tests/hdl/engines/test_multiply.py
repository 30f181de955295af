# amaranth: UnusedElaboratable=no
"""Products of two operands against the twin: with gaps between steps, and a first operand that many windows share."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden.elements import DIFFERENCE_BITS, NARROW_BITS
from lutterfly.golden.engines import MULTIPLY
from lutterfly.golden.numerics.multiplication import products
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.engine import SELECT_LATENCY, step_layout
from lutterfly.hdl.engines.multiply import Multiply
from lutterfly.hdl.parts.device import MULTIPLIER_LATENCY

PRODUCT_BITS = NARROW_BITS + DIFFERENCE_BITS


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_multiplies(simulate, preset: str) -> None:
    simulate(Multiply(PRESETS[preset]), env={"PRESET": preset})


def signed(value: int, bits: int, count: int) -> np.ndarray:
    """Fields of so many bits, two's complement."""
    fields = [value >> bits * place & (1 << bits) - 1 for place in range(count)]
    return np.array([field - (field >> bits - 1 << bits) for field in fields], np.int64)


class Bench:
    """Feeds words and multiplies as the array does."""

    def __init__(self, dut):
        config = PRESETS[os.environ["PRESET"]]
        self.dut, self.lanes, self.rng = dut, config.array.lanes, np.random.default_rng(1)
        self.layout = step_layout(config, [MULTIPLY])
        self.latency = Multiply(config).latencies[MULTIPLY]
        self.products = [0] * MULTIPLIER_LATENCY
        self.results: list[np.ndarray] = []
        self.due, self.now = list[int](), 0

    async def feed(self, word: np.ndarray, zero_points: tuple[int, int], **step: int) -> None:
        names = ("first_zero_point", "second_zero_point")
        fields = {"fields": {"multiply": dict(zip(names, zero_points, strict=True))}}
        inputs = {
            "step": pack(step | fields, self.layout),
            "word": int.from_bytes(word.tobytes(), "little"),
            "borrowed_multipliers__products": self.products.pop(0),
            "selected": 1,
        }
        ports = ("factors", "weights", "weighs")
        *given, result = await cycle(self.dut, inputs, *(f"borrowed_multipliers__{port}" for port in ports), "result")
        factors, weights = signed(given[0], NARROW_BITS, self.lanes), signed(given[1], DIFFERENCE_BITS, self.lanes)
        assert given[2] == (1 << self.lanes) - 1 or self.now <= SELECT_LATENCY
        found = (int(value) & (1 << PRODUCT_BITS) - 1 for value in factors * weights)
        self.products.append(sum(product << PRODUCT_BITS * lane for lane, product in enumerate(found)))
        assert bool(result & 1) == (self.due[:1] == [self.now]), self.now
        if result & 1:
            self.due.pop(0)
            self.results.append(signed(result >> 1, 32, self.lanes))
        if step["valid"] and step["fire"]:
            self.due.append(self.now + self.latency)
        self.now += 1

    def word(self) -> np.ndarray:
        extreme = self.rng.choice(np.array([-128, 127], np.int8), self.lanes)
        return extreme if self.rng.random() < 0.2 else self.rng.integers(-128, 128, self.lanes, dtype=np.int8)

    async def idle(self, cycles: int) -> None:
        for _ in range(cycles):
            await self.feed(self.word(), (-5, 99), valid=0, clear=1, fire=int(self.rng.integers(2)))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def every_window(dut, p_stall: float) -> None:
    bench = Bench(dut)
    await start(dut, {"step": 0, "word": 0, "selected": 1, "borrowed_multipliers__products": 0})
    await bench.idle(SELECT_LATENCY + 1)
    rng, expected = bench.rng, []
    for _ in range(60):
        first_zero, second_zero = (int(zero) for zero in rng.choice([-128, 127, 0, int(rng.integers(-128, 128))], 2))
        first = bench.word()
        # One window, or several that share the first operand.
        for window in range(int(rng.choice([1, 1, 2, 5]))):
            second = bench.word()
            for word, fire in ((first, 0), (second, 1))[window > 0 :]:
                while rng.random() < p_stall:
                    await bench.idle(1)
                await bench.feed(word, (first_zero, second_zero), valid=1, clear=1 - fire, fire=fire)
            expected.append(products(first, second, first_zero, second_zero))
    await bench.idle(bench.latency + 1)
    np.testing.assert_array_equal(bench.results, expected)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def others_have_the_multipliers_meanwhile(dut) -> None:
    """While it is not selected its factors are zero, and nobody takes its weights."""
    bench = Bench(dut)
    await start(dut, {"step": 0, "word": 0, "selected": 1, "borrowed_multipliers__products": 0})
    await bench.feed(bench.word(), (3, 4), valid=1, clear=1, fire=0)
    await bench.feed(bench.word(), (3, 4), valid=1, clear=0, fire=1)
    # Until the result is out nobody else begins.
    await bench.idle(bench.latency + 1)
    for number in range(20):
        inputs = {"step": 0, "word": int.from_bytes(bench.word().tobytes(), "little"), "selected": 0}
        names = [f"borrowed_multipliers__{port}" for port in ("factors", "weighs")]
        factors, weighs = await cycle(dut, inputs, *names)
        assert number < SELECT_LATENCY or (factors, weighs) == (0, 0), number
