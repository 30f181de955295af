"""The bridge carries out requests from the line on registers and arena, and answers them."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.crc.catalog import CRC32_ISO_HDLC
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from ...golden.link import frames
from ...golden.link.frames import Identity
from ...golden.link.operations import LINK_VERSION, MAX_DATA, WORD_BYTES, Operation, Status
from ..bus.axi import Response, axi4_lite_signature
from ..memories.arena import HostSignature
from ..parts.fifo import Slot, push_signature
from .cobs import CobsEncoder, plain_layout
from .frames import BUFFER_LATENCY, CHECK_LATENCY, AnswerKind, AnswerSender, ByteQueue, FrameIntake, RequestCheck
from .uart import received_layout

__all__ = [
    "ArenaWalk",
    "Bridge",
    "RegisterPort",
    "carry_out",
    "choose_word",
    "decide",
]


# The arena is read byte by byte for answers and checksums, and written byte by byte from a frame.


class ArenaWalk(wiring.Component):
    """Walk over a range of the arena, a byte at a time; about eight cycles each.

    The only combinational path leads from the arena's answer to ``byte``.

    Parameters
    ----------
    address_bits : int
        Bits of an address of the arena.

    Members
    -------
    load : In(1), address : In(address_bits), length : In(address_bits + 1)
        Begin at the start of a range of one byte or more; not while an access is under way.
    ask : In(1), byte : Out(push_signature of 8 bits), last : Out(1)
        While ``ask`` is high, read the next byte; ``last`` comes with the final one.
    write : In(1), place : Out(10), buffered : In(8), written : Out(1)
        ``write`` begins to write the range. ``place`` is the byte of the frame that ``buffered`` gives
        ``BUFFER_LATENCY`` cycles later. ``written`` is high for one cycle when the whole range is written.
    host : Out(HostSignature)
        The arena.
    """

    def __init__(self, address_bits: int):
        self.address_bits = address_bits
        super().__init__(
            {
                "load": In(1),
                "address": In(address_bits),
                "length": In(address_bits + 1),
                "ask": In(1),
                "byte": Out(push_signature(8)),
                "last": Out(1),
                "write": In(1),
                "place": Out(ceil_log2(MAX_DATA)),
                "buffered": In(8),
                "written": Out(1),
                "host": Out(HostSignature(address_bits)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        request, answer = self.host.request, self.host.answer
        # Bytes after the present one.
        left, wait = Signal(self.address_bits, reset_less=True), Signal(range(BUFFER_LATENCY + 1))
        moves = Signal()
        m.d.comb += [self.last.eq(left == 0), self.byte.payload.eq(answer.payload)]
        with m.If(moves):
            m.d.sync += [
                request.payload.address.eq(request.payload.address + 1),
                left.eq(left - 1),
                self.place.eq(self.place + 1),
            ]
        with m.If(self.load):
            m.d.sync += [request.payload.address.eq(self.address), left.eq(self.length - 1), self.place.eq(0)]
        with m.FSM() as fsm:
            with m.State("REST"):
                m.d.sync += [request.payload.write.eq(self.write), wait.eq(BUFFER_LATENCY)]
                with m.If(self.write):
                    m.next = "FETCH"
                with m.Elif(self.ask):
                    m.d.sync += request.valid.eq(1)
                    m.next = "READ"
            with m.State("READ"):
                with m.If(request.ready):
                    m.d.sync += request.valid.eq(0)
                with m.If(answer.valid):
                    m.d.comb += moves.eq(1)
                    m.next = "REST"
            with m.State("FETCH"):
                m.d.sync += [wait.eq(wait - 1), request.payload.data.eq(self.buffered)]
                with m.If(wait == 0):
                    m.d.sync += request.valid.eq(1)
                    m.next = "WRITE"
            with m.State("WRITE"), m.If(request.ready):
                m.d.sync += [request.valid.eq(0), wait.eq(BUFFER_LATENCY)]
                m.d.comb += [moves.eq(1), self.written.eq(self.last)]
                m.next = "FETCH"
                with m.If(self.last):
                    m.next = "REST"
        m.d.comb += self.byte.valid.eq(fsm.ongoing("READ") & answer.valid)
        return m


# The registers are accessed on AXI4-Lite, one access at a time.


class RegisterPort(wiring.Component):
    """Read or write a register: a cycle from ``start`` to the bus, and one from the bus to ``done``.

    Offers are stable until they are accepted. Every output is registered but for ``bready`` and ``rready``, which are
    always high.

    Parameters
    ----------
    address_bits : int

    Members
    -------
    start : In(1), write : In(1), address : In(address_bits), data : In(32)
        Begin an access; not before the previous one is done.
    done : Out(1)
        High for one cycle at the end of the access.
    okay : Out(1), value : Out(32)
        With ``done``, whether there is such a register, and the value that was read, which is stable until the next
        read.
    control : Out(axi4_lite_signature)
    """

    def __init__(self, address_bits: int):
        self.address_bits = address_bits
        super().__init__(
            {
                "start": In(1),
                "write": In(1),
                "address": In(address_bits),
                "data": In(32),
                "done": Out(1),
                "okay": Out(1),
                "value": Out(32),
                "control": Out(axi4_lite_signature(address_bits)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bus = self.control
        address, word = Signal(self.address_bits, reset_less=True), Signal(32, reset_less=True)
        m.d.comb += [
            bus.awaddr.eq(address),
            bus.araddr.eq(address),
            bus.wdata.eq(word),
            bus.wstrb.eq(-1),
            bus.bready.eq(1),
            bus.rready.eq(1),
        ]
        for channel in ("aw", "w", "ar"):
            valid = getattr(bus, f"{channel}valid")
            with m.If(getattr(bus, f"{channel}ready")):
                m.d.sync += valid.eq(0)
            with m.If(self.start):
                m.d.sync += valid.eq(~self.write if channel == "ar" else self.write)
        with m.If(self.start):
            m.d.sync += [address.eq(self.address), word.eq(self.data)]
        m.d.sync += [
            self.done.eq(bus.bvalid | bus.rvalid),
            self.okay.eq((bus.rvalid & (bus.rresp == Response.OKAY)) | (bus.bvalid & (bus.bresp == Response.OKAY))),
        ]
        with m.If(bus.rvalid):
            m.d.sync += self.value.eq(bus.rdata)
        return m


# The states of the bridge's state machine that decide on a request and carry it out, operation by operation.


def decide(m: Module, state: SimpleNamespace) -> None:
    """Choose the status and the next state for a good frame; called within the state DECIDE."""
    check, port, walk = m.submodules.check, m.submodules.port, m.submodules.walk
    header = m.submodules.intake.header
    identifies = header.operation == Operation.IDENTIFY
    m.d.comb += [check.forget.eq(identifies), walk.load.eq(1)]
    m.d.sync += [state.left.eq(header.length), state.status.eq(check.verdict)]
    m.next = "ANSWER"
    with m.If(check.other & ~identifies):
        m.d.sync += state.status.eq(Status.SEQUENCE)
    with m.Elif(check.repeated & ~identifies):
        m.d.sync += state.status.eq(check.last_status)
    with m.Else():
        m.d.sync += state.remembers.eq(~identifies)
        with m.If(check.verdict == Status.OK), m.Switch(header.operation):
            with m.Case(Operation.IDENTIFY):
                m.d.sync += state.kind.eq(AnswerKind.IDENTITY)
            with m.Case(Operation.READ_REGISTER, Operation.WRITE_REGISTER):
                m.d.comb += port.start.eq(1)
                m.next = "ACCESS"
            with m.Case(Operation.READ, Operation.READ_REGISTERS):
                of_registers = header.operation == Operation.READ_REGISTERS
                m.d.sync += [state.kind.eq(AnswerKind.ARENA), state.of_registers.eq(of_registers)]
            with m.Case(Operation.WRITE):
                m.next = "WRITE"
            with m.Case(Operation.CHECKSUM):
                m.next = "BEGIN_SUM"
            with m.Case(Operation.SET_RATE):
                m.d.sync += state.sets_rate.eq(1)
            with m.Case(Operation.WAIT):
                m.next = "WAIT"


def carry_out(m: Module, state: SimpleNamespace, begins_sum: Signal, summing: Signal, *, interrupt: Value) -> None:
    """Add the states of the operations that take several cycles."""
    port, walk = m.submodules.port, m.submodules.walk
    with m.State("ACCESS"):
        m.d.sync += state.status.eq(Mux(port.okay, Status.OK, Status.REGISTER_REFUSED))
        with m.If(port.done):
            m.next = "ANSWER"
            with m.If(port.okay & ~port.write):
                m.d.sync += state.kind.eq(AnswerKind.WORD)
    with m.State("WRITE"):
        m.d.comb += walk.write.eq(1)
        with m.If(walk.written):
            m.next = "ANSWER"
    with m.State("BEGIN_SUM"):
        m.d.comb += begins_sum.eq(1)
        m.next = "SUM"
    with m.State("SUM"):
        m.d.comb += summing.eq(1)
        m.d.sync += state.kind.eq(AnswerKind.WORD)
        with m.If(walk.byte.valid & walk.last):
            m.next = "ANSWER"
    with m.State("WAIT"):
        m.d.sync += [state.left.eq(state.left - 1), state.status.eq(Mux(interrupt, Status.OK, Status.TIMED_OUT))]
        with m.If(interrupt | (state.left == 0)):
            m.next = "ANSWER"


def choose_word(m: Module, cycles: Value) -> None:
    """Choose the word of an answer that has one; called within the state ANSWER. The word of a CHECKSUM is the CRC."""
    parts = m.submodules
    with m.Switch(parts.intake.header.operation):
        with m.Case(Operation.IDENTIFY):
            m.d.comb += parts.sender.word.eq(cycles)
        with m.Case(Operation.READ_REGISTER):
            m.d.comb += parts.sender.word.eq(parts.port.value)


class Bridge(wiring.Component):
    """Answer a host's requests, one after the other.

    Bit-exact with :class:`lutterfly.golden.link.bridge.BridgeModel`. A request is carried out once its whole frame has
    come with the right CRC; bytes that come until it is answered wait in a queue. The bridge listens again, at a new
    rate if the request sets one, as soon as the last byte of the answer goes to the line. The time of a request is
    bounded if registers, arena and line are: a WAIT takes as many cycles as it asks for, any other request a few for
    each byte. At another rate than the initial one, ``rate_timeout`` cycles of listening without a good frame restore
    the initial rate.

    Parameters
    ----------
    clock_hz : int
        Cycles in a second.
    arena_bytes : int
        A power of two.
    register_bits : int
        Bits of a register's address.
    rate_timeout : int or None
        Time-out in cycles; a second by default.

    Members
    -------
    received : In(push_signature of received_layout)
        Bytes from the line, of which ``QUEUE_BYTES`` may wait; one more is lost.
    sent : Out(stream of 8 bits)
        Bytes to the line.
    bit_time : Out(16)
        Time of a bit in sixteenths of a cycle; a byte that has been taken from ``sent`` keeps the time that it began
        with.
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
        m.submodules.queue = queue = ByteQueue()
        m.submodules.intake = intake = FrameIntake()
        m.submodules.check = check = RequestCheck(arena_bytes=self.arena_bytes, register_bits=self.register_bits)
        # A reset begins a new CRC, as the port `start` would put a multiplexer before each of its sums, which takes
        # half as many look-up tables again.
        begins_crc = Signal()
        m.submodules.crc = crc = ResetInserter(begins_crc)(CRC32_ISO_HDLC().create())
        m.submodules.port = port = RegisterPort(self.register_bits)
        m.submodules.walk = walk = ArenaWalk(self.address_bits)
        identity = Identity(LINK_VERSION, self.clock_hz, self.arena_bytes, MAX_DATA, 0).pack()
        m.submodules.sender = sender = AnswerSender(identity[:-WORD_BYTES])
        m.submodules.encoder = encoder = CobsEncoder()
        connect(m, flipped(self.received), queue.input)
        connect(m, queue.output, intake.received)
        connect(m, port.control, flipped(self.control))
        # A register separates the choice of bytes from the encoder that counts them.
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
            # Whether the walk is over registers.
            of_registers=Signal(),
            # While the bridge listens, cycles until the initial rate is restored; else the remaining cycles of a WAIT.
            left=Signal(32, init=self.rate_timeout - 1),
        )
        # The walk asks for one byte at a time, and its address stays until the answer comes.
        request, at = walk.host.request, walk.host.request.payload.address
        m.d.comb += [
            self.host.request.valid.eq(request.valid & ~state.of_registers),
            self.host.request.payload.eq(request.payload),
            request.ready.eq(self.host.request.ready | state.of_registers),
            walk.host.answer.valid.eq(self.host.answer.valid | port.done & state.of_registers),
            walk.host.answer.payload.eq(self.host.answer.payload),
            port.start.eq(request.valid & state.of_registers),
            port.address.eq(header.address),
            port.write.eq(header.operation == Operation.WRITE_REGISTER),
        ]
        with m.If(state.of_registers):
            m.d.comb += [
                walk.host.answer.payload.eq(Mux(port.okay, port.value.word_select(at[:2], 8), 0)),
                port.address.eq(Cat(Const(0, 2), at[2:])),
                port.write.eq(0),
            ]
        m.d.comb += [
            check.header.eq(header),
            check.data_bytes.eq(intake.data_bytes),
            check.crc.eq(frame_crc),
            check.word.eq(word),
            check.status.eq(state.status),
            port.data.eq(word),
            walk.address.eq(header.address),
            walk.length.eq(header.length),
            walk.buffered.eq(intake.buffered),
            intake.place.eq(walk.place),
            intake.matches.eq(crc.match_detected),
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
        self._elaborate_control(m, state, begins_crc)
        return m

    def _elaborate_control(self, m: Module, state: SimpleNamespace, begins_crc: Signal) -> None:
        parts = m.submodules
        intake, check, crc, walk, sender = parts.intake, parts.check, parts.crc, parts.walk, parts.sender
        wait = Signal(range(CHECK_LATENCY + 1))
        listens, summing, begins_sum = Signal(), Signal(), Signal()
        # One CRC serves the frame, the arena and the answer in turn.
        m.d.comb += [
            begins_crc.eq(intake.begin | sender.clear | begins_sum),
            crc.valid.eq(intake.content.valid | sender.content.valid | summing & walk.byte.valid),
            crc.data.eq(Mux(listens, intake.content.payload, Mux(summing, walk.byte.payload, sender.content.payload))),
            walk.ask.eq(sender.ask | summing),
            sender.word.eq(crc.crc),
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
                    state.of_registers.eq(0),
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
            carry_out(m, state, begins_sum, summing, interrupt=self.interrupt)
            with m.State("ANSWER"):
                m.d.comb += [intake.answers.eq(1), sender.start.eq(1), check.remember.eq(state.remembers)]
                choose_word(m, cycles)
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
        m.d.comb += [listens.eq(fsm.ongoing("LISTEN")), parts.queue.takes.eq(listens)]
