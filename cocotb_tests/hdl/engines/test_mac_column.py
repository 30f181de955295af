# amaranth: UnusedElaboratable=no
"""A column alone: sums of products, of agreeing bits and of none, and products of factors that somebody else gives."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from benches.clocking import cycle, start
from benches.streams import pack
from lutterfly.golden.engines import MAC
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.agreement import UNCOUNTED_DELAY
from lutterfly.hdl.engines.engine import step_layout
from lutterfly.hdl.engines.mac_column import MacColumn, column_latency
from lutterfly.hdl.parts.device import MULTIPLIER_LATENCY

LANES = 4
LATENCY = column_latency(LANES)
STEP = step_layout(PRESETS["tiny"], (MAC,), ("chain",))
KINDS = {
    "plain": {},
    "lends": {"is_borrowed": True},
    "lends to weights": {"is_borrowed": True, "is_weighed": True},
    "binary": {"is_binary": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_accumulates(simulate, kind: str) -> None:
    simulate(MacColumn(lanes=LANES, step=STEP, **KINDS[kind]), env={"KIND": kind})


def packed(array: np.ndarray) -> int:
    return int.from_bytes(array.tobytes(), "little")


class Bench:
    """Feeds words, and keeps each total with the cycle in which it fired."""

    def __init__(self, dut):
        self.dut, self.rng = dut, np.random.default_rng(3)
        self.is_binary = "is_binary" in KINDS[os.environ["KIND"]]
        self.is_borrowed = "is_borrowed" in KINDS[os.environ["KIND"]]
        self.is_weighed = "is_weighed" in KINDS[os.environ["KIND"]]
        self.uncounted = [(1 << LANES) - 1] * UNCOUNTED_DELAY
        self.totals: list[int] = []
        self.now, self.due = 0, list[int]()

    async def start(self) -> None:
        inputs = {"step": 0, "word": 0, "weights": 0}
        inputs |= {"borrowed_multipliers__factors": 0} if self.is_borrowed else {}
        inputs |= {"borrowed_multipliers__weighs": 0} if self.is_weighed else {}
        await start(self.dut, inputs | ({"binary": 0, "uncounted": 0} if self.is_binary else {}))

    async def feed(self, word: np.ndarray, weights: np.ndarray, counted: np.ndarray | None = None, **step: int) -> None:
        """``counted``: the bytes of a binary word that count, bool[lanes]."""
        flags = (1 << LANES) - 1 if counted is None else sum(int(not one) << lane for lane, one in enumerate(counted))
        self.uncounted.append(flags)
        inputs = {"step": pack(step, STEP), "word": packed(word), "weights": packed(weights)}
        late = {"uncounted": self.uncounted.pop(0)} if self.is_binary else {}
        fired, total = await cycle(self.dut, inputs | late, "fired", "total")
        assert bool(fired) == (self.due[:1] == [self.now]), self.now
        if fired:
            self.due.pop(0)
            self.totals.append(total - (total >> 31 << 32))
        if step["valid"] and step["fire"] and not step.get("chain"):
            self.due.append(self.now + LATENCY)
        self.now += 1

    def bytes(self, *shape: int) -> np.ndarray:
        return self.rng.integers(-128, 128, shape, dtype=np.int8)

    async def idle(self, cycles: int) -> None:
        for _ in range(cycles):
            await self.feed(self.bytes(LANES), self.bytes(LANES), valid=0, clear=1, fire=1)

    async def window(self, *, is_binary: bool, p_gap: float) -> list[int]:
        """A window of random words; its total, if it is not one of lanes, which the array adds up elsewhere."""
        total, steps = 0, int(self.rng.integers(1, 8))
        extreme, chain = self.rng.random() < 0.2, int(self.rng.random() < 0.2)
        for step in range(steps):
            while self.rng.random() < p_gap:
                await self.idle(1)
            word, weights = (np.full(LANES, -128, np.int8) if extreme else self.bytes(LANES) for _ in range(2))
            counted = self.rng.random(LANES) < 0.7
            flags = {"valid": 1, "clear": int(step == 0), "fire": int(step == steps - 1), "chain": chain}
            await self.feed(word, weights, counted if is_binary else None, **flags)
            if is_binary:
                total += 2 * int((np.bitwise_count(~(word ^ weights).view(np.uint8)) * counted).sum())
            else:
                total += int((word.astype(np.int64) * weights).sum())
        return [] if chain else [total]


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_gap=[0.0, 0.4])
async def every_window(dut, p_gap: float) -> None:
    bench = Bench(dut)
    await bench.start()
    expected = []
    for is_binary in [False, True, False] if bench.is_binary else [False]:
        if bench.is_binary:
            dut.binary.value = ((1 << LANES) - 1) * is_binary
        for _ in range(60):
            expected += await bench.window(is_binary=is_binary, p_gap=p_gap)
        # It stays while words are under way.
        await bench.idle(LATENCY + 1)
    assert bench.totals == expected


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def factors_of_somebody_else(dut) -> None:
    """While there are no words; else its products are those of its own. Weights count if their owner says so."""
    bench = Bench(dut)
    await bench.start()
    factors = bench.rng.integers(-(1 << 15), 1 << 15, (100, LANES)).astype(np.int16)
    words, weights = bench.bytes(100, LANES), bench.bytes(100, LANES)
    if not bench.is_borrowed:
        factors[:] = 0
    # Half of the time each.
    factors[50:], words[:50] = 0, 0 if bench.is_borrowed else words[:50]
    others = bench.rng.integers(-255, 256, (100, LANES))
    weighs = bench.rng.random(100) < 0.5 if bench.is_weighed else np.zeros(100, bool)
    names = ["products", *(["borrowed_multipliers__products"] if bench.is_borrowed else [])]
    outputs = []
    for factor, word, weight, other, is_other in zip(factors, words, weights, others, weighs, strict=True):
        inputs = {"word": packed(word), "weights": packed(weight)}
        inputs |= {"borrowed_multipliers__factors": packed(factor)} if bench.is_borrowed else {}
        if bench.is_weighed:
            bits = sum((int(one) & 0x1FF) << 9 * lane for lane, one in enumerate(other))
            every = (1 << LANES) - 1
            inputs |= {"borrowed_multipliers__weights": bits, "borrowed_multipliers__weighs": every * int(is_other)}
        outputs.append(await cycle(dut, inputs, *names))
    width = 25 if bench.is_weighed else 24
    for number, (own, *lent) in enumerate(outputs[MULTIPLIER_LATENCY:]):
        used = others[number] if weighs[number] else weights[number]
        products = (factors[number].astype(np.int64) + words[number]) * used
        assert own == packed(products.astype(np.int16)), number
        assert lent in ([], [sum((int(one) & (1 << width) - 1) << width * lane for lane, one in enumerate(products))])
