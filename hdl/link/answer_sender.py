"""Answers to the line: a header, what follows it, and a CRC."""

from __future__ import annotations

import enum

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden.link.frames import CRC_BYTES, FIELDS, HEADER_BYTES
from ...golden.link.operations import WORD_BYTES, Status
from ..parts.fifo import push_signature
from .cobs_encoder import plain_layout

__all__ = ["AnswerKind", "AnswerSender"]


class AnswerKind(enum.Enum):
    """The data of an answer: none, a word, some constant bytes and a word, or bytes of the arena."""

    NOTHING = 0
    WORD = 1
    IDENTITY = 2
    ARENA = 3


class AnswerSender(wiring.Component):
    """Send an answer, a byte each cycle at most: header, data, and the CRC of both; then ``done``.

    The header comes from where it stands, its first byte in the lowest bits, and is shifted out; that of a NAK is made
    up. Bytes of the arena are asked for one at a time. No combinational path but from ``byte`` to ``output``.

    Parameters
    ----------
    constants : bytes
        What an IDENTITY begins with.

    Members
    -------
    start : In(1)
        Begin; ``kind`` and ``is_nak`` are as they are then.
    kind : In(AnswerKind), is_nak : In(1)
    word : In(32)
        With ``start`` the word of the data; later the CRC of ``content``, a cycle later than that.
    byte : In(8), shifts : Out(1)
        The header's first byte, and that it is taken.
    ask : Out(1), last_asked : In(1), arena : In(push_signature of 8 bits)
        Ask for the next byte of the arena, until it comes; with it, ``last_asked`` says that it is the last one.
    clear : Out(1), content : Out(push_signature of 8 bits)
        What the CRC is of.
    output : Out(stream of plain_layout)
    done : Out(1)
        High for one cycle, after the last byte is taken.
    """

    def __init__(self, constants: bytes):
        self.constants = constants
        super().__init__(
            {
                "start": In(1),
                "kind": In(AnswerKind),
                "is_nak": In(1),
                "word": In(32),
                "byte": In(8),
                "shifts": Out(1),
                "ask": Out(1),
                "last_asked": In(1),
                "arena": In(push_signature(8)),
                "clear": Out(1),
                "content": Out(push_signature(8)),
                "output": Out(stream.Signature(plain_layout())),
                "done": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        kind, is_nak, closes = Signal(AnswerKind), Signal(), Signal()
        word = Signal(8 * WORD_BYTES, reset_less=True)
        left = Signal(range(max(HEADER_BYTES, len(self.constants))))
        is_last, sent = Signal(), Signal()
        plain = self.output.payload
        status_left = HEADER_BYTES - 1 - FIELDS["status"][0]
        m.d.comb += [is_last.eq(left == 0), sent.eq(self.output.valid & self.output.ready)]
        m.d.sync += [self.content.valid.eq(sent & ~closes), self.content.payload.eq(plain.byte)]
        with m.If(sent):
            m.d.sync += left.eq(left - 1)
        with m.FSM() as fsm:
            with m.State("REST"):
                m.d.sync += [kind.eq(self.kind), is_nak.eq(self.is_nak), word.eq(self.word), closes.eq(0)]
                m.d.sync += left.eq(HEADER_BYTES - 1)
                with m.If(self.start):
                    m.d.comb += self.clear.eq(1)
                    m.next = "HEADER"
            with m.State("HEADER"):
                m.d.comb += [
                    self.output.valid.eq(1),
                    plain.byte.eq(Mux(is_nak, Mux(left == status_left, Status.DAMAGED, 0), self.byte)),
                    self.shifts.eq(sent),
                ]
                with m.If(sent & is_last):
                    m.d.sync += left.eq(Mux(kind == AnswerKind.IDENTITY, len(self.constants) - 1, WORD_BYTES - 1))
                    with m.Switch(kind):
                        with m.Case(AnswerKind.NOTHING):
                            m.next = "SUM"
                        with m.Case(AnswerKind.WORD):
                            m.next = "WORD"
                        with m.Case(AnswerKind.IDENTITY):
                            m.next = "IDENTITY"
                        with m.Case(AnswerKind.ARENA):
                            m.next = "ASK"
            self._elaborate_constants(m, left, sent & is_last)
            with m.State("WORD"):
                m.d.comb += [self.output.valid.eq(1), plain.byte.eq(word), plain.last.eq(closes & is_last)]
                with m.If(sent):
                    m.d.sync += word.eq(word >> 8)
                with m.If(sent & is_last):
                    m.next = "SUM"
                    with m.If(closes):
                        m.next = "END"
            self._elaborate_arena(m, word, sent)
            # The CRC has the last byte two cycles after it is sent.
            with m.State("SUM"):
                m.next = "CLOSE"
            with m.State("CLOSE"):
                m.d.sync += [word.eq(self.word), closes.eq(1), left.eq(CRC_BYTES - 1)]
                m.next = "WORD"
            with m.State("END"):
                m.next = "REST"
        m.d.comb += self.done.eq(fsm.ongoing("END"))
        return m

    def _elaborate_constants(self, m: Module, left: Signal, end: Value) -> None:
        """What an IDENTITY begins with; its word follows."""
        constants = Array(Const(byte, 8) for byte in reversed(self.constants))
        with m.State("IDENTITY"):
            m.d.comb += [self.output.valid.eq(1), self.output.payload.byte.eq(constants[left])]
            with m.If(end):
                m.d.sync += left.eq(WORD_BYTES - 1)
                m.next = "WORD"

    def _elaborate_arena(self, m: Module, word: Signal, sent: Signal) -> None:
        """Bytes of the arena, one after the other, each in the lowest bits of ``word``."""
        was_last = Signal(reset_less=True)
        with m.State("ASK"):
            m.d.comb += self.ask.eq(1)
            with m.If(self.arena.valid):
                m.d.sync += [word.eq(self.arena.payload), was_last.eq(self.last_asked)]
                m.next = "BYTE"
        with m.State("BYTE"):
            m.d.comb += [self.output.valid.eq(1), self.output.payload.byte.eq(word)]
            with m.If(sent):
                m.next = "ASK"
                with m.If(was_last):
                    m.next = "SUM"
