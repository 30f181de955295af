# amaranth: UnusedElaboratable=no
"""The line of words that brings the values of a pair together: every distance, pixels with and without gaps."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.tiers import sweep
from lutterfly.hdl.engines.butterfly import SETTING_LATENCY, PairLine

LANES = 4
WORD_BITS = 16 * LANES


#: Each is compiled: every distance, and every delay with two of them.
IN_EVERY_RUN = ((0, 0, 1), (0, 3, 1), (1, 1, 2), (2, 0, 1), (4, 3, 1), (4, 1, 2))


@pytest.mark.parametrize(
    ("distance", "own_delay", "partner_delay"),
    sweep([(distance, *delays) for distance in (0, 1, 2, 4) for delays in ((0, 1), (3, 1), (1, 2))], kept=IN_EVERY_RUN),
)
def test_pairs(simulate, distance: int, own_delay: int, partner_delay: int) -> None:
    simulate(
        PairLine(lanes=LANES, distance=distance, own_delay=own_delay, partner_delay=partner_delay),
        env={"DISTANCE": str(distance), "OWN": str(own_delay), "PARTNER": str(partner_delay)},
    )


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def each_word_meets_the_other_of_its_pair(dut) -> None:
    distance, own_delay, partner_delay = (int(os.environ[name]) for name in ("DISTANCE", "OWN", "PARTNER"))
    rng = np.random.default_rng(6)
    words = max(2 * distance, 1)
    #: Pixel, position and word of each cycle; None between pixels.
    stream: list[tuple[int, int, int] | None] = []
    for pixel in range(30):
        stream += [(pixel, position, int.from_bytes(rng.bytes(2 * LANES), "little")) for position in range(words)]
        stream += [None] * int(rng.integers(0, 4) * (pixel % 2))
    tail = 2 * distance + own_delay + partner_delay + 2
    stream += [None] * tail
    await start(dut, {"values": 0, "is_second": 0, "enable": 1})
    for _ in range(SETTING_LATENCY):
        await cycle(dut, {})
    found = []
    for number in range(len(stream)):
        # A cycle before the partner.
        after = number - distance - partner_delay + 1
        second = stream[after] if 0 <= after < len(stream) else None
        inputs = {
            "values": stream[number][2] if stream[number] else int.from_bytes(rng.bytes(2 * LANES), "little"),
            "is_second": int(bool(second) and bool(second[1] & distance)),
        }
        found.append(await cycle(dut, inputs, "own", "partner"))
    at = {(one[0], one[1]): one[2] for one in stream if one}
    for number, one in enumerate(stream):
        if one:
            pixel, position, word = one
            assert found[number + distance + own_delay][0] == word
            assert found[number + distance + partner_delay][1] == at[pixel, position ^ distance]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_partner_that_is_not_enabled_is_zero(dut) -> None:
    await start(dut, {"values": (1 << WORD_BITS) - 1, "is_second": 0, "enable": 1})
    for _ in range(20):
        values = await cycle(dut, {}, "own", "partner")
    assert values == [(1 << WORD_BITS) - 1] * 2
    await cycle(dut, {"enable": 0})
    for _ in range(SETTING_LATENCY):
        values = await cycle(dut, {}, "own", "partner")
    assert values == [(1 << WORD_BITS) - 1, 0]
