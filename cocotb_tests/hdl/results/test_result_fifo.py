# amaranth: UnusedElaboratable=no
"""Results that wait against a Python list: order, groups, high bits, and exactly as many as have a place."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import Timer

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.latencies import RESULT_WINDOWS, result_windows
from lutterfly.hdl.engines.engine import has_whole_epilogue
from lutterfly.hdl.results.results import GROUP_LATENCY, ResultFifo


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_keeps(simulate, preset: str) -> None:
    simulate(ResultFifo(PRESETS[preset]), env={"PRESET": preset})


class Bench:
    """Puts results in and takes groups out as the walker does, and knows what must come."""

    def __init__(self, dut):
        self.dut = dut
        self.config, self.rng = PRESETS[os.environ["PRESET"]], np.random.default_rng(4)
        self.lanes, self.width = self.config.array.lanes, self.config.array.requant_lanes
        self.names = ["overflows", "accumulators", *(["values"] if has_whole_epilogue(self.config) else [])]
        self.waiting: list[tuple[np.ndarray, bool]] = []
        self.group = 0
        #: What comes out, by its cycle: accumulators of a group, and the low bits of all lanes.
        self.due: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.now = self.compared = self.overflows = 0

    async def step(self, *, comes: tuple[np.ndarray, bool] | None, serves: bool) -> None:
        """A cycle: a result with whether it is wide, and whether a group goes out if there is one."""
        await Timer(1, "step")
        inputs = {"result": 0 if comes is None else self.pack(*comes), "pop": 0}
        if serves and self.dut.available.value == 1:
            totals, is_wide = self.waiting[0]
            totals = totals if is_wide else totals.astype(np.int16).astype(np.int32)
            first = self.group * self.width
            self.due[self.now + GROUP_LATENCY] = totals[first : first + self.width], totals.astype(np.int16)
            is_last = first + self.width == self.lanes
            inputs |= {"group": self.group, "is_wide": int(is_wide), "pop": int(is_last)}
            self.group = 0 if is_last else self.group + 1
            if is_last:
                del self.waiting[0]
        if comes is not None:
            self.waiting.append(comes)
        overflows, *outputs = await cycle(self.dut, inputs, *self.names)
        self.overflows += overflows
        for found, wanted in zip(outputs, self.due.pop(self.now, ()), strict=False):
            assert found == int.from_bytes(wanted.tobytes(), "little"), self.now
            self.compared += 1
        self.now += 1

    def pack(self, totals: np.ndarray, is_wide: bool) -> int:
        """A result, with whatever there is in the high bits of a narrow one."""
        low = int.from_bytes(totals.astype(np.int16).tobytes(), "little")
        high = int.from_bytes((totals >> 16).astype(np.int16).tobytes(), "little")
        return (high << 16 * self.lanes | low) << 2 | is_wide << 1 | 1

    def result(self, is_wide: bool) -> tuple[np.ndarray, bool]:
        return self.rng.integers(-(1 << 31), 1 << 31, self.lanes).astype(np.int32), is_wide


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_result=[0.2, 0.9], p_serve=[0.5, 1.0])
async def every_group(dut, p_result: float, p_serve: float) -> None:
    bench = Bench(dut)
    await start(dut, {"result": 0, "pop": 0, "group": 0, "is_wide": 0})
    fullest = 0
    for number in range(2000):
        # Now and then for a while narrow ones alone, of which more have a place.
        is_wide = bool(bench.rng.random() < (0.5 if number % 400 < 200 else 0.0))
        limit = RESULT_WINDOWS if is_wide else result_windows(bench.config)
        comes = len(bench.waiting) < limit and bench.rng.random() < p_result
        await bench.step(comes=bench.result(is_wide) if comes else None, serves=bench.rng.random() < p_serve)
        fullest = max(fullest, len(bench.waiting))
    assert bench.overflows == 0
    assert bench.compared > 300
    assert fullest == result_windows(bench.config) or p_result < 0.9


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(is_wide=[False, True])
async def one_too_many_overflows(dut, is_wide: bool) -> None:
    bench = Bench(dut)
    await start(dut, {"result": 0, "pop": 0, "group": 0, "is_wide": 0})
    limit = RESULT_WINDOWS if is_wide else result_windows(bench.config)
    for number in range(limit + 1):
        assert bench.overflows == 0, number
        await bench.step(comes=bench.result(is_wide), serves=False)
    for _ in range(4):
        await bench.step(comes=None, serves=False)
    assert bench.overflows == 1
