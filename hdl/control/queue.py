"""A command queue: reads commands, checks them, takes and gives tokens, and hands them to units."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...golden import isa
from ...golden.config import Config
from ...golden.isa import Opcode
from ...golden.units import ErrorCode, Queue, Unit
from ..parts.isa import INDEX_BITS, ErrorReport, report_error, view
from .dispatch import Dispatch, offers
from .flight import UNITS, Flight
from .legality import Legality
from .standing import Standing
from .tokens import SIGNAL_BITS, Tokens

__all__ = ["CommandQueue"]


class _Parts(NamedTuple):
    flight: Flight
    tokens: Tokens
    legality: Legality
    dispatch: Dispatch


class CommandQueue(wiring.Component):
    """Begin commands in order, at most one every ``COMMAND_BITS / data_bits`` + 5 cycles; give tokens as they complete.

    A command is read and checked while those before it run. Commands complete in order: a SYNC completes with the
    command before it.

    Parameters
    ----------
    config : Config
    queue : Queue
        Whose commands are legal here.

    Members
    -------
    start : In(1)
        Begin a program. Only while ``idle``.
    halt : In(1)
        Begin no more commands.
    words : In(stream of data_bits)
        The commands, lowest word first; ``ready`` depends on registers only.
    exhausted : In(1)
        There are no more words.
    load : Out(stream of load_command_layout), store : Out(stream of STORE)
        Of the DMA queue. Payloads are registers.
    barrier : Out(stream of BARRIER)
        Of the DMA queue, with several cores.
    compute : Out(stream of COMPUTE)
        Of the compute queue.
    finished : In(1)
        A unit has completed a command.
    granted : In(8), grant : Out(8)
        Tokens from and to the other queue in this cycle. Registered.
    tokens_left : Out(1)
        There are tokens that nobody has taken.
    done : Out(1)
        The program has ended; low from the start on.
    began, completed : Out(1)
        A command begins, or completes; each command does both.
    in_flight : Out(1)
        A command has begun and not completed.
    stalled : Out(1)
        The next command waits for tokens.
    progress : Out(1)
    standing : Out(Standing)
    error : Out(ErrorReport)
    """

    def __init__(self, config: Config, queue: Queue):
        self.config = config
        self.queue = queue
        self.opcodes = isa.opcodes(queue, config.cores)
        super().__init__(
            {
                "start": In(1),
                "halt": In(1),
                "words": In(stream.Signature(config.axi.data_bits)),
                "exhausted": In(1),
                **offers(queue, config.cores),
                "finished": In(1),
                "granted": In(SIGNAL_BITS),
                "grant": Out(SIGNAL_BITS),
                "tokens_left": Out(1),
                "done": Out(1),
                "began": Out(1),
                "completed": Out(1),
                "in_flight": Out(1),
                "stalled": Out(1),
                "progress": Out(1),
                "standing": Out(Standing),
                "error": Out(ErrorReport),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # The next command.
        command = Signal(isa.COMMAND_BITS, reset_less=True)
        index = Signal(INDEX_BITS)
        header = view(isa.SYNC, command)
        parts = self._elaborate_parts(m, command)
        reads, checked = self._elaborate_states(m, parts, header, index, self._elaborate_words(m, command))

        enough, may_begin, in_turn = Signal(), Signal(), self._in_turn(m, header, parts.flight.idle)
        m.d.sync += [
            # Both of the cycle before: while a command waits to begin, they can only become true.
            enough.eq(parts.tokens.enough),
            may_begin.eq(parts.tokens.enough & in_turn & parts.flight.begun.ready),
        ]
        m.d.comb += [
            self.began.eq(checked & parts.legality.legal & may_begin & ~self.halt),
            self.stalled.eq(checked & parts.legality.legal & ~enough),
            parts.dispatch.index.eq(index),
            self.standing.index.eq(index),
            self.standing.missing.eq(reads),
            self.standing.waiting.eq(checked),
        ]
        return m

    def _elaborate_states(self, m: Module, parts: _Parts, header: data.View, index: Signal, last: Value) -> tuple:
        """The states of a command; returns whether one is read, and whether the one at hand has been looked at."""
        moved = Signal()
        m.d.comb += self.progress.eq(moved | self.began | self.completed)
        m.d.sync += self.error.valid.eq(0)
        with m.FSM(name="queue") as fsm:
            with m.State("IDLE"), m.If(self.start):
                m.d.sync += [index.eq(0), self.done.eq(0)]
                m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.words.ready.eq(1)
                with m.If(self.words.valid):
                    m.d.comb += moved.eq(1)
                    with m.If(last):
                        m.next = "SETTLE"
                with m.Elif(self.exhausted):
                    m.d.sync += report_error(self.error, ErrorCode.PROGRAM_END, self.queue.unit, index)
                    m.next = "STOP"
            for state, following in (("SETTLE", "GATHER"), ("GATHER", "CHECK"), ("CHECK", "BEGIN")):
                with m.State(state):
                    m.next = following
            with m.State("BEGIN"):
                with m.If(~parts.legality.legal):
                    m.d.sync += report_error(self.error, parts.legality.error, self.queue.unit, index)
                    m.next = "STOP"
                with m.If(self.began), m.Switch(header.opcode):
                    with m.Case(Opcode.SYNC):
                        m.d.sync += index.eq(index + 1)
                        m.next = "READ"
                    with m.Case(Opcode.END):
                        m.next = "DRAIN"
                    with m.Default():
                        m.d.comb += parts.dispatch.offer.eq(1)
                        m.d.sync += index.eq(index + 1)
                        m.next = "OFFER"
            with m.State("OFFER"), m.If(parts.dispatch.accepted):
                m.d.comb += moved.eq(1)
                m.next = "READ"
            with m.State("DRAIN"), m.If(parts.flight.idle):
                m.d.sync += self.done.eq(1)
                m.next = "IDLE"
            # Until the soft reset.
            with m.State("STOP"):
                pass
        return fsm.ongoing("READ"), fsm.ongoing("BEGIN")

    def _elaborate_parts(self, m: Module, command: Signal) -> _Parts:
        header = view(isa.SYNC, command)
        m.submodules.flight = flight = Flight(self.queue.unit.name)
        m.submodules.tokens = tokens = Tokens(self.queue.unit.name)
        m.submodules.legality = legality = Legality(self.config, self.opcodes)
        m.submodules.dispatch = dispatch = Dispatch(self.queue, self.config.cores)
        for name in dispatch.names:
            connect(m, getattr(dispatch, name), flipped(getattr(self, name)))
        m.d.comb += [
            legality.command.eq(command),
            dispatch.command.eq(command),
            tokens.granted.eq(self.granted),
            tokens.needed.eq(header.wait),
            tokens.take.eq(self.began),
            flight.start.eq(self.start),
            flight.finished.eq(self.finished),
            flight.begun.valid.eq(self.began),
            flight.begun.payload.signal.eq(header.signal),
            flight.begun.payload.unit.eq(self._unit_of(header.opcode)),
            self.tokens_left.eq(tokens.left),
            self.grant.eq(flight.grant),
            self.completed.eq(flight.completed),
            self.in_flight.eq(~flight.idle),
            self.standing.in_flight.eq(flight.oldest.valid),
            self.standing.unit.eq(flight.oldest.payload.unit),
            self.standing.oldest.eq(flight.index),
        ]
        return _Parts(flight, tokens, legality, dispatch)

    def _elaborate_words(self, m: Module, command: Signal) -> Value:
        """Put the command together; returns whether the word at hand is its last."""
        words = isa.COMMAND_BITS // self.config.axi.data_bits
        position = Signal(range(words))
        # A register on the way, so that the words' arrival does not have to reach all of the command in one cycle.
        word, takes = Signal.like(self.words.payload, reset_less=True), Signal(words)
        arrives = self.words.valid & self.words.ready
        m.d.sync += [word.eq(self.words.payload), takes.eq(arrives << position)]
        with m.If(arrives):
            m.d.sync += position.eq(position + 1)
        for number, take in enumerate(takes):
            with m.If(take):
                m.d.sync += command.word_select(number, len(word)).eq(word)
        return position == words - 1

    def _in_turn(self, m: Module, header, idle):
        """Whether the commands in flight let the next one begin."""
        if self.queue is Queue.COMPUTE:
            # Commands go to one unit, which obeys `after` itself.
            return 1
        # LOAD and FILL are done by one unit, STORE by another: what one of them writes, the other may be about to read.
        last_was_store, is_transfer, is_store = Signal(), Signal(), Signal()
        m.d.comb += [
            is_transfer.eq((header.opcode != Opcode.SYNC) & (header.opcode != Opcode.END)),
            is_store.eq(header.opcode == Opcode.STORE),
        ]
        may_overlap = is_store == last_was_store
        with m.If(self.began & is_transfer):
            m.d.sync += last_was_store.eq(is_store)
            if Opcode.BARRIER in self.opcodes:
                # Alone: what is behind it may use what other cores have stored.
                is_barrier, last_was_barrier = header.opcode == Opcode.BARRIER, Signal()
                m.d.sync += last_was_barrier.eq(is_barrier)
                may_overlap &= ~is_barrier & ~last_was_barrier
        return idle | (~header.after & (~is_transfer | may_overlap))

    def _unit_of(self, opcode):
        """The unit of the command to begin; NONE completes by itself."""
        unit = Unit.NONE
        for code in self.opcodes:
            if code in UNITS:
                unit = Mux(opcode == code, UNITS[code], unit)
        return unit
