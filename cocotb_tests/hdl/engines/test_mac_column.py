# amaranth: UnusedElaboratable=no
"""A column alone: sums of products, of agreeing bits and of none, and products of factors that somebody else gives."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.array_bench import CONTROLS, PHASED, WAITS, signed_bits
from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.engines import DEPTHWISE, FPC, MAC, MULTIPLY, WINOGRAD, XNOR, EngineConfigs
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.engines.winograd import winograd
from lutterfly.golden.numerics.winograd import GROUP, WORD_BITS, transform_inputs
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.engine import step_layout
from lutterfly.hdl.engines.mac_column import MacColumn
from lutterfly.hdl.engines.stage import column_latency
from lutterfly.hdl.engines.stages import stages_of
from lutterfly.hdl.engines.winograd import TAP_CONTROL
from lutterfly.hdl.engines.xnor import UNCOUNTED_DELAY
from lutterfly.hdl.parts.device import MULTIPLIER_LATENCY

LANES = 4
LATENCY = column_latency(LANES)
STEP = step_layout(PRESETS["tiny"], (MAC,), ("chain",))
#: By the engines beside MAC whose stages a column has, or that borrow of it.
KINDS = {
    "plain": (DEPTHWISE,),
    "lends": (DEPTHWISE, FPC),
    "lends to weights": (DEPTHWISE, MULTIPLY),
    "binary": (DEPTHWISE, XNOR),
    "winograd": (WINOGRAD, DEPTHWISE),
    "winograd, lends, binary": (WINOGRAD, DEPTHWISE, XNOR, FPC),
}


@pytest.mark.parametrize("kind", sweep(KINDS, kept=("lends to weights", "winograd, lends, binary")))
def test_accumulates(simulate, kind: str) -> None:
    own = {"FPC": FpcConfig(2)} if FPC in KINDS[kind] else {}
    engines = EngineConfigs.of(MAC, *KINDS[kind], DEPTHWISE=DepthwiseConfig(2), **own)
    stages = stages_of(dataclasses.replace(PRESETS["tiny"], engines=engines))
    step = PHASED if WINOGRAD in KINDS[kind] else STEP
    simulate(MacColumn(lanes=LANES, step=step, stages=stages), env={"KIND": kind})


def packed(array: np.ndarray) -> int:
    return int.from_bytes(array.tobytes(), "little")


class Bench:
    """Feeds words, and keeps each total with the cycle in which it fired."""

    def __init__(self, dut):
        self.dut, self.rng = dut, np.random.default_rng(3)
        kind = KINDS[os.environ["KIND"]]
        self.is_binary, self.is_winograd, self.is_weighed = (code in kind for code in (XNOR, WINOGRAD, MULTIPLY))
        self.is_borrowed = FPC in kind or self.is_weighed
        self.step = PHASED if self.is_winograd else STEP
        self.word_bits = WORD_BITS if self.is_winograd else 8
        # With WINOGRAD weights come before their words, and totals later.
        self.early = WAITS.weights if self.is_winograd else 0
        self.latency = LATENCY + self.early + (WAITS.totals if self.is_winograd else 0)
        self.waiting = [dict[str, int]() for _ in range(self.early)]
        self.uncounted = [(1 << LANES) - 1] * UNCOUNTED_DELAY
        self.totals: list[int] = []
        self.now, self.due = 0, list[int]()

    async def start(self) -> None:
        inputs = {"step": 0, "word": 0, "weights": 0}
        inputs |= {"borrowed_multipliers__factors": 0} if self.is_borrowed else {}
        inputs |= {"borrowed_multipliers__weighs": 0} if self.is_weighed else {}
        inputs |= {"control": 0} if self.is_winograd else {}
        await start(self.dut, inputs | ({"binary": 0, "uncounted": 0} if self.is_binary else {}))

    def timed(self, inputs: dict[str, int]) -> dict[str, int]:
        """What the column is given in the cycle of a word's weights."""
        now = {name: value for name, value in inputs.items() if name in ("weights", "control")}
        self.waiting.append({name: value for name, value in inputs.items() if name not in now})
        return now | self.waiting.pop(0)

    async def feed(self, word: np.ndarray, weights: np.ndarray, counted: np.ndarray | None = None, **step: Any) -> None:
        """``counted``: the bytes of a binary word that count, bool[lanes]."""
        flags = (1 << LANES) - 1 if counted is None else sum(int(not one) << lane for lane, one in enumerate(counted))
        self.uncounted.append(flags)
        inputs = {"step": pack(step, self.step), "word": signed_bits(word, self.word_bits), "weights": packed(weights)}
        inputs |= {"uncounted": self.uncounted.pop(0)} if self.is_binary else {}
        if self.is_winograd:
            wanted = CONTROLS[step["phase"]] if step["valid"] and step.get("winograd") else ()
            inputs["control"] = pack(dict.fromkeys(wanted, 1), TAP_CONTROL)
        fired, total = await cycle(self.dut, self.timed(inputs), "fired", "total")
        assert bool(fired) == (self.due[:1] == [self.now]), self.now
        if fired:
            self.due.pop(0)
            self.totals.append(total - (total >> 31 << 32))
        if step["valid"] and step["fire"] and not step.get("chain"):
            both = step.get("winograd") and step["fields"]["winograd"]["further"]
            self.due += [self.now + self.latency + number for number in range(2 if both else 1)]
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

    async def neighbours(self, p_gap: float) -> list[int]:
        """A window of random groups of words; its totals."""
        groups, further = int(self.rng.integers(1, 4)), int(self.rng.integers(2))
        words, weights = (
            np.full(shape, -128, np.int8) if self.rng.random() < 0.2 else self.bytes(*shape)
            for shape in [(GROUP * groups, LANES)] * 2
        )
        factors = transform_inputs(words.reshape(groups, GROUP, LANES)).reshape(-1, LANES)
        while self.rng.random() < p_gap:
            await self.idle(1)
        for number, (word, weight) in enumerate(zip(factors, weights, strict=True)):
            flags = {"valid": 1, "clear": int(number < 2), "fire": int(number == len(words) - 1), "winograd": 1}
            fields = {"winograd": {"further": further}}
            await self.feed(word, weight, **flags, phase=number % GROUP, fields=fields)
        return winograd(words, weights[:, None])[: 1 + further, 0].tolist()


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
        await bench.idle(bench.latency + 1)
        if bench.is_winograd and not is_binary:
            for _ in range(60):
                expected += await bench.neighbours(p_gap)
            await bench.idle(bench.latency + 2)
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
        inputs = {"word": signed_bits(word, bench.word_bits), "weights": packed(weight)}
        inputs |= {"borrowed_multipliers__factors": packed(factor)} if bench.is_borrowed else {}
        if bench.is_weighed:
            bits = sum((int(one) & 0x1FF) << 9 * lane for lane, one in enumerate(other))
            every = (1 << LANES) - 1
            inputs |= {"borrowed_multipliers__weights": bits, "borrowed_multipliers__weighs": every * int(is_other)}
        outputs.append(await cycle(dut, bench.timed(inputs), *names))
    width = 25 if bench.is_weighed else 24
    for number, (own, *lent) in enumerate(outputs[MULTIPLIER_LATENCY + bench.early :]):
        used = others[number] if weighs[number] else weights[number]
        products = (factors[number].astype(np.int64) + words[number]) * used
        assert own == packed(products.astype(np.int16)), number
        assert lent in ([], [sum((int(one) & (1 << width) - 1) << width * lane for lane, one in enumerate(products))])
