"""The receiver, with a sender that nobody here wrote."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest
from cocotb.triggers import FallingEdge, RisingEdge, Timer
from cocotbext.uart import UartSource

from cocotb_tests.support.benches.clocking import start
from lutterfly.golden.link import frames
from lutterfly.hdl.link.uart import TICKS, UartReceiver

CLOCK_HZ = 100_000_000


@pytest.mark.regress
@pytest.mark.verilator
def test_receiver(simulate) -> None:
    simulate(UartReceiver())


class Receiver:
    def __init__(self, dut, parts: int):
        self.dut, self.parts = dut, parts
        self.received: list[int] = []
        self.bit_ns = parts * 10 / 16

    async def begin(self) -> None:
        await start(self.dut, {"rx": 1, "bit_time": self.parts})
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            if self.dut.output__valid.value == 1:
                self.received.append(int(self.dut.output__payload.value))

    async def level(self, value: int, bits: float) -> None:
        self.dut.rx.value = value
        await Timer(round(1000 * bits * self.bit_ns), "ps")


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(parts=[128, 133, 139, 200, 5000], percent=[-2, 0, 2])
async def bytes_come_whatever_the_rates_are(dut, parts: int, percent: int) -> None:
    receiver = Receiver(dut, parts)
    await receiver.begin()
    source = UartSource(dut.rx, baud=round(CLOCK_HZ * 16 / parts * (1 + percent / 100)))
    data = [*np.random.default_rng(parts).bytes(20 if parts > 1000 else 100), 0, 255]
    await source.write(data)
    await source.wait()
    await receiver.level(1, 2)
    assert receiver.received == data


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(parts=[128, 1000])
async def the_moment_of_a_byte_does_not_matter(dut, parts: int) -> None:
    receiver = Receiver(dut, parts)
    await receiver.begin()
    for shift in range(40):
        await Timer(997 * shift % 10_000 + 1, "ps")
        for bit in (0, 1, 0, 0, 1, 1, 1, 0, 0, 1):
            await receiver.level(bit, 1)
    await receiver.level(1, 2)
    assert receiver.received == [0b00111001] * 40


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def glitches_are_no_bits(dut) -> None:
    receiver = Receiver(dut, 800)
    await receiver.begin()
    for width in range(1, 18):
        await receiver.level(0, width / 50)
        await receiver.level(1, 12)
    assert receiver.received == []
    # Within a bit, one look of three may be wrong.
    for place in range(10):
        for number, bit in enumerate((0, 1, 0, 1, 0, 1, 1, 0, 1, 1)):
            if number == place:
                await receiver.level(bit, 0.45)
                await receiver.level(1 - bit, 0.1)
                await receiver.level(bit, 0.45)
            else:
                await receiver.level(bit, 1)
    await receiver.level(1, 2)
    assert receiver.received == [0b10110101] * 10


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def a_byte_without_its_stop_bit_is_marked_and_the_next_one_waits_for_the_line(dut) -> None:
    receiver = Receiver(dut, 160)
    await receiver.begin()
    # A break, however long, is one byte.
    for length in (10, 11, 35, 200):
        await receiver.level(0, length)
        await receiver.level(1, 3)
        assert receiver.received == [0x100]
        receiver.received.clear()
        for bit in (0, 1, 0, 0, 0, 0, 0, 0, 0, 1):
            await receiver.level(bit, 1)
        await receiver.level(1, 2)
        assert receiver.received == [1]
        receiver.received.clear()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def nothing_comes_from_a_reset_while_the_line_is_idle(dut) -> None:
    receiver = Receiver(dut, 128)
    await receiver.begin()
    for _ in range(3):
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        await receiver.level(1, 20)
    assert receiver.received == []


def test_a_tick_is_a_cycle_where_bits_are_shortest() -> None:
    assert TICKS * frames.PARTS == frames.LEAST_BIT_TIME
