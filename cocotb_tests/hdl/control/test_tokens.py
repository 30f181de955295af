# amaranth: UnusedElaboratable=no
"""Tokens of a pair of queues: given and taken in one cycle and in many, never more taken than are there."""

from __future__ import annotations

import cocotb
import numpy as np

from cocotb_tests.support.benches.clocking import cycle, start
from lutterfly.hdl.control.queue import Tokens


def test_tokens(simulate) -> None:
    simulate(Tokens("DMA_QUEUE"))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(most=[2, 255])
async def counts(dut, most: int) -> None:
    rng, count, stays = np.random.default_rng(most), 0, False
    await start(dut, {"granted": 0, "needed": 0, "take": 0})
    needed = int(rng.integers(most))
    for _ in range(500):
        granted = int(rng.integers(most + 1)) if rng.random() < 0.4 else 0
        take = int(count >= needed and rng.random() < 0.7)
        enough, left = await cycle(dut, {"granted": granted, "needed": needed, "take": take}, "enough", "left")
        # Tokens that were taken in the cycle before may still be told of.
        assert (enough, left) == (count >= needed, stays)
        stays = count + granted > 0
        count += granted - needed * take
        if take:
            # All that are there, as often as not.
            needed = min(count, 0xFFFF) if rng.random() < 0.5 else int(rng.integers(2 * most))
