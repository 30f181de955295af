"""Frames, proved for every line and pace: good is only what came whole, and an answer is what its kind says."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Mux, Signal

from cocotb_tests.support.proofs import Proof, ProofError, broken, constant, inside, leave_out, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.link.frames import HEADER_BYTES, LEAST_BYTES, MOST_BYTES
from lutterfly.golden.link.operations import MAX_DATA
from lutterfly.hdl.link import frames
from lutterfly.hdl.link.frames import AnswerKind

pytestmark = needs_yosys


DEPTH = 4


class ByteQueueProof(Proof):
    """Bytes at any pace, around a queue that is proved by itself: it holds what has come and was not taken."""

    def __init__(self, module=frames) -> None:
        super().__init__()
        self.unit = module.ByteQueue(depth=DEPTH)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        fifo, pace = found.fifo, unit.PACE
        leave_out(fifo)
        for name, signal in {
            "arrives": unit.input.valid,
            "received": unit.input.payload.as_value(),
            "takes": unit.takes,
            "waits": fifo.output.valid,
            "waiting": fifo.output.payload.as_value(),
        }.items():
            m.d.comb += signal.eq(self.free(len(signal), name=name))
        level, since = Signal(range(DEPTH + 1)), Signal(range(pace), init=pace - 1)
        came, left = fifo.input.valid, fifo.output.valid & fifo.output.ready
        m.d.sync += level.eq(level + came - left)
        with m.If(left):
            m.d.sync += since.eq(0)
        with m.Elif(since != pace - 1):
            m.d.sync += since.eq(since + 1)
        m.d.comb += [
            Assume(~fifo.output.valid | (level != 0)),
            # The queue is never asked for more than it has room for, and a byte is lost only if it is full.
            Assert(~came | unit.input.valid & (level < DEPTH)),
            Assert(~unit.input.valid | came | (level == DEPTH)),
            Assert(fifo.input.payload.as_value() == unit.input.payload.as_value()),
            # What leaves it is taken, and not before the intake has said whether the frame ends with the byte before.
            Assert(unit.output.valid == left),
            Assert(unit.output.payload.as_value() == fifo.output.payload.as_value()),
            Assert(~left | unit.takes & (since == pace - 1)),
            Assert(~(unit.takes & fifo.output.valid & (since == pace - 1)) | left),
            # Registers.
            Assert(found.free == DEPTH - level),
            Assert(found.wait == pace - 1 - since),
            Cover(unit.input.valid & ~came),
            Cover(left & (level == DEPTH)),
        ]
        return m


def test_byte_queue(tmp_path: Path) -> None:
    prove(ByteQueueProof(), tmp_path, depth=2, cover_depth=20)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.input.valid & (free != 0)", "self.input.valid"),
        ("self.takes & (wait == 0)", "self.takes"),
        ("comes=leaves, leaves=fifo.input.valid", "comes=0, leaves=fifo.input.valid"),
    ],
)
def test_a_broken_byte_queue_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError):
        prove(ByteQueueProof(broken(frames, old, new)), tmp_path, depth=2)


class IntakeProof(Proof):
    """One byte of the header is watched, whichever."""

    def __init__(self, module=frames) -> None:
        super().__init__()
        self.unit = module.FrameIntake()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        decoder, buffer = found.decoder, found.m.submodules.buffer
        leave_out(decoder, buffer)
        decoded = decoder.output.payload
        for name, signal in {
            "arrives": unit.received.valid,
            "received": unit.received.payload.as_value(),
            "begin": unit.begin,
            "matches": unit.matches,
            "comes": decoder.output.valid,
            "byte": decoded.byte,
            "end": decoded.end,
            "damaged": decoded.damaged,
        }.items():
            m.d.comb += signal.eq(self.free(len(signal), name=name))
        # Bytes since the frame began, up to more than a frame may have; and the watched one.
        count, watched = Signal(range(2 * MOST_BYTES)), constant(m, 4, name="watched")
        byte, seen = Signal(8), Signal()
        comes, ends = decoder.output.valid & ~decoded.end, decoder.output.valid & decoded.end
        with m.If(comes & (count <= MOST_BYTES)):
            m.d.sync += count.eq(count + 1)
        with m.If(comes & (count == watched)):
            m.d.sync += [byte.eq(decoded.byte), seen.eq(1)]
        with m.If(unit.begin):
            m.d.sync += [count.eq(0), seen.eq(0)]
        right = (count >= LEAST_BYTES) & (count <= MOST_BYTES) & ~decoded.damaged & unit.matches
        was_end, was_right = Signal(), Signal()
        m.d.sync += [was_end.eq(ends), was_right.eq(right)]
        place = count - HEADER_BYTES
        shifted = Mux(count < HEADER_BYTES, count, HEADER_BYTES)
        first = Signal(4)
        m.d.comb += first.eq(HEADER_BYTES - shifted + watched)
        held = unit.header.as_value().word_select(first, 8)
        m.d.comb += [
            Assume(watched < HEADER_BYTES),
            Assume(~unit.begin | ~decoder.output.valid),
            Assert(unit.frame.valid == was_end),
            Assert(~was_end | (unit.frame.payload == was_right)),
            # What the CRC is of.
            Assert(unit.content.valid == comes),
            Assert(unit.content.payload == decoded.byte),
            # The data gets its place.
            Assert(buffer.write_enable == (comes & (count >= HEADER_BYTES) & (place < MAX_DATA))),
            Assert(~buffer.write_enable | (buffer.write_address == place[: len(buffer.write_address)])),
            Assert(~seen | (held == byte)),
            # Registers.
            Assert(seen == (count > watched)),
            Assert(count <= MOST_BYTES + 1),
            Assert(unit.data_bytes == count.as_signed() - LEAST_BYTES),
            Cover(was_end & unit.frame.payload & (count == 18)),
        ]
        return m


def test_intake(tmp_path: Path) -> None:
    prove(IntakeProof(), tmp_path, depth=3, cover_depth=24)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" & self.matches", ""),
        ("~decoded.damaged & ", ""),
        ("(self.data_bytes >= 0) & ", ""),
        pytest.param("at < MAX_DATA", "at <= MAX_DATA", marks=pytest.mark.regress),
    ],
)
def test_a_broken_intake_is_found(old: str, new: str, tmp_path: Path) -> None:
    # A frame that is too long takes more cycles than the solver can look at.
    with pytest.raises(ProofError):
        prove(IntakeProof(broken(frames, old, new)), tmp_path, depth=3)


# The sender of answers, proved for every pace: it sends what its kind says, no more, and is done in bounded time.

CONSTANTS = b"abcdefgh"
HEADER, WORD = 12, 4
#: The latest first: each state is left for one before it, but for the bytes of the arena and of the CRC.
SENDER_PHASES = ("REST", "END", "CLOSE", "SUM", "WORD", "IDENTITY", "BYTE", "ASK", "HEADER")


class SenderProof(Proof):
    """An arena that says some time that a byte is the last one; a line that takes a byte some time."""

    def __init__(self, module=frames) -> None:
        super().__init__()
        self.unit = module.AnswerSender(CONSTANTS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        for name, signal in {
            "start": unit.start,
            "is_nak": unit.is_nak,
            "word": unit.word,
            "byte": unit.byte,
            "last_asked": unit.last_asked,
            "comes": unit.arena.valid,
            "arena": unit.arena.payload,
            "takes": unit.output.ready,
        }.items():
            m.d.comb += signal.eq(self.free(len(signal), name=name))
        m.d.comb += unit.kind.eq(self.free(2, name="kind"))
        states = {name: found.fsm.ongoing(name) for name in SENDER_PHASES}
        asks = states["ASK"]
        sent = unit.output.valid & unit.output.ready
        # Bytes of each part that have gone, and what the answer is.
        count, kind, got, gone = Signal(8), Signal(AnswerKind), Signal(8), Signal()
        begins = unit.start & states["REST"]
        closes = found.closes
        m.d.sync += count.eq(count + sent)
        with m.If(begins):
            m.d.sync += [count.eq(0), kind.eq(unit.kind), got.eq(0), gone.eq(0)]
        with m.If(asks & unit.arena.valid & ~got[-1]):
            m.d.sync += [got.eq(got + 1), gone.eq(unit.last_asked)]
        data = Signal(8)
        with m.Switch(kind):
            with m.Case(AnswerKind.WORD):
                m.d.comb += data.eq(WORD)
            with m.Case(AnswerKind.IDENTITY):
                m.d.comb += data.eq(len(CONSTANTS) + WORD)
            with m.Case(AnswerKind.ARENA):
                m.d.comb += data.eq(got)
        whole = HEADER + data + WORD
        in_arena = asks | states["BYTE"]
        parts_left = {
            "HEADER": HEADER - count,
            "IDENTITY": HEADER + len(CONSTANTS) - count,
            "WORD": Mux(closes, whole, HEADER + data) - count,
        }
        held, was_held = Signal.like(unit.output.payload), Signal()
        m.d.sync += [held.eq(unit.output.payload), was_held.eq(unit.output.valid & ~unit.output.ready)]
        m.d.comb += [
            Assume(got < 64),
            # The header does not change but by being sent.
            Assume(~unit.arena.valid | asks),
            Assert(~sent | (unit.output.payload.last == (closes & (count == whole - 1)))),
            Assert(~unit.done | (count == whole)),
            Assert(~was_held | unit.output.valid),
            Assert(unit.shifts == (sent & (count < HEADER))),
            Assert(~unit.ask | (kind == AnswerKind.ARENA) & ~gone),
            Assert(unit.output.valid == (states["HEADER"] | states["IDENTITY"] | states["WORD"] | states["BYTE"])),
            # Registers.
            Assert(states["REST"] | (found.kind == kind)),
            Assert(~(states["SUM"] | states["CLOSE"]) | (count == HEADER + data) & ~closes),
            Assert(~asks | (count == HEADER + got)),
            Assert(~states["BYTE"] | (got != 0) & (count + 1 == HEADER + got)),
            Assert(~states["BYTE"] | (found.was_last == gone)),
            Assert(~in_arena | (kind == AnswerKind.ARENA) & ~closes),
            Assert(~states["IDENTITY"] | (kind == AnswerKind.IDENTITY) & ~closes),
            Assert(~(states["WORD"] & ~closes) | (kind == AnswerKind.WORD) | (kind == AnswerKind.IDENTITY)),
            Assert(~(states["HEADER"] | states["IDENTITY"]) | ~closes),
            Assert(~states["HEADER"] | (got == 0) & ~gone),
            Assert(~states["END"] | closes),
            Cover(unit.done & (kind == AnswerKind.ARENA) & (got == 2)),
        ]
        for name, size in (("HEADER", HEADER), ("IDENTITY", len(CONSTANTS)), ("WORD", WORD)):
            m.d.comb += Assert(~states[name] | (found.left + 1 == parts_left[name]) & (found.left < size))
        return m


def test_sender(tmp_path: Path) -> None:
    prove(SenderProof(), tmp_path, depth=4, cover_depth=32)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("plain.last.eq(closes & is_last)", "plain.last.eq(is_last)"),
        ("with m.If(was_last):", "with m.If(0):"),
        pytest.param("left.eq(left - 1)", "left.eq(left - 2)", marks=pytest.mark.regress),
    ],
)
def test_a_broken_sender_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(SenderProof(broken(frames, old, new)), tmp_path, depth=26, mode="bounded")
