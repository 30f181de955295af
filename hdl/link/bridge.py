"""The bridge: frames from the line are carried out, on registers and arena, and answered."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from ...golden.link import frames
from ...golden.link.frames import Identity
from ...golden.link.operations import LINK_VERSION, MAX_DATA, WORD_BYTES, Operation
from ..bus.axi import axi4_lite_signature
from ..memories.arena import HostSignature
from ..parts.fifo import Slot, push_signature
from .answer_sender import AnswerKind, AnswerSender
from .arena_walk import ArenaWalk
from .cobs_encoder import CobsEncoder, plain_layout
from .crc32 import Crc32
from .frame_intake import FrameIntake
from .operations import carry_out, choose_word, decide
from .register_port import RegisterPort
from .request_check import CHECK_LATENCY, RequestCheck
from .uart_receiver import received_layout

__all__ = ["Bridge"]


class Bridge(wiring.Component):
    """Answer a host's requests, one after the other.

    Bit-exact with :class:`lutterfly.golden.link.bridge.Bridge`. Nothing happens before a whole frame is here whose CRC
    is right; while its request is carried out, and answered, what comes is lost. It listens again, at a new rate if
    that was asked for, as soon as the last byte of its answer goes to the line. That takes bounded time if registers,
    arena and line do: a WAIT as many cycles as it says, all else a few for each byte. At another rate than the initial
    one, ``rate_timeout`` cycles of listening without a good frame bring that back.

    Parameters
    ----------
    clock_hz : int
        Cycles in a second.
    arena_bytes : int
        A power of two.
    register_bits : int
        Bits of a register's address.
    rate_timeout : int or None
        Cycles; a second by default.

    Members
    -------
    received : In(push_signature of received_layout)
        From the line, bytes four cycles apart at least.
    sent : Out(stream of 8 bits)
        To the line.
    bit_time : Out(16)
        In sixteenths of a cycle; a byte that has been taken from ``sent`` keeps that which it had.
    interrupt : In(1)
    control : Out(axi4_lite_signature)
        The registers.
    host : Out(HostSignature)
        The arena.

    Raises
    ------
    ValueError
        If the initial rate is out of range at this clock.
    """

    def __init__(self, *, clock_hz: int, arena_bytes: int, register_bits: int, rate_timeout: int | None = None):
        self.initial_bit_time = frames.bit_time(clock_hz, frames.INITIAL_RATE)
        self.clock_hz = clock_hz
        self.arena_bytes = arena_bytes
        self.register_bits = register_bits
        self.rate_timeout = frames.rate_timeout_cycles(clock_hz) if rate_timeout is None else rate_timeout
        self.address_bits = ceil_log2(arena_bytes)
        super().__init__(
            {
                "received": In(push_signature(received_layout())),
                "sent": Out(stream.Signature(8)),
                "bit_time": Out(range(frames.MOST_BIT_TIME + 1), init=self.initial_bit_time),
                "interrupt": In(1),
                "control": Out(axi4_lite_signature(register_bits)),
                "host": Out(HostSignature(self.address_bits)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.intake = intake = FrameIntake()
        m.submodules.check = check = RequestCheck(arena_bytes=self.arena_bytes, register_bits=self.register_bits)
        m.submodules.crc = crc = Crc32()
        m.submodules.port = port = RegisterPort(self.register_bits)
        m.submodules.walk = walk = ArenaWalk(self.address_bits)
        identity = Identity(LINK_VERSION, self.clock_hz, self.arena_bytes, MAX_DATA, 0).pack()
        m.submodules.sender = sender = AnswerSender(identity[:-WORD_BYTES])
        m.submodules.encoder = encoder = CobsEncoder()
        connect(m, flipped(self.received), intake.received)
        connect(m, port.control, flipped(self.control))
        connect(m, walk.host, flipped(self.host))
        # Between the bytes to choose from, and what counts them.
        m.submodules.outgoing = outgoing = Slot(plain_layout())
        connect(m, sender.output, outgoing.input)
        connect(m, outgoing.output, encoder.input)
        connect(m, encoder.output, flipped(self.sent))
        header, word, frame_crc = intake.header, intake.tail[:32], intake.tail[32:]
        state = SimpleNamespace(
            status=Signal(8),
            kind=Signal(AnswerKind),
            is_nak=Signal(),
            remembers=Signal(),
            sets_rate=Signal(),
            # Cycles until the initial rate is back, while it listens; else those of a WAIT.
            left=Signal(32, init=self.rate_timeout - 1),
        )
        m.d.comb += [
            check.header.eq(header),
            check.data_bytes.eq(intake.data_bytes),
            check.crc.eq(frame_crc),
            check.word.eq(word),
            check.status.eq(state.status),
            port.write.eq(header.operation == Operation.WRITE_REGISTER),
            port.address.eq(header.address),
            port.data.eq(word),
            walk.address.eq(header.address),
            walk.length.eq(header.length),
            walk.buffered.eq(intake.buffered),
            intake.place.eq(walk.place),
            intake.crc.eq(crc.value),
            intake.status.eq(state.status),
            intake.shifts.eq(sender.shifts),
            sender.byte.eq(header.as_value()),
            sender.kind.eq(state.kind),
            sender.is_nak.eq(state.is_nak),
            sender.last_asked.eq(walk.last),
            sender.arena.valid.eq(walk.byte.valid),
            sender.arena.payload.eq(walk.byte.payload),
        ]
        with m.Switch(state.kind):
            for kind, length in ((AnswerKind.WORD, WORD_BYTES), (AnswerKind.IDENTITY, len(identity))):
                with m.Case(kind):
                    m.d.comb += intake.length.eq(length)
            with m.Case(AnswerKind.ARENA):
                m.d.comb += intake.length.eq(header.length)
        self._elaborate_control(m, state)
        return m

    def _elaborate_control(self, m: Module, state: SimpleNamespace) -> None:
        parts = m.submodules
        intake, check, crc, walk, sender = parts.intake, parts.check, parts.crc, parts.walk, parts.sender
        wait = Signal(range(CHECK_LATENCY + 1))
        summing, begins_sum = Signal(), Signal()
        # Of what the CRC is: in turns, of the frame, of the arena, and of the answer.
        m.d.comb += [
            crc.clear.eq(intake.begin | sender.clear | begins_sum),
            crc.valid.eq(intake.content.valid | sender.content.valid | summing & walk.byte.valid),
            crc.byte.eq(
                Mux(intake.listens, intake.content.payload, Mux(summing, walk.byte.payload, sender.content.payload))
            ),
            walk.ask.eq(sender.ask | summing),
            sender.word.eq(crc.value),
        ]
        cycles = Signal(32)
        m.d.sync += cycles.eq(cycles + 1)
        with m.FSM() as fsm:
            with m.State("LISTEN"):
                m.d.sync += [
                    state.is_nak.eq(~intake.frame.payload),
                    state.kind.eq(AnswerKind.NOTHING),
                    state.remembers.eq(0),
                    state.sets_rate.eq(0),
                    wait.eq(CHECK_LATENCY),
                    state.left.eq(state.left - 1),
                ]
                with m.If(state.left == 0):
                    m.d.sync += [self.bit_time.eq(self.initial_bit_time), state.left.eq(self.rate_timeout - 1)]
                with m.If(intake.frame.valid):
                    m.next = "ANSWER"
                    with m.If(intake.frame.payload):
                        m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.next = "DECIDE"
            with m.State("DECIDE"):
                decide(m, state)
            carry_out(m, state, begins_sum, summing, interrupt=self.interrupt, received=self.received.valid)
            with m.State("ANSWER"):
                m.d.comb += [intake.answers.eq(1), sender.start.eq(1), check.remember.eq(state.remembers)]
                choose_word(m, cycles, self.interrupt)
                m.next = "SEND"
            with m.State("SEND"), m.If(sender.done):
                m.next = "LEAVE"
            # The encoder takes the next frame once its delimiter is taken. A client that has got that byte may send at
            # once, even at the new rate.
            with m.State("LEAVE"), m.If(parts.encoder.input.ready & ~parts.encoder.input.valid):
                m.d.comb += intake.begin.eq(1)
                with m.If(~state.is_nak):
                    m.d.sync += state.left.eq(self.rate_timeout - 1)
                with m.If(state.sets_rate):
                    m.d.sync += self.bit_time.eq(intake.tail[: len(self.bit_time)])
                m.next = "LISTEN"
        m.d.comb += intake.listens.eq(fsm.ongoing("LISTEN"))
