"""Frames from the line: what is gathered, and which are good."""

from __future__ import annotations

import zlib

import cocotb
import numpy as np
from cobs import cobs as judge
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import unpack
from lutterfly.golden.link.frames import LEAST_BYTES, MOST_BYTES, Frame
from lutterfly.golden.link.operations import MAX_DATA
from lutterfly.hdl.link.frames import BUFFER_LATENCY, FrameIntake, header_layout

INPUTS = dict.fromkeys(
    ("received__valid", "received__payload", "begin", "matches", "place", "answers", "status", "length", "shifts"), 0
)


def test_intake(simulate) -> None:
    simulate(FrameIntake())


class Intake:
    """The intake, with a CRC beside it that is computed here."""

    def __init__(self, dut):
        self.dut = dut
        self.content = bytearray()
        self.frames: list[int] = []

    async def begin(self) -> None:
        await start(self.dut, INPUTS)
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            if dut.content__valid.value == 1:
                self.content.append(int(dut.content__payload.value))
            if dut.frame__valid.value == 1:
                self.frames.append(int(dut.frame__payload.value))
            await RisingEdge(dut.clk)
            dut.matches.value = zlib.crc32(self.content[:-4]).to_bytes(4, "little") == self.content[-4:]

    async def send(self, line: bytes, errors: tuple[int, ...] = ()) -> None:
        for place, byte in enumerate(line):
            self.dut.received__payload.value = byte | (place in errors) << 8
            self.dut.received__valid.value = 1
            await RisingEdge(self.dut.clk)
            self.dut.received__valid.value = 0
            await self.cycles(3)
        await self.cycles(4)

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def next(self) -> None:
        self.frames.clear()
        self.content.clear()
        self.dut.begin.value = 1
        await self.cycles(1)
        self.dut.begin.value = 0
        await self.cycles(1)

    async def byte(self, place: int) -> int:
        self.dut.place.value = place
        await self.cycles(BUFFER_LATENCY)
        await FallingEdge(self.dut.clk)
        return int(self.dut.buffered.value)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def a_good_frame_is_here_in_all_its_parts(dut) -> None:
    intake = Intake(dut)
    await intake.begin()
    rng = np.random.default_rng(0)
    for length in (0, 1, 4, 300, MAX_DATA):
        fields = [int(rng.integers(1 << bits)) for bits in (16, 8, 8, 32, 32)]
        frame = Frame(*fields, rng.bytes(length))
        await intake.send(frame.encode())
        assert intake.frames == [1]
        assert intake.content[:-4] == frame.content()
        await FallingEdge(dut.clk)
        header = unpack(int(dut.header.value), header_layout())
        assert header == {name: getattr(frame, name) for name in header}
        assert dut.data_bytes.value.to_signed() == length
        assert int(dut.tail.value) >> 32 == frame.crc
        if length >= 4:
            assert int(dut.tail.value) & 0xFFFF_FFFF == int.from_bytes(frame.data[-4:], "little")
        for place in {0, 1, length // 2, length - 1} & set(range(length)):
            assert await intake.byte(place) == frame.data[place]
        await intake.next()


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def other_frames_are_not_good(dut) -> None:
    intake = Intake(dut)
    await intake.begin()
    for length in (0, 1, LEAST_BYTES - 1, MOST_BYTES + 1, 2200):
        # With a right CRC.
        content = bytes(range(1, 256)) * 20
        content = content[: max(0, length - 4)]
        whole = (content + zlib.crc32(content).to_bytes(4, "little"))[:length]
        await intake.send(judge.encode(whole) + b"\0")
        assert intake.frames == [0], length
        await intake.next()
    content = bytes(range(20))
    for bit in range(32):
        await intake.send(judge.encode(content + (zlib.crc32(content) ^ 1 << bit).to_bytes(4, "little")) + b"\0")
        assert intake.frames == [0]
        await intake.next()
    line = Frame(1, 2, 3, 4, 5, b"abc").encode()
    for place in range(len(line) - 1):
        await intake.send(line, (place,))
        assert intake.frames == [0]
        await intake.next()
    await intake.send(bytes(5))
    assert intake.frames == []


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def an_answer_is_put_into_the_header_and_leaves_byte_by_byte(dut) -> None:
    intake = Intake(dut)
    await intake.begin()
    frame = Frame(0x1234, 5, 0, 0x89ABCDEF, 3, b"abc")
    await intake.send(frame.encode())
    dut.status.value, dut.length.value, dut.answers.value = 7, 0x11223344, 1
    await intake.cycles(1)
    dut.answers.value = 0
    left = bytearray()
    dut.shifts.value = 1
    for _ in range(12):
        await FallingEdge(dut.clk)
        left.append(int(dut.header.value) & 0xFF)
        await RisingEdge(dut.clk)
    assert left == Frame(0x1234, 5, 7, 0x89ABCDEF, 0x11223344).content()
