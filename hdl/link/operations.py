"""What the bridge does with a request, operation by operation: states of its state machine."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal, Value

from ...golden.link.operations import Operation, Status
from .answer_sender import AnswerKind

__all__ = ["carry_out", "choose_word", "decide"]


def decide(m: Module, state: SimpleNamespace) -> None:
    """What becomes of a good frame: within the state in which that is decided."""
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
            with m.Case(Operation.READ):
                m.d.sync += state.kind.eq(AnswerKind.ARENA)
            with m.Case(Operation.WRITE):
                m.next = "WRITE"
            with m.Case(Operation.CHECKSUM):
                m.next = "BEGIN_SUM"
            with m.Case(Operation.SET_RATE):
                m.d.sync += state.sets_rate.eq(1)
            with m.Case(Operation.WAIT):
                m.next = "WAIT"


def carry_out(
    m: Module, state: SimpleNamespace, begins_sum: Signal, summing: Signal, *, interrupt: Value, received: Value
) -> None:
    """The states of the operations that take their time."""
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
        m.d.sync += [state.left.eq(state.left - 1), state.kind.eq(AnswerKind.WORD)]
        with m.If(interrupt | (state.left == 0) | received):
            m.next = "ANSWER"


def choose_word(m: Module, cycles: Value, interrupt: Value) -> None:
    """The word of an answer that has one: within the state in which it begins. That of a CHECKSUM is the CRC."""
    parts = m.submodules
    with m.Switch(parts.intake.header.operation):
        with m.Case(Operation.IDENTIFY):
            m.d.comb += parts.sender.word.eq(cycles)
        with m.Case(Operation.READ_REGISTER):
            m.d.comb += parts.sender.word.eq(parts.port.value)
        with m.Case(Operation.WAIT):
            m.d.comb += parts.sender.word.eq(interrupt)
