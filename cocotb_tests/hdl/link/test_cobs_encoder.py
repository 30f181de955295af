# amaranth: UnusedElaboratable=no
"""The encoder against a package that nobody here wrote."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest
from cobs import cobs as judge

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import StreamMonitor, receive, send
from lutterfly.hdl.link.cobs import CobsEncoder, plain_layout

EDGES = [
    b"\0",
    b"\1",
    b"\0\0\0",
    b"\1" * 253,
    b"\1" * 254,
    b"\1" * 254 + b"\0",
    b"\1" * 255,
    b"\1" * 253 + b"\0",
    b"\1" * 508 + b"\0\0",
    b"\0" + b"\xff" * 508,
]


@pytest.mark.regress
@pytest.mark.verilator
def test_encoder(simulate) -> None:
    simulate(CobsEncoder())


def random_frame(rng: np.random.Generator) -> bytes:
    frame = bytearray(rng.bytes(int(rng.integers(1, 700))))
    for place in rng.integers(len(frame), size=int(rng.integers(0, 4)) ** 3):
        frame[place] = 0
    if rng.random() < 0.5:
        frame = frame.replace(b"\0", b"\1")
    return bytes(frame)


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(stalls=[(0.0, 0.0), (0.5, 0.1), (0.1, 0.8)])
async def frames_are_encoded_as_the_judge_does(dut, stalls: tuple[float, float]) -> None:
    await start(dut, {"input__valid": 0, "output__ready": 0})
    rng = np.random.default_rng(1)
    frames = EDGES + [random_frame(rng) for _ in range(20)]
    words = [{"byte": byte, "last": place == len(frame) - 1} for frame in frames for place, byte in enumerate(frame)]
    expected = b"".join(judge.encode(frame) + b"\0" for frame in frames)
    watch = StreamMonitor(dut.clk, dut, "output")
    cocotb.start_soon(send(dut.clk, dut, "input", words, rng, stalls[0], shape=plain_layout()))
    assert bytes(await receive(dut.clk, dut, "output", len(expected), rng, stalls[1])) == expected
    watch.stop()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_byte_takes_five_cycles_at_most(dut) -> None:
    """A UART takes 80 for a byte: the encoder does not hold up the line."""
    await start(dut, {"input__valid": 0, "output__ready": 1})
    rng = np.random.default_rng(1)
    frame = b"\1" * 1040
    watch = StreamMonitor(dut.clk, dut, "output")
    words = [{"byte": byte, "last": place == 1039} for place, byte in enumerate(frame)]
    await send(dut.clk, dut, "input", words, rng, 0.0, shape=plain_layout())
    while not watch.words or watch.words[-1] != 0:
        await cocotb.triggers.RisingEdge(dut.clk)
    assert watch.cycles[-1] <= 5 * len(watch.words) + 5
