"""The bridge and its walk over the arena, proved for all frames, registers, ranges and paces: only what is asked for
is done, once, and each state is left in bounded time."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal

from cocotb_tests.support.proofs import Proof, ProofError, broken, inside, leave_out, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.link.operations import AFTER, RULES, Operation, Status
from lutterfly.hdl.link import bridge, frames
from lutterfly.hdl.link.frames import CHECK_LATENCY, AnswerKind

pytestmark = needs_yosys
#: Small, for the solver; nothing depends on them.
SIZES = {"clock_hz": 1_000_000, "arena_bytes": 16, "register_bits": 4, "rate_timeout": 16}
ONCE = [operation for operation, rule in RULES.items() if rule.once]
OF_ARENA = (Operation.READ, Operation.WRITE, Operation.CHECKSUM)
#: The latest first: each state is left for one before it, or for listening.
STATES = ("LEAVE", "SEND", "ANSWER", "WAIT", "SUM", "BEGIN_SUM", "WRITE", "ACCESS", "DECIDE", "CHECK")


class BridgeProof(Proof):
    """Whatever the parts say, at whatever pace."""

    def __init__(self, module=bridge) -> None:
        super().__init__()
        self.unit = module.Bridge(**SIZES)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        self.fsm, self.state, self.wait = found.fsm, found.state, found.wait
        parts = found.m.submodules
        self.intake, self.check, self.port, self.walk = parts.intake, parts.check, parts.port, parts.walk
        self.sender, self.encoder = parts.sender, parts.encoder
        self.judge = inside(self.check)
        leave_out(self.intake, self.port, self.walk, self.sender, self.encoder, parts.crc, parts.outgoing, parts.queue)
        outputs = {
            "frame_ends": self.intake.frame.valid,
            "frame_is_good": self.intake.frame.payload,
            "word": self.intake.tail[:32],
            "register_done": self.port.done,
            "register_okay": self.port.okay,
            "written": self.walk.written,
            "byte_comes": self.walk.byte.valid,
            "last": self.walk.last,
            "answer_done": self.sender.done,
            "asks": self.sender.ask,
            "walk_asks": self.walk.host.request.valid,
            "walks_to": self.walk.host.request.payload.address,
            "clears": self.sender.clear,
            "encoder_waits": self.encoder.input.ready,
            "outgoing_waits": parts.outgoing.output.valid,
            "interrupt": unit.interrupt,
        }
        m.d.comb += [signal.eq(self.free(len(signal), name=name)) for name, signal in outputs.items()]
        # What has been gathered stays while it is carried out; the header is shifted away as it is sent.
        listens = self.fsm.ongoing("LISTEN")
        stays = Cat(self.fsm.ongoing(name) for name in STATES[2:]).any()
        for name, signal in (
            ("header", self.intake.header.as_value()),
            ("data_bytes", self.intake.data_bytes),
            ("crc", self.intake.tail[32:]),
        ):
            held = Signal(len(signal), name=f"held_{name}")
            value = self.free(len(signal), name=name)
            m.d.sync += held.eq(signal)
            m.d.comb += signal.eq(Mux(stays, held, value))
        m.d.comb += [
            Assume(listens | ~self.intake.frame.valid),
            # The sender asks for bytes of an answer that has some, and the walk while it is asked or writes.
            Assume(~self.sender.ask | self.fsm.ongoing("SEND") & (self.state.kind == AnswerKind.ARENA)),
            Assume(~self.walk.host.request.valid | self.walk.ask | self.fsm.ongoing("WRITE")),
        ]
        self.check_beginnings(m)
        self.check_once(m)
        self.check_time(m)
        return m

    def check_beginnings(self, m: Module) -> None:
        """No register and no byte of the arena is asked for unless the frame was good."""
        good, listens = Signal(), self.fsm.ongoing("LISTEN")
        with m.If(listens):
            m.d.sync += good.eq(self.intake.frame.valid & self.intake.frame.payload)
        operates = Cat(self.fsm.ongoing(name) for name in STATES[3:]).any()
        asks = self.port.start | self.walk.write | self.walk.ask
        header, host, decides = self.intake.header, self.unit.host.request, self.fsm.ongoing("DECIDE")
        m.d.comb += [
            # A register is written where the request decides it, and none while the arena is asked.
            Assert(~(self.port.start & self.port.write) | decides & (header.operation == Operation.WRITE_REGISTER)),
            Assert(~self.port.start | decides | self.state.of_registers & self.sender.ask & ~host.valid),
            Assert(~host.valid | self.walk.ask & ~self.state.of_registers | self.fsm.ongoing("WRITE")),
            Assert(~self.state.of_registers | (self.state.kind == AnswerKind.ARENA)),
            Assert(~self.state.of_registers | listens | Cat(self.fsm.ongoing(name) for name in STATES[:3]).any()),
            Cover(self.port.start & ~decides),
            Assert(~operates | good),
            Assert(~(self.port.start | self.walk.write) | good),
            Assert(~(self.walk.ask & ~self.sender.ask) | good),
            # A NAK is one, and has no data, so that its sender asks for none.
            Assert(listens | good | self.state.is_nak & (self.state.kind == AnswerKind.NOTHING)),
            Assert(listens | ~good | ~self.state.is_nak),
            Assert(listens | good | ~self.state.remembers & ~self.state.sets_rate),
            Cover(asks & good),
        ]

    def check_once(self, m: Module) -> None:
        """What is like the last good frame, and changes something, does nothing; nor does another of its number, or
        one that is to come after another than the last one, or after one that was refused."""
        header, crc = self.intake.header, self.intake.tail[32:]
        has_last, sequence, last_crc = Signal(), Signal(16), Signal(32)
        decides, check = self.fsm.ongoing("DECIDE"), self.check
        identifies = header.operation == Operation.IDENTIFY
        once = Cat(header.operation == operation for operation in ONCE).any()
        same = has_last & (sequence == header.sequence) & ~identifies
        state, judge, answers = self.state, self.judge, self.fsm.ongoing("ANSWER")
        status, next_number = Signal(8), Signal(16)
        m.d.comb += next_number.eq(sequence + 1)
        with m.If(answers & state.remembers):
            m.d.sync += status.eq(state.status)
        follows = has_last & (header.sequence == next_number) & (status == Status.OK)
        misses = (header.status == AFTER) & ~identifies & ~same & ~follows
        repeated, other = same & (crc == last_crc) & once, same & (crc != last_crc) | misses
        with m.If(decides & identifies):
            m.d.sync += has_last.eq(0)
        with m.Elif(decides & ~same & ~misses):
            m.d.sync += [has_last.eq(1), sequence.eq(header.sequence), last_crc.eq(crc)]
        may = Signal()
        with m.If(decides):
            m.d.sync += may.eq(~repeated & ~other)
        does = Cat(self.fsm.ongoing(name) for name in ("WRITE", "ACCESS", "SUM", "BEGIN_SUM", "WAIT")).any()
        was_answered = Signal(init=1)
        m.d.sync += was_answered.eq(answers)
        m.d.comb += [
            # The check has a register of it, which follows a cycle later.
            Assert(was_answered | (judge.following == (judge.last_sequence + 1)[:16])),
            Assert(check.last_status == status),
            Assert(~self.port.start | ~decides | ~repeated & ~other),
            Assert(~does | may),
            Assert(~self.state.sets_rate | may | self.fsm.ongoing("LISTEN")),
            Assert(~decides | (check.repeated == repeated) | identifies),
            Assert(~decides | (check.other == other) | identifies),
            Cover(decides & repeated),
            Cover(decides & other),
            Cover(decides & misses),
            Cover(decides & follows & (header.status == AFTER)),
            Cover(self.fsm.ongoing("WRITE") & (has_last != 0)),
            Cover(answers & (self.state.status == Status.SEQUENCE)),
        ]
        m.d.comb += Assert(decides | (self.wait <= CHECK_LATENCY) | ~self.fsm.ongoing("CHECK"))
        with m.If(self.fsm.ongoing("CHECK") | decides):
            m.d.comb += [
                Assert(~state.remembers & ~state.sets_rate & (state.kind == AnswerKind.NOTHING)),
                Assert(~decides | (self.wait == (1 << len(self.wait)) - 1)),
            ]
        # Registers of the check: what was carried out is remembered with its answer.
        with m.If(~does & ~answers):
            m.d.comb += [
                Assert(judge.has_last == has_last),
                Assert(~has_last | (judge.last_sequence == sequence) & (judge.last_crc == last_crc)),
            ]
        with m.If(does | answers):
            m.d.comb += Assert(~self.state.remembers | may & ~identifies)
            with m.If(self.state.remembers):
                m.d.comb += Assert(has_last & (sequence == header.sequence) & (last_crc == crc))
            with m.Else():
                m.d.comb += [
                    Assert(~does),
                    Assert(judge.has_last == has_last),
                    Assert(~has_last | (judge.last_sequence == sequence) & (judge.last_crc == last_crc)),
                ]

    def check_time(self, m: Module) -> None:
        """Each state is left for one nearer to listening, as soon as the part says so that it waits for, or counts."""
        listens = self.fsm.ongoing("LISTEN")
        number, before = Signal(range(len(STATES) + 1)), Signal(range(len(STATES) + 1))
        for place, name in enumerate(STATES, 1):
            with m.If(self.fsm.ongoing(name)):
                m.d.comb += number.eq(place)
        left, wait, runs = Signal(32), Signal.like(self.wait), Signal()
        waited = Signal()
        part_says = {
            "LEAVE": self.encoder.input.ready & ~self.encoder.input.valid,
            "SEND": self.sender.done,
            "SUM": self.walk.byte.valid & self.walk.last,
            "WRITE": self.walk.written,
            "ACCESS": self.port.done,
        }
        m.d.sync += [before.eq(number), runs.eq(1), left.eq(self.state.left), wait.eq(self.wait), waited.eq(0)]
        for name, says in part_says.items():
            with m.If(self.fsm.ongoing(name)):
                m.d.sync += waited.eq(~says)
        counts = Signal()
        m.d.comb += [
            counts.eq(self.fsm.ongoing("WAIT") & (self.state.left == left - 1) & (left != 0)),
            Assert(listens == (number == 0)),
            Assert(
                ~runs
                | (before == 0)
                | (number < before)
                | (number == before)
                & (waited | counts | self.fsm.ongoing("CHECK") & (self.wait == wait - 1) & (wait != 0))
            ),
            Cover(listens & (before == 1)),
        ]


def test_bridge(tmp_path: Path) -> None:
    prove(BridgeProof(), tmp_path, depth=5, cover_depth=20)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # A damaged frame is carried out.
        ("with m.If(intake.frame.payload):", "with m.If(1):"),
        ("check.remember.eq(state.remembers)", "check.remember.eq(0)"),
        pytest.param("sync += wait.eq(wait - 1)", "sync += wait.eq(wait)", marks=pytest.mark.regress),
        pytest.param("state.is_nak.eq(~intake.frame.payload)", "state.is_nak.eq(0)", marks=pytest.mark.regress),
        pytest.param("state.remembers.eq(0)", "state.remembers.eq(1)", marks=pytest.mark.regress),
    ],
)
def test_a_broken_bridge_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(BridgeProof(broken(bridge, old, new)), tmp_path, depth=24, mode="bounded")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("with m.Elif(check.repeated & ~identifies):", "with m.Elif(0):"),
        ("with m.If(check.other & ~identifies):", "with m.If(0):"),
        pytest.param("check.forget.eq(identifies)", "check.forget.eq(0)", marks=pytest.mark.regress),
        pytest.param("state.left.eq(state.left - 1), ", "", marks=pytest.mark.regress),
        pytest.param("state.remembers.eq(~identifies)", "state.remembers.eq(1)", marks=pytest.mark.regress),
    ],
)
def test_a_broken_operation_is_found(old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = broken(bridge, old, new)
    for name in ("carry_out", "decide"):
        monkeypatch.setattr(bridge, name, getattr(module, name))
    with pytest.raises(ProofError, match="fails after reset"):
        prove(BridgeProof(), tmp_path, depth=24, mode="bounded")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Mux(same_number, ~same_crc, misses)", "same_number & ~same_crc"),
        (" & (self.last_status == Status.OK)", ""),
        ("following.eq(last_sequence + 1)", "following.eq(last_sequence)"),
    ],
)
def test_a_broken_check_is_found(old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "RequestCheck", broken(frames, old, new).RequestCheck)
    with pytest.raises(ProofError, match="fails after reset"):
        prove(BridgeProof(), tmp_path, depth=24, mode="bounded")


# The walk over the arena, proved for every range and pace: only bytes of the range are asked for, each once and in
# order, and its end is said with the last one.

WALK_BITS = 4


class WalkProof(Proof):
    """A user that asks for no more than a range has."""

    def __init__(self, module=bridge) -> None:
        super().__init__()
        self.unit = module.ArenaWalk(WALK_BITS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        found = inside(unit)
        request, answer = unit.host.request, unit.host.answer
        for name, signal in {
            "load": unit.load,
            "address": unit.address,
            "length": unit.length,
            "ask": unit.ask,
            "write": unit.write,
            "buffered": unit.buffered,
            "ready": request.ready,
            "answer_comes": answer.valid,
            "answer": answer.payload,
        }.items():
            m.d.comb += signal.eq(self.free(len(signal), name=name))
        rests, reads, fetches, writes = (found.fsm.ongoing(name) for name in ("REST", "READ", "FETCH", "WRITE"))
        # The range, and its bytes that are done; a read that has been taken is answered later.
        base, length, done = Signal(WALK_BITS), Signal(WALK_BITS + 1), Signal(WALK_BITS + 1)
        owes = Signal()
        takes = request.valid & request.ready
        moves = unit.byte.valid | writes & takes
        m.d.sync += [done.eq(done + moves), owes.eq(owes & ~answer.valid | takes & ~request.payload.write)]
        with m.If(unit.load):
            m.d.sync += [base.eq(unit.address), length.eq(unit.length), done.eq(0)]
        waits, was_waiting, before = Signal(3), Signal(), Signal.like(request.payload)
        m.d.sync += [
            waits.eq(Mux(fetches, waits + 1, 0)),
            was_waiting.eq(request.valid & ~request.ready),
            before.eq(request.payload),
        ]
        m.d.comb += [
            Assume(~unit.load | rests & ~unit.ask & ~unit.write),
            Assume(~unit.load | (unit.length != 0) & (unit.address + unit.length <= 1 << WALK_BITS)),
            Assume(~(unit.ask | unit.write) | (done < length)),
            Assume(~(unit.ask & unit.write)),
            Assume(~answer.valid | owes),
            # Only the range, in order; what is offered stays.
            Assert(~request.valid | (request.payload.address == base + done) & (done < length)),
            Assert(~was_waiting | request.valid & (request.payload == before)),
            Assert(~moves | (unit.last == (done + 1 == length))),
            Assert(unit.byte.valid == answer.valid),
            Assert(unit.written == (writes & takes & (done + 1 == length))),
            # It is soon done where the arena is, and asks for nothing of its own accord.
            Assert(~rests | ~request.valid & ~owes),
            Assert(~reads | request.valid ^ owes),
            Assert(~writes | request.valid & ~owes),
            Assert(~fetches | ~request.valid & ~owes & (waits <= 2) & (waits + found.wait == 2)),
            Assert(~(reads | fetches | writes) | (done < length)),
            Assert(~reads | ~request.payload.write),
            Assert(~(fetches | writes) | request.payload.write),
            # Registers.
            Assert((length == 0) | (done == length) | (found.left == (length - done - 1)[:WALK_BITS])),
            Assert((length == 0) | (base + length <= 1 << WALK_BITS)),
            Assert((length == 0) | (request.payload.address == (base + done)[:WALK_BITS])),
            Assert((length == 0) | (unit.place == Cat(done)[: len(unit.place)])),
            Assert(done <= length),
            Cover(unit.written & (length == 2)),
            Cover(unit.byte.valid & unit.last & (length == 2)),
        ]
        return m


def test_walk(tmp_path: Path) -> None:
    prove(WalkProof(), tmp_path, depth=5, cover_depth=20)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("left.eq(left - 1)", "left.eq(left)"),
        ("self.last.eq(left == 0)", "self.last.eq(left == 1)"),
        pytest.param("request.payload.address + 1", "request.payload.address + 2", marks=pytest.mark.regress),
        pytest.param("[wait.eq(wait - 1), request", "[request", marks=pytest.mark.regress),
    ],
)
def test_a_broken_walk_is_found(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="fails after reset"):
        prove(WalkProof(broken(bridge, old, new)), tmp_path, depth=16, mode="bounded")
