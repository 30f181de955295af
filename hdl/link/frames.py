"""Frames of the link: intake of requests with their checks, and sending of answers."""

from __future__ import annotations

import enum

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from ...golden.link import frames
from ...golden.link.frames import CRC_BYTES, FIELDS, HEADER_BYTES, LEAST_BYTES
from ...golden.link.operations import AFTER, MAX_DATA, QUEUE_BYTES, RULES, WORD_BYTES, Counts, Operation, Status
from ..parts.device import RAM_LATENCY, Ram
from ..parts.fifo import BlockFifo, counted, push_signature
from .cobs import CobsDecoder, plain_layout
from .uart import received_layout

__all__ = [
    "BUFFER_LATENCY",
    "CHECK_LATENCY",
    "AnswerKind",
    "AnswerSender",
    "ByteQueue",
    "FrameIntake",
    "RequestCheck",
    "header_layout",
]


#: Cycles from ``place`` to ``buffered``.
BUFFER_LATENCY = RAM_LATENCY
_TAIL_BITS = 8 * (WORD_BYTES + CRC_BYTES)


def header_layout() -> data.StructLayout:
    """Return the layout of a frame's header."""
    layout = data.StructLayout({name: unsigned(8 * size) for name, (_, size) in FIELDS.items()})
    assert all(layout[name].offset == 8 * at for name, (at, _) in FIELDS.items())
    return layout


class ByteQueue(wiring.Component):
    """Keep bytes of the line until they are taken, one every ``PACE`` cycles at most, with a latency of five cycles.

    A byte that finds the queue full is lost. The only combinational path leads from ``takes`` to ``output.valid``.

    Parameters
    ----------
    depth : int
        Bytes, a power of two.

    Members
    -------
    input : In(push_signature of received_layout)
    takes : In(1)
        The next byte may come.
    output : Out(push_signature of received_layout)
    """

    #: Cycles from a byte to the next: more than the intake takes to say that a frame has ended.
    PACE = 8

    def __init__(self, *, depth: int = QUEUE_BYTES):
        self.depth = depth
        received = push_signature(received_layout())
        super().__init__({"input": In(received), "takes": In(1), "output": Out(received)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.fifo = fifo = BlockFifo(received_layout(), depth=self.depth)
        free, wait = Signal(range(self.depth + 1), init=self.depth), Signal(range(self.PACE))
        leaves = self.output.valid
        m.d.comb += [
            fifo.input.valid.eq(self.input.valid & (free != 0)),
            fifo.input.payload.eq(self.input.payload),
            fifo.output.ready.eq(self.takes & (wait == 0)),
            leaves.eq(fifo.output.valid & fifo.output.ready),
            self.output.payload.eq(fifo.output.payload),
        ]
        m.d.sync += free.eq(counted(free, comes=leaves, leaves=fifo.input.valid))
        with m.If(leaves):
            m.d.sync += wait.eq(self.PACE - 1)
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        return m


class FrameIntake(wiring.Component):
    """Gather a frame, and report at its end whether it is good; its bytes have no other effect.

    A frame is good if its length and its CRC are right and it is not damaged. The report comes three cycles after the
    delimiter, and the frame is kept until ``begin``; no byte may come between.

    Bytes come at least four cycles apart. The only combinational paths lead from ``matches`` into registers.

    Members
    -------
    received : In(push_signature of received_layout)
    begin : In(1)
        Discard the present frame and begin the next one.
    content : Out(push_signature of 8 bits)
        The bytes to compute the CRC of, followed by the CRC's own four bytes; ``begin`` restarts it.
    matches : In(1)
        Whether the last four bytes of ``content`` are the CRC of those before them, a cycle later.
    frame : Out(push_signature of one bit)
        The end of a frame, and whether it is good.
    header : Out(header_layout), data_bytes : Out(signed)
        ``data_bytes`` is the number of data bytes that have come, which may differ from ``length`` of the header.
    tail : Out(64)
        The last four bytes of data, and the CRC.
    place : In(10), buffered : Out(8)
        A byte of the data, ``BUFFER_LATENCY`` cycles later.
    answers : In(1), status : In(8), length : In(32)
        Put these into the header.
    shifts : In(1)
        The first byte of the header leaves, the next one takes its place.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "received": In(push_signature(received_layout())),
                "begin": In(1),
                "content": Out(push_signature(8)),
                "matches": In(1),
                "frame": Out(push_signature(1)),
                "header": Out(header_layout()),
                "data_bytes": Out(signed(ceil_log2(MAX_DATA) + 2), init=-LEAST_BYTES),
                "tail": Out(_TAIL_BITS),
                "place": In(ceil_log2(MAX_DATA)),
                "buffered": Out(8),
                "answers": In(1),
                "status": In(8),
                "length": In(32),
                "shifts": In(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.decoder = decoder = CobsDecoder()
        m.submodules.buffer = buffer = Ram(width=8, depth=MAX_DATA)
        decoded = decoder.output.payload
        connect(m, flipped(self.received), decoder.input)

        comes, ends = Signal(), Signal()
        is_header, is_data, at = Signal(), Signal(), Signal(signed(len(self.data_bytes)))
        m.d.comb += [
            comes.eq(decoder.output.valid & ~decoded.end),
            ends.eq(decoder.output.valid & decoded.end),
            self.content.valid.eq(comes),
            self.content.payload.eq(decoded.byte),
            # Index of the incoming byte within the data. The CRC follows the data, and is not told from it yet.
            at.eq(self.data_bytes + CRC_BYTES),
            is_header.eq(at < 0),
            is_data.eq(~is_header & (at < MAX_DATA)),
            buffer.write_address.eq(at),
            buffer.write_data.eq(decoded.byte),
            buffer.write_enable.eq(comes & is_data),
            buffer.read_address.eq(self.place),
            self.buffered.eq(buffer.read_data),
        ]
        m.d.sync += [
            self.frame.valid.eq(ends),
            self.frame.payload.eq(
                ~decoded.damaged & (self.data_bytes >= 0) & (self.data_bytes <= MAX_DATA) & self.matches
            ),
        ]
        with m.If(comes):
            m.d.sync += self.tail.eq(Cat(self.tail[8:], decoded.byte))
            with m.If(self.data_bytes <= MAX_DATA):
                m.d.sync += self.data_bytes.eq(self.data_bytes + 1)
        with m.If(self.begin):
            m.d.sync += self.data_bytes.eq(-LEAST_BYTES)
        header = self.header.as_value()
        with m.If(self.answers):
            m.d.sync += [self.header.status.eq(self.status), self.header.length.eq(self.length)]
        with m.Elif(self.shifts | comes & is_header):
            m.d.sync += header.eq(Cat(header[8:], decoded.byte))
        return m


# An answer on the line is a header, data and a CRC.


class AnswerKind(enum.Enum):
    """The data of an answer: none, a word, some constant bytes and a word, or bytes of the arena."""

    NOTHING = 0
    WORD = 1
    IDENTITY = 2
    ARENA = 3


class AnswerSender(wiring.Component):
    """Send an answer, a byte each cycle at most: header, data, and the CRC of both; then ``done``.

    The header is shifted out of the register that holds it, its first byte in the lowest bits; a NAK has a header of
    constants. Bytes of the arena are asked for one at a time. The only combinational path leads from ``byte`` to
    ``output``.

    Parameters
    ----------
    constants : bytes
        The first bytes of an IDENTITY.

    Members
    -------
    start : In(1)
        Begin an answer, with ``kind`` and ``is_nak`` of that cycle.
    kind : In(AnswerKind), is_nak : In(1)
    word : In(32)
        With ``start``, the word of the data; later the CRC of ``content``, a cycle after its last byte.
    byte : In(8), shifts : Out(1)
        The header's first byte, and that it is taken.
    ask : Out(1), last_asked : In(1), arena : In(push_signature of 8 bits)
        Ask for the next byte of the arena, until it comes; ``last_asked`` comes with the final one.
    clear : Out(1), content : Out(push_signature of 8 bits)
        The bytes to compute the CRC of.
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
        """Add the state that sends the constants of an IDENTITY; its word follows."""
        constants = Array(Const(byte, 8) for byte in reversed(self.constants))
        with m.State("IDENTITY"):
            m.d.comb += [self.output.valid.eq(1), self.output.payload.byte.eq(constants[left])]
            with m.If(end):
                m.d.sync += left.eq(WORD_BYTES - 1)
                m.next = "WORD"

    def _elaborate_arena(self, m: Module, word: Signal, sent: Signal) -> None:
        """Add the states that send bytes of the arena, one after the other, from the lowest bits of ``word``."""
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


# A request is carried out, answered as before, or refused.

CHECK_LATENCY = 2
_OF_ARENA = (Operation.READ, Operation.WRITE, Operation.CHECKSUM)
_OF_REGISTERS = (Operation.READ_REGISTER, Operation.WRITE_REGISTER, Operation.READ_REGISTERS)


class RequestCheck(wiring.Component):
    """Judge a request within ``CHECK_LATENCY`` cycles, and remember the last one. There is no combinational path.

    Parameters
    ----------
    arena_bytes : int
        A power of two.
    register_bits : int
        Bits of a register's address.

    Members
    -------
    header : In(header_layout), data_bytes : In(11), crc : In(32), word : In(32)
        The request, and a word of data if it has one.
    verdict : Out(8)
        The status of its answer, as far as it is known before the request is carried out.
    other : Out(1)
        The request has the number of the last one, but differs from it; or it comes after another one, and that is not
        the last one or was refused.
    repeated : Out(1)
        The request is the last one again, and is not carried out twice.
    remember : In(1), status : In(8)
        Make it the last request, with this status.
    forget : In(1)
        Forget the last request.
    last_status : Out(8)
    """

    def __init__(self, *, arena_bytes: int, register_bits: int):
        self.arena_bytes = arena_bytes
        self.register_bits = register_bits
        super().__init__(
            {
                "header": In(header_layout()),
                "data_bytes": In(ceil_log2(MAX_DATA) + 1),
                "crc": In(32),
                "word": In(32),
                "verdict": Out(8),
                "other": Out(1),
                "repeated": Out(1),
                "remember": In(1),
                "status": In(8),
                "forget": In(1),
                "last_status": Out(8),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        operation = self.header.operation
        known, once, fits, is_within, rate_is_right = (
            Signal(name=name) for name in ("known", "once", "fits", "is_within", "rate_is_right")
        )
        lengths = self._elaborate_lengths(m)
        of_arena, of_registers = self._elaborate_addresses(m)
        is_rate = Signal(reset_less=True)
        # Both limits are powers of two, or one less, so that the comparison needs no carry.
        least, most = ceil_log2(frames.LEAST_BIT_TIME), ceil_log2(frames.MOST_BIT_TIME)
        m.d.sync += is_rate.eq(self.word[least:].any() & ~self.word[most:].any())
        m.d.comb += rate_is_right.eq((operation != Operation.SET_RATE) | is_rate)
        with m.Switch(operation):
            for code, rule in RULES.items():
                with m.Case(code):
                    right = of_arena if code in _OF_ARENA else of_registers if code in _OF_REGISTERS else 1
                    m.d.comb += [
                        known.eq(self.header.status <= AFTER),
                        once.eq(rule.once),
                        fits.eq(lengths[rule.length] & (lengths["whole"] if rule.has_data else lengths["none"])),
                        is_within.eq(right),
                    ]
        m.d.sync += self.verdict.eq(
            Mux(
                known,
                Mux(
                    fits,
                    Mux(is_within, Mux(rate_is_right, Status.OK, Status.RATE), Status.ADDRESS),
                    Status.LENGTH,
                ),
                Status.UNKNOWN_OPERATION,
            )
        )

        has_last, last_sequence, last_crc = Signal(), Signal(16, reset_less=True), Signal(32, reset_less=True)
        same_number, same_crc, misses = (Signal(name=name, reset_less=True) for name in ("number", "crc", "misses"))
        # A register, so that no sum is compared.
        following = Signal(16, reset_less=True)
        m.d.sync += [
            following.eq(last_sequence + 1),
            same_number.eq(has_last & (last_sequence == self.header.sequence)),
            same_crc.eq(last_crc == self.crc),
            misses.eq(
                (self.header.status == AFTER)
                & ~(has_last & (following == self.header.sequence) & (self.last_status == Status.OK))
            ),
            self.other.eq(Mux(same_number, ~same_crc, misses)),
            self.repeated.eq(same_number & same_crc & once),
        ]
        with m.If(self.forget):
            m.d.sync += has_last.eq(0)
        with m.If(self.remember):
            m.d.sync += [
                has_last.eq(1),
                last_sequence.eq(self.header.sequence),
                last_crc.eq(self.crc),
                self.last_status.eq(self.status),
            ]
        return m

    def _elaborate_lengths(self, m: Module) -> dict:
        """Return whether ``length`` suits the operation, and whether there are no data bytes (``none``) or as many as
        it says (``whole``)."""
        length, bits = self.header.length, ceil_log2(MAX_DATA)
        low, high = length[:bits].any(), length[bits + 1 :].any()
        # One less than a power of two, so that the comparison needs no carry.
        most_cycles, most_words = (count.value[2] for count in (Counts.CYCLES, Counts.WORDS))
        words = length[: most_words.bit_length()]
        conditions = {
            Counts.NOTHING: length == 0,
            Counts.WORD: length == WORD_BYTES,
            Counts.DATA: (low ^ length[bits]) & ~high,
            Counts.RANGE: length != 0,
            Counts.CYCLES: ~length[most_cycles.bit_length() :].any(),
            # The most is a power of two, so that there is nothing beside its bit.
            Counts.WORDS: (words[:-1].any() ^ words[-1]) & ~length[len(words) :].any() & (length % WORD_BYTES == 0),
            "none": self.data_bytes == 0,
            "whole": (self.data_bytes == length[: bits + 1]) & ~high,
        }
        found: dict = {}
        for key, condition in conditions.items():
            found[key] = Signal(name=key.name.lower() if isinstance(key, Counts) else key, reset_less=True)
            m.d.sync += found[key].eq(condition)
        return found

    def _elaborate_addresses(self, m: Module) -> tuple[Signal, Signal]:
        """Return whether a range lies within the arena, and whether an address is a register's."""
        address, length, bits = self.header.address, self.header.length, ceil_log2(self.arena_bytes)
        of_arena, of_registers = Signal(reset_less=True), Signal(reset_less=True)
        # What is longer has no right length.
        words = length[: Counts.WORDS.value[2].bit_length()]
        end, registers_end = Signal(unsigned(bits + 2)), Signal(max(self.register_bits, len(words)) + 1)
        m.d.comb += [
            end.eq(address[:bits] + length[: bits + 1]),
            registers_end.eq(address[: self.register_bits] + words),
        ]
        m.d.sync += [
            of_arena.eq(
                ~address[bits:].any() & ~length[bits + 1 :].any() & ((end == self.arena_bytes) | ~end[bits:].any())
            ),
            of_registers.eq(
                ~address[self.register_bits :].any()
                & (address % WORD_BYTES == 0)
                & (registers_end <= 1 << self.register_bits)
            ),
        ]
        return of_arena, of_registers
