# amaranth: UnusedElaboratable=no
"""The queue between walker and gate: order, room that is never exceeded, a word in every cycle."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest
from amaranth.lib import data
from cocotb.triggers import Timer

from cocotb_tests.support.benches.clocking import cycle, start
from lutterfly.hdl.parts.fifo import Lookahead

DEPTH = 6
WORD = data.StructLayout({"gated": 5, "rest": 7})


def test_lookahead(simulate) -> None:
    simulate(Lookahead(WORD, gated=["gated"], depth=DEPTH))


def test_refuses_a_depth_of_one() -> None:
    with pytest.raises(ValueError, match="depth must be at least 2, not 1"):
        Lookahead(8, depth=1)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_walk=[1.0, 0.5], p_pass=[1.0, 0.5, 0.1])
async def words_pass_in_order(dut, p_walk: float, p_pass: float) -> None:
    rng, count = np.random.default_rng(3), 300
    words = [int(word) for word in rng.integers(1 << 12, size=count)]
    await start(dut, {"reserve": 0, "input__valid": 0, "output__ready": 0})
    reserved, left, taken, pushed = 0, [], [], None
    for now in range(10_000):
        # Registers move just after the edge.
        await Timer(1, "step")
        room = int(dut.room.value)
        inside = reserved - len(taken)
        # Room is given for what fits; the output holds one word more.
        assert inside <= DEPTH + 1
        reserve = int(room and reserved < count and rng.random() < p_walk)
        ready = int(rng.random() < p_pass)
        valid, word = await cycle(
            dut,
            {
                "reserve": reserve,
                "input__valid": int(pushed is not None),
                "input__payload": pushed or 0,
                "output__ready": ready,
            },
            "output__valid",
            "output__payload",
        )
        if valid and ready:
            taken.append(word)
            left.append(now)
        pushed = words[reserved] if reserve else None
        reserved += reserve
        if len(taken) == count:
            break
    assert taken == words
    if p_walk == p_pass == 1.0:
        assert left[-1] - left[0] == count - 1, "a pause between two words"
