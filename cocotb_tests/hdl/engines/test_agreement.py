# amaranth: UnusedElaboratable=no
"""Bits that agree, counted: every pattern in every lane, and bytes that do not count."""

from __future__ import annotations

import cocotb
import numpy as np

from cocotb_tests.support.benches.clocking import cycle, start
from lutterfly.hdl.engines.xnor import UNCOUNTED_DELAY, Agreement
from lutterfly.hdl.parts.device import MULTIPLIER_LATENCY

LANES = 5
COUNT_BITS = 4


def test_counts(simulate) -> None:
    simulate(Agreement(LANES))


def as_bits(flags: np.ndarray) -> int:
    """Flags, the first one lowest."""
    return sum(int(flag) << place for place, flag in enumerate(flags))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_pattern(dut) -> None:
    rng, count = np.random.default_rng(3), 600
    weights = rng.integers(0, 256, (count, LANES), dtype=np.uint8)
    words = rng.integers(0, 256, (count, LANES), dtype=np.uint8)
    # Each lane sees every difference, in an order of its own.
    words[:256] = weights[:256] ^ np.stack([rng.permutation(256) for _ in range(LANES)], axis=1).astype(np.uint8)
    uncounted = rng.random((count, LANES)) < 0.3
    uncounted[:256] = False
    await start(dut, {"word": 0, "weights": 0, "uncounted": 0})
    outputs = []
    for now in range(count + MULTIPLIER_LATENCY):
        inputs = {"uncounted": as_bits(uncounted[now - UNCOUNTED_DELAY])} if UNCOUNTED_DELAY <= now < count else {}
        if now < count:
            inputs |= {
                "word": int.from_bytes(words[now].tobytes(), "little"),
                "weights": int.from_bytes(weights[now].tobytes(), "little"),
            }
        outputs += await cycle(dut, inputs, "counts")
    found = [
        [output >> COUNT_BITS * lane & (1 << COUNT_BITS) - 1 for lane in range(LANES)]
        for output in outputs[MULTIPLIER_LATENCY : count - UNCOUNTED_DELAY + MULTIPLIER_LATENCY]
    ]
    expected = np.bitwise_count(~(words ^ weights)) * ~uncounted
    np.testing.assert_array_equal(found, expected[: count - UNCOUNTED_DELAY])
    assert {*expected[:256].reshape(-1).tolist()} == set(range(9))
