"""One access at a time on AXI4-Lite, to a memory that nobody here wrote."""

from __future__ import annotations

import itertools

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteRam

from cocotb_tests.support.benches.clocking import start
from lutterfly.hdl.link.bridge import RegisterPort


def test_port(simulate) -> None:
    simulate(RegisterPort(8))


async def access(dut, address: int, data: int | None = None) -> tuple[bool, int]:
    dut.address.value, dut.write.value, dut.data.value = address, data is not None, data or 0
    dut.start.value = 1
    await RisingEdge(dut.clk)
    dut.start.value = 0
    # What is asked for is kept in there.
    dut.address.value, dut.data.value = 0xFF, 0x5555_5555
    for _ in range(200):
        await FallingEdge(dut.clk)
        done, okay, value = (int(getattr(dut, name).value) for name in ("done", "okay", "value"))
        await RisingEdge(dut.clk)
        if done:
            return bool(okay), value
    raise AssertionError("no answer")


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.6])
async def what_is_written_is_read(dut, p_stall: float) -> None:
    await start(dut, {"start": 0, "write": 0, "address": 0, "data": 0})
    rng = np.random.default_rng(0)
    ram = AxiLiteRam(AxiLiteBus.from_prefix(dut, "control_"), dut.clk, dut.rst, size=256)
    for channel in (
        ram.write_if.aw_channel,
        ram.write_if.w_channel,
        ram.write_if.b_channel,
        ram.read_if.ar_channel,
        ram.read_if.r_channel,
    ):
        channel.set_pause_generator(bool(rng.random() < p_stall) for _ in itertools.count())
    await RisingEdge(dut.clk)
    words = dict.fromkeys(range(0, 256, 4), 0)
    for _ in range(100):
        address = 4 * int(rng.integers(64))
        if rng.random() < 0.5:
            words[address] = int(rng.integers(1 << 32))
            assert (await access(dut, address, words[address]))[0]
        else:
            assert await access(dut, address) == (True, words[address])
        for _ in range(int(rng.integers(3))):
            await RisingEdge(dut.clk)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(channel=["b", "r"], response=range(4))
async def an_error_is_told(dut, channel: str, response: int) -> None:
    names = ("awready", "wready", "arready", "bvalid", "rvalid", "bresp", "rresp", "rdata")
    await start(dut, dict.fromkeys(("start", *(f"control__{name}" for name in names)), 0))
    dut.control__awready.value = dut.control__wready.value = dut.control__arready.value = 1
    task = cocotb.start_soon(access(dut, 4, 1 if channel == "b" else None))
    for _ in range(5):
        await RisingEdge(dut.clk)
    getattr(dut, f"control__{channel}resp").value = response
    getattr(dut, f"control__{channel}valid").value = 1
    await RisingEdge(dut.clk)
    getattr(dut, f"control__{channel}valid").value = 0
    okay, _ = await task
    assert okay == (response == 0)
