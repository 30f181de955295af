"""The bridge, proved for all frames, registers, arenas and lines: nothing begins without a good frame, no request that
changes something is carried out twice, and it listens again in bounded time.

What the frames are, and which are good, is proved of the intake; here the intake says anything. So do CRC and encoder.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal, Value

from lutterfly.golden.link.frames import HEADER_BYTES
from lutterfly.golden.link.operations import RULES, Operation, Status
from lutterfly.hdl.link import bridge, operations
from lutterfly.hdl.link.answer_sender import AnswerKind
from proofs.formal import Proof, broken, inside, leave_out, needs_yosys
from proofs.prove import ProofError, prove

pytestmark = needs_yosys
#: Small, for the solver; nothing depends on it.
ARENA_BYTES, REGISTER_BITS, CLOCK_HZ, RATE_TIMEOUT = 16, 4, 1_000_000, 16
#: Cycles within which registers, arena and encoder do their part.
PATIENCE = 2
ONCE = [operation for operation, rule in RULES.items() if rule.once]
#: In the order in which they can follow one another.
STATES = (
    *("LISTEN", "LEAVE", "SEND", "ANSWER", "WAIT", "SUM", "BEGIN_SUM", "WRITE", "ACCESS", "DECIDE", "CHECK"),
)
SENDING = ("REST", "END", "CLOSE", "SUM_LAST", "SUM", "WORD", "IDENTITY", "BYTE", "ASK", "HEADER")


class BridgeProof(Proof):
    """Free frames; surroundings that take their time, but no longer than they may."""

    def __init__(self, module=bridge) -> None:
        super().__init__()
        self.unit = module.Bridge(
            clock_hz=CLOCK_HZ, arena_bytes=ARENA_BYTES, register_bits=REGISTER_BITS, rate_timeout=RATE_TIMEOUT
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        self.found = inside(unit)
        parts = self.found.m.submodules
        self.parts = SimpleNamespace(
            **{name: getattr(parts, name) for name in ("intake", "check", "port", "walk", "sender", "encoder", "crc")}
        )
        parts = self.parts
        leave_out(parts.intake, parts.encoder, parts.crc)
        self.fsm = self.found._elaborate_control.states
        self.sending = inside(parts.sender).states
        self.walking = inside(parts.walk).states
        self.judge = inside(parts.check)
        inside(parts.port)
        self.free_surroundings(m)
        self.check_beginnings(m)
        self.check_once(m)
        return m

    def within(self, m: Module, asks: Value, answers: Value, name: str) -> None:
        """What is asked for comes within the time that it may take."""
        waits = Signal(4, name=f"{name}_waits")
        m.d.sync += waits.eq(Mux(asks & ~answers, waits + 1, 0))
        m.d.comb += [Assume(waits < PATIENCE), Assert(waits <= PATIENCE)]

    def free_surroundings(self, m: Module) -> None:
        unit, intake, encoder = self.unit, self.parts.intake, self.parts.encoder
        bus, host = unit.control, unit.host
        listens = self.fsm.ongoing("LISTEN")
        for port, names in (
            (bus, ("awready", "wready", "arready", "bvalid", "rvalid", "bresp", "rresp", "rdata")),
            (host.request, ("ready",)),
            (host.answer, ("valid", "payload")),
            (unit.received, ("valid",)),
            (encoder.input, ("ready",)),
        ):
            for name in names:
                signal = getattr(port, name)
                m.d.comb += signal.eq(self.free(len(signal), name=f"{name}_{id(port) % 9973}"))
        m.d.comb += [
            unit.interrupt.eq(self.free(name="interrupt")),
            intake.frame.valid.eq(self.free(name="frame_ends")),
            intake.frame.payload.eq(self.free(name="frame_is_good")),
            Assume(listens | ~intake.frame.valid),
        ]
        # The header stays until it is answered; then it is shifted.
        self.header = Signal(intake.header.shape())
        self.crc, self.data_bytes = Signal(32), Signal(11)
        header, crc, data_bytes = (
            self.free(shape, name=name)
            for shape, name in ((intake.header.shape(), "next_header"), (32, "next_crc"), (11, "next_data_bytes"))
        )
        with m.If(listens):
            m.d.sync += [self.header.eq(header), self.crc.eq(crc), self.data_bytes.eq(data_bytes)]
        m.d.comb += [
            intake.header.eq(self.header),
            intake.tail.eq(Cat(self.free(32, name="word"), self.crc)),
            intake.data_bytes.eq(self.data_bytes),
        ]

    def check_beginnings(self, m: Module) -> None:
        """No register and no byte of the arena is asked for without a good frame."""
        unit, intake, bus = self.unit, self.parts.intake, self.unit.control
        allowed = Signal()
        ends = intake.frame.valid & self.fsm.ongoing("LISTEN")
        with m.If(ends):
            m.d.sync += allowed.eq(intake.frame.payload)
        listens = self.fsm.ongoing("LISTEN")
        operates = Cat(self.fsm.ongoing(name) for name in STATES[4:]).any()
        asks = bus.awvalid | bus.wvalid | bus.arvalid | unit.host.request.valid
        m.d.comb += [
            Assert(~(self.parts.port.start | self.parts.walk.write) | allowed),
            Assert(~operates | allowed),
            Assert(~unit.host.request.valid | allowed & ~listens),
            # A NAK has no data.
            Assert(allowed | listens | (self.found.state.kind == AnswerKind.NOTHING)),
            Assert(allowed | listens | self.found.state.is_nak),
            Cover(asks),
        ]
        pending = Signal()
        m.d.sync += pending.eq(self.parts.port.start | pending & ~(bus.bvalid | bus.rvalid))

    def check_once(self, m: Module) -> None:
        """A request that changes something, and is like the last good one, does nothing; nor does another one of its
        number."""
        header, check = self.header, self.parts.check
        decides = self.fsm.ongoing("DECIDE")
        has_last, sequence, crc = Signal(), Signal(16), Signal(32)
        identifies = header.operation == Operation.IDENTIFY
        same = has_last & (sequence == header.sequence) & ~identifies
        once = Cat(header.operation == operation for operation in ONCE).any()
        does = self.parts.port.start | self.fsm.ongoing("BEGIN_SUM") | self.parts.walk.write
        with m.If(decides & identifies):
            m.d.sync += has_last.eq(0)
        with m.Elif(decides & ~same):
            m.d.sync += [has_last.eq(1), sequence.eq(header.sequence), crc.eq(self.crc)]
        was_same, was_repeated = Signal(), Signal()
        m.d.sync += [was_same.eq(same & (crc != self.crc)), was_repeated.eq(same & (crc == self.crc) & once)]
        judged, last = self.found.wait == 0, self.judge
        m.d.comb += [
            Assert(~decides | ~(was_same | was_repeated) | ~self.parts.port.start),
            Assert(~does | ~decides | ~same | (crc == self.crc) & ~once),
            Cover(decides & same & (crc == self.crc) & once),
            Cover(decides & same & (crc != self.crc)),
            Cover(self.parts.port.start & (header.operation == Operation.WRITE_REGISTER)),
            Cover(self.fsm.ongoing("ANSWER") & (self.found.state.status == Status.SEQUENCE)),
        ]
        del judged, last
