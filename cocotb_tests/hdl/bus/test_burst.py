# amaranth: UnusedElaboratable=no
"""The burst splitter against arithmetic on lists: every byte of a run in one burst, blocks of 16 beats, stalls."""

from __future__ import annotations

import itertools
import os
from typing import Any

import cocotb
import numpy as np
import pytest
from amaranth.hdl import unsigned

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import StreamMonitor, receive, send
from cocotb_tests.support.tiers import sweep
from lutterfly.hdl.bus.axi import BurstSplitter

BEATS = 16
CONTEXT = unsigned(5)


@pytest.mark.parametrize("data_bytes", sweep([4, 8, 16], kept=[8]))
def test_splits(simulate, data_bytes: int) -> None:
    simulate(BurstSplitter(data_bytes=data_bytes, context=CONTEXT), env={"BYTES": str(data_bytes)})


def expected(run: dict[str, int], data_bytes: int) -> list[dict[str, Any]]:
    """The bursts of a run: its beats, cut where a block of 16 begins."""
    address, end = run["address"], run["address"] + run["last_byte"] + 1
    beats = range(address // data_bytes, -(-end // data_bytes))
    cuts = [beats[0], *(beat for beat in beats[1:] if beat % BEATS == 0), beats[-1] + 1]
    return [
        {
            "address": first * data_bytes,
            "beats_minus_one": after - first - 1,
            "first_byte": address % data_bytes if first == beats[0] else 0,
            "last_byte": (end - 1) % data_bytes if after == cuts[-1] else data_bytes - 1,
            "first": int(first == beats[0]),
            "last": int(after == cuts[-1]),
            "context": run["context"],
        }
        for first, after in itertools.pairwise(cuts)
    ]


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4])
async def every_burst(dut, p_stall: float) -> None:
    data_bytes, rng = int(os.environ["BYTES"]), np.random.default_rng(3)
    block = BEATS * data_bytes
    component = BurstSplitter(data_bytes=data_bytes, context=CONTEXT)
    # One byte; a whole block; one byte less and more; over the end of a page; the last byte that there is.
    edges = [(0, 1), (block, block), (block, block - 1), (1, block), (4095, 2), (4096 - block, 3 * block)]
    edges.append(((1 << 32) - block - 3, block + 3))
    drawn = [(int(rng.integers(1 << 16)), int(rng.integers(1, 6 * block))) for _ in range(40)]
    runs = [
        {"address": address, "last_byte": size - 1, "context": number % 32}
        for number, (address, size) in enumerate(edges + drawn)
    ]
    bursts = [burst for run in runs for burst in expected(run, data_bytes)]
    await start(dut, {"runs__valid": 0, "bursts__ready": 0})
    shapes = {name: getattr(component, name).payload.shape() for name in ("runs", "bursts")}
    monitor = StreamMonitor(dut.clk, dut, "bursts", shape=shapes["bursts"])
    cocotb.start_soon(send(dut.clk, dut, "runs", runs, rng, p_stall, shape=shapes["runs"]))
    assert await receive(dut.clk, dut, "bursts", len(bursts), rng, p_stall, shape=shapes["bursts"]) == bursts
    assert monitor.words == bursts
