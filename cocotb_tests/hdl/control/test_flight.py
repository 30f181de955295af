# amaranth: UnusedElaboratable=no
"""Commands in flight: they complete in order, each after its unit, SYNCs with the one before; what they give."""

from __future__ import annotations

from collections import deque

import cocotb
import numpy as np
from cocotb.triggers import Timer

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from lutterfly.golden.units import Unit
from lutterfly.hdl.control.queue import _IN_FLIGHT, Flight, flight_layout

UNITS = (Unit.NONE, Unit.LOAD, Unit.STORE)


def test_flight(simulate) -> None:
    simulate(Flight("DMA_QUEUE"))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_finish=[0.1, 0.9])
async def completes_in_order(dut, p_finish: float) -> None:
    rng = np.random.default_rng(int(10 * p_finish))
    inputs = {"start": 0, "begun__valid": 0, "begun__payload": 0, "finished": 0}
    await start(dut, inputs)
    # Commands that have begun: unit, and what they signal. Those of units that are yet to finish, or have.
    begun: deque[tuple[Unit, int]] = deque()
    working, finished, completions, most, grant_before = 0, 0, 0, 0, 0
    outputs = ("begun__ready", "completed", "grant", "idle", "oldest__valid", "index")
    for _ in range(600):
        unit, signal = UNITS[rng.integers(3)], int(rng.integers(256))
        wants, finishes = rng.random() < 0.6, working > 0 and rng.random() < p_finish
        inputs = {
            "begun__valid": 0,
            "begun__payload": pack({"signal": signal, "unit": unit}, flight_layout()),
            "finished": int(finishes),
        }
        # Only what has a place may begin.
        await Timer(1, "ns")
        inputs["begun__valid"] = int(wants and bool(dut.begun__ready.value))
        ready, completed, grant, idle, valid, index = await cycle(dut, inputs, *outputs)
        assert idle == (not begun)
        assert (grant, index) == (grant_before, completions)
        finished += finishes
        working -= finishes
        grant_before = 0
        if completed:
            assert valid
            oldest, grant_before = begun.popleft()
            if oldest is not Unit.NONE:
                assert finished
                finished -= 1
            completions += 1
        elif valid:
            assert begun[0][0] is not Unit.NONE
            assert not finished
        if inputs["begun__valid"]:
            assert ready
            begun.append((unit, signal))
            working += unit is not Unit.NONE
        most = max(most, len(begun))
    assert completions > 50
    assert most > _IN_FLIGHT or p_finish > 0.5
