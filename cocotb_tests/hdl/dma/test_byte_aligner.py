# amaranth: UnusedElaboratable=no
"""From beats to chunks: runs at every alignment, FILLs between them, and what is void after an error."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import send, unpack
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.dma.chunks import ByteAligner, chunk_layout, step_layout
from lutterfly.hdl.parts.isa import ErrorReport

KEPT = ("memory", "address", "count", "last")


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_aligns(simulate, preset: str) -> None:
    simulate(ByteAligner(PRESETS[preset]), env={"PRESET": preset})


class Plan:
    """Random steps, the beats that they take, and the chunks that come of them."""

    def __init__(self, rng: np.random.Generator, data_bytes: int, runs: int):
        self.rng, self.data_bytes = rng, data_bytes
        self.steps: list[dict[str, int]] = []
        self.beats: list[int] = []
        self.chunks: list[tuple[dict[str, int], bytes]] = []
        for run in range(runs):
            if rng.random() < 0.2:
                self._fill()
            else:
                self._load(run % data_bytes)

    def _step(self, data: bytes, **fields: int) -> None:
        step = {"index": len(self.steps), "memory": int(self.rng.integers(4)), "count": len(data)}
        step |= {"address": int(self.rng.integers(1 << 24)), "last": int(self.rng.integers(2)), **fields}
        self.steps.append(step)
        self.chunks.append(({name: step[name] for name in KEPT}, data))

    def _fill(self) -> None:
        value = int(self.rng.integers(256))
        self._step(bytes([value]) * int(self.rng.integers(1, self.data_bytes + 1)), is_fill=1, value=value)

    def _load(self, offset: int) -> None:
        """A run whose first byte is at ``offset`` of its first beat."""
        counts = self.rng.integers(1, self.data_bytes + 1, int(self.rng.integers(1, 6))).tolist()
        size = -(-(offset + sum(counts)) // self.data_bytes) * self.data_bytes
        image, at = self.rng.bytes(size), offset
        self.beats += [
            int.from_bytes(image[place:][: self.data_bytes], "little") for place in range(0, size, self.data_bytes)
        ]
        for number, count in enumerate(counts):
            first, end, ends_run = at % self.data_bytes, at % self.data_bytes + count, number == len(counts) - 1
            crosses = end > self.data_bytes
            flags = {"needs_beat": 1, "crosses": crosses, "advances": end >= self.data_bytes or ends_run}
            flags["skips"] = ends_run and crosses
            self._step(image[at : at + count], offset=first, **{name: int(flag) for name, flag in flags.items()})
            at += count


async def collect(dut, config: Any, plan: Plan, p_stall: float) -> tuple[list[dict[str, Any]], list[dict[str, int]]]:
    """All chunks and errors of a plan; a chunk comes a cycle after each reservation, and only where there is room."""
    rng, chunks, errors, reserved = np.random.default_rng(2), [], [], False
    for name, words, shape in (("beats", plan.beats, None), ("steps", plan.steps, step_layout(config))):
        cocotb.start_soon(send(dut.clk, dut, name, words, np.random.default_rng(1), p_stall, shape=shape))
    while len(chunks) < len(plan.steps):
        dut.room.value = room = int(rng.random() >= p_stall)
        await FallingEdge(dut.clk)
        chunk, error = int(dut.chunks__payload.value), unpack(int(dut.strayed.value), ErrorReport)
        assert bool(dut.chunks__valid.value) == reserved
        chunks += [unpack(chunk, chunk_layout(config))] * reserved
        errors += [error] * error["valid"]
        reserved = bool(dut.reserve.value)
        assert room or not reserved
        await RisingEdge(dut.clk)
    return chunks, errors


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4])
async def every_byte(dut, p_stall: float) -> None:
    config = PRESETS[os.environ["PRESET"]]
    plan = Plan(np.random.default_rng(7), config.axi.data_bytes, 120)
    await start(dut, {"beats__valid": 0, "steps__valid": 0, "room": 0, "halt": 0})
    chunks, errors = await collect(dut, config, plan, p_stall)
    for chunk, (fields, data) in zip(chunks, plan.chunks, strict=True):
        assert {name: chunk[name] for name in KEPT} == fields
        assert not chunk["void"]
        assert chunk["data"].to_bytes(config.axi.data_bytes, "little")[: len(data)] == data
    assert not errors


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def what_strays_is_void_with_all_after_it(dut) -> None:
    config = PRESETS[os.environ["PRESET"]]
    plan = Plan(np.random.default_rng(8), config.axi.data_bytes, 20)
    for number in (9, 12):
        plan.steps[number] |= {"out_of_range": 1}
    await start(dut, {"beats__valid": 0, "steps__valid": 0, "room": 0, "halt": 0})
    chunks, errors = await collect(dut, config, plan, 0.2)
    assert [chunk["void"] for chunk in chunks] == [int(number >= 9) for number in range(len(chunks))]
    wrong = plan.steps[9]
    unit = Unit.FILL if wrong.get("is_fill") else Unit.LOAD
    place = {"index": wrong["index"], "address": wrong["address"]}
    assert errors == [{"valid": 1, "code": int(ErrorCode.ADDRESS_RANGE), "unit": int(unit), **place}]
