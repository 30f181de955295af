"""The sender of answers, proved for every pace: it sends what its kind says, no more, and is done in bounded time."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Mux, Signal

from cocotb_tests.support.proofs import Proof, ProofError, broken, inside, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.hdl.link import frames
from lutterfly.hdl.link.frames import AnswerKind

pytestmark = needs_yosys
CONSTANTS = b"abcdefgh"
HEADER, WORD = 12, 4
#: The latest first: each state is left for one before it, but for the bytes of the arena and of the CRC.
PHASES = ("REST", "END", "CLOSE", "SUM", "WORD", "IDENTITY", "BYTE", "ASK", "HEADER")


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
        states = {name: found.fsm.ongoing(name) for name in PHASES}
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
