"""Queues of words in distributed RAM: what goes in comes out, in order, whoever stalls."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest
from amaranth.hdl import unsigned
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from cocotb_tests.support.benches.streams import StreamMonitor, receive, send
from lutterfly.hdl.parts.fifo import Fifo


# One word is the least that a configuration asks for: `outstanding` of 1. Wide words are kept in parts.
@pytest.mark.parametrize(("bits", "depth"), [(8, 1), (8, 2), (200, 2), (200, 5)])
def test_fifos(simulate, bits: int, depth: int) -> None:
    simulate(Fifo(unsigned(bits), depth=depth))


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(stalls=[(0.0, 0.0), (0.6, 0.1), (0.1, 0.6)])
async def words_pass_in_order(dut, stalls: tuple[float, float]) -> None:
    rng = np.random.default_rng(3)
    sent = [int.from_bytes(rng.bytes(len(dut.input__payload) // 8), "little") for _ in range(200)]
    dut.input__valid.value = dut.output__ready.value = 0
    Clock(dut.clk, 10, unit="ns").start()
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    watch = StreamMonitor(dut.clk, dut, "output")
    cocotb.start_soon(send(dut.clk, dut, "input", sent, rng, stalls[0]))
    assert await receive(dut.clk, dut, "output", len(sent), rng, stalls[1]) == sent
    watch.stop()
