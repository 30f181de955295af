"""The transmitter, with a receiver that nobody here wrote."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest
from cocotb.triggers import FallingEdge, RisingEdge
from cocotb.utils import get_sim_time
from cocotbext.uart import UartSink

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import send
from lutterfly.hdl.link.uart import UartTransmitter

CLOCK_HZ = 100_000_000


@pytest.mark.regress
@pytest.mark.verilator
def test_transmitter(simulate) -> None:
    simulate(UartTransmitter())


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(parts=[128, 133, 139, 1000, 13_889], p_stall=[0.0, 0.001])
async def bytes_arrive(dut, parts: int, p_stall: float) -> None:
    await start(dut, {"input__valid": 0, "input__payload": 0, "bit_time": parts})
    rng = np.random.default_rng(parts)
    await RisingEdge(dut.clk)
    sink = UartSink(dut.tx, baud=round(CLOCK_HZ * 16 / parts))
    data = [*rng.bytes(8 if parts > 5000 else 60), 0, 255]
    await send(dut.clk, dut, "input", data, rng, p_stall)
    received = []
    while len(received) < len(data):
        received += await sink.read(1)
    assert received == data


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(parts=[128, 130, 143, 999, 65_535])
async def a_byte_is_ten_bits_long_to_a_cycle(dut, parts: int) -> None:
    await start(dut, {"input__valid": 0, "input__payload": 0x55, "bit_time": parts})
    await FallingEdge(dut.clk)
    assert dut.tx.value == 1
    await RisingEdge(dut.clk)
    dut.input__valid.value = 1
    await FallingEdge(dut.tx)
    begin = get_sim_time("ns")
    # Edges of 0x55 are at every bit.
    for bit in range(1, 10):
        await (RisingEdge if bit % 2 else FallingEdge)(dut.tx)
        assert abs(get_sim_time("ns") - begin - bit * parts * 10 / 16) <= 10
    await FallingEdge(dut.tx)
    cycles = (get_sim_time("ns") - begin) / 10
    assert -1 <= cycles - 10 * parts / 16 <= 2


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_byte_keeps_its_rate(dut) -> None:
    await start(dut, {"input__valid": 0, "input__payload": 0x55, "bit_time": 320})
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.input__valid.value = 1
    await FallingEdge(dut.tx)
    begin = get_sim_time("ns")
    dut.bit_time.value = 128
    for edge in range(5):
        await RisingEdge(dut.tx)
        assert get_sim_time("ns") - begin == (2 * edge + 1) * 200
    await FallingEdge(dut.tx)
    begin = get_sim_time("ns")
    await RisingEdge(dut.tx)
    assert get_sim_time("ns") - begin == 80
