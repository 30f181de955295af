"""Answers are those of the golden model."""

from __future__ import annotations

import zlib

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import receive
from lutterfly.golden.link.frames import NAK, Frame, pack_word
from lutterfly.hdl.link.cobs import plain_layout
from lutterfly.hdl.link.frames import AnswerKind, AnswerSender

CONSTANTS = bytes(range(100, 116))


def test_sender(simulate) -> None:
    simulate(AnswerSender(CONSTANTS))


class Surroundings:
    """A header that is shifted out, an arena, and a CRC."""

    def __init__(self, dut, frame: Frame, arena: bytes):
        self.dut, self.arena = dut, bytearray(arena)
        self.header = bytearray(frame.content()[:12])
        self.content = bytearray()

    async def run(self) -> None:
        dut, wait = self.dut, 0
        while True:
            dut.byte.value = self.header[0] if self.header else 0xEE
            dut.last_asked.value = len(self.arena) == 1
            await FallingEdge(dut.clk)
            clears, shifts = dut.clear.value == 1, dut.shifts.value == 1
            byte = int(dut.content__payload.value) if dut.content__valid.value == 1 else None
            asks = dut.ask.value == 1
            given = dut.arena__valid.value == 1
            await RisingEdge(dut.clk)
            if clears:
                self.content.clear()
            if byte is not None:
                self.content.append(byte)
            if not dut.start.value:
                dut.word.value = zlib.crc32(self.content)
            if shifts:
                self.header.pop(0)
            if given:
                self.arena.pop(0)
            wait = wait + 1 if asks and not given else 0
            dut.arena__valid.value = wait == 3
            dut.arena__payload.value = self.arena[0] if self.arena else 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(kind=list(AnswerKind), p_stall=[0.0, 0.5], is_nak=[False, True])
async def answers_are_whole(dut, kind: AnswerKind, p_stall: float, is_nak: bool) -> None:
    names = ("start", "kind", "is_nak", "word", "byte", "last_asked", "arena__valid", "arena__payload")
    await start(dut, dict.fromkeys((*names, "output__ready"), 0))
    rng = np.random.default_rng(2)
    for number in range(3):
        word = int(rng.integers(1 << 32))
        kind = AnswerKind.NOTHING if is_nak else kind
        data = {
            AnswerKind.NOTHING: b"",
            AnswerKind.WORD: pack_word(word),
            AnswerKind.IDENTITY: CONSTANTS + pack_word(word),
            AnswerKind.ARENA: rng.bytes(1 + 20 * number),
        }[kind]
        frame = Frame(int(rng.integers(1 << 16)), 4, 3, int(rng.integers(1 << 32)), len(data), data)
        surroundings = Surroundings(dut, frame, data if kind is AnswerKind.ARENA else b"")
        task = cocotb.start_soon(surroundings.run())
        dut.kind.value, dut.is_nak.value, dut.word.value, dut.start.value = kind.value, is_nak, word, 1
        await RisingEdge(dut.clk)
        dut.start.value = 0
        expected = NAK if is_nak else frame
        content = expected.content()
        whole = content + pack_word(zlib.crc32(content))
        words = await receive(dut.clk, dut, "output", len(whole), rng, p_stall, shape=plain_layout())
        assert bytes(one["byte"] for one in words) == whole
        assert [one["last"] for one in words] == [0] * (len(whole) - 1) + [1]
        await FallingEdge(dut.clk)
        assert dut.done.value == 1
        await RisingEdge(dut.clk)
        task.cancel()
