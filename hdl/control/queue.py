"""A command queue: reads and checks commands, takes and gives tokens, and issues commands to units."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...golden import isa
from ...golden.config import Config
from ...golden.engines.engine import Engine
from ...golden.isa import Opcode, fields_end
from ...golden.units import ErrorCode, Queue, Unit
from ..dma.load import load_command_layout
from ..parts.fifo import Buffer, Fifo, push_signature
from ..parts.isa import INDEX_BITS, ErrorReport, command_shape, report_error, view
from ..parts.pipeline import Assertions
from .supervisor import QueueStatus

__all__ = [
    "SIGNAL_BITS",
    "UNITS",
    "CommandQueue",
    "Dispatch",
    "Flight",
    "Legality",
    "Tokens",
    "flight_layout",
    "offers",
]


# Commands on their way from a queue to its units.


def offers(queue: Queue, cores: int) -> dict[str, wiring.Member]:
    """Return the streams from a queue to its units, by name; with several cores there are barriers."""
    if queue is Queue.DMA:
        shapes = {"load": load_command_layout(), "store": command_shape(isa.STORE)}
        if cores > 1:
            shapes["barrier"] = command_shape(isa.BARRIER)
    else:
        shapes = {"compute": command_shape(isa.COMPUTE)}
    return {name: Out(stream.Signature(shape)) for name, shape in shapes.items()}


class Dispatch(wiring.Component):
    """Offer a command to its unit until that takes it.

    Parameters
    ----------
    queue : Queue
    cores : int
        Cores of the accelerator.

    Members
    -------
    command : In(COMMAND_BITS)
        Held from ``offer`` to ``accepted``.
    index : In(INDEX_BITS)
        Index of the command, with ``offer``.
    offer : In(1)
        The command is to be offered from the next cycle on.
    accepted : Out(1)
        Its unit takes it.
    load : Out(stream of load_command_layout), store : Out(stream of STORE)
        Commands of the DMA queue; payloads are registers.
    barrier : Out(stream of BARRIER)
        Barriers of the DMA queue, with several cores.
    compute : Out(stream of COMPUTE)
        Commands of the compute queue.
    """

    def __init__(self, queue: Queue, cores: int):
        self.is_dma = queue is Queue.DMA
        self.names = tuple(offers(queue, cores))
        super().__init__(
            {
                "command": In(isa.COMMAND_BITS),
                "index": In(INDEX_BITS),
                "offer": In(1),
                "accepted": Out(1),
                **offers(queue, cores),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        index = Signal(INDEX_BITS, reset_less=True)
        ports = [getattr(self, name) for name in self.names]
        opcode = view(isa.SYNC, self.command).opcode
        is_store = opcode == Opcode.STORE
        m.d.comb += self.accepted.eq(Cat(port.valid & port.ready for port in ports).any())
        with m.If(self.accepted):
            m.d.sync += [port.valid.eq(0) for port in ports]
        with m.If(self.offer):
            m.d.sync += index.eq(self.index)
            if "barrier" in self.names:
                is_barrier = opcode == Opcode.BARRIER
                m.d.sync += [
                    self.load.valid.eq(~is_store & ~is_barrier),
                    self.store.valid.eq(is_store),
                    self.barrier.valid.eq(is_barrier),
                ]
            elif self.is_dma:
                m.d.sync += [self.load.valid.eq(~is_store), self.store.valid.eq(is_store)]
            else:
                m.d.sync += self.compute.valid.eq(1)

        # These are views of one register, so that nothing is copied.
        def decode(target: data.View, opcode: Opcode) -> None:
            fields = view(isa.FORMATS[opcode], self.command)
            m.d.comb += target.index.eq(index)
            m.d.comb += [target[name].eq(fields[name]) for name in target.shape().members if name != "index"]

        if self.is_dma:
            m.d.comb += self.load.payload.is_fill.eq(view(isa.FILL, self.command).opcode == Opcode.FILL)
            decode(self.load.payload.load, Opcode.LOAD)
            decode(self.load.payload.fill, Opcode.FILL)
            decode(self.store.payload, Opcode.STORE)
            if "barrier" in self.names:
                decode(self.barrier.payload, Opcode.BARRIER)
        else:
            decode(self.compute.payload, Opcode.COMPUTE)
        return m


# The commands that a queue refuses, and the reason.


class Legality(wiring.Component):
    """Check a command: its opcode, its engine, and the bits that must be zero.

    Parameters
    ----------
    config : Config
    opcodes : sequence of Opcode
        The legal opcodes.

    Members
    -------
    command : In(COMMAND_BITS)
        Held for two cycles.
    legal : Out(1)
        The command may begin. Registered, two cycles late.
    error : Out(ErrorCode)
        The reason why it may not. Registered, two cycles late.
    """

    def __init__(self, config: Config, opcodes: tuple[Opcode, ...]):
        self.config = config
        self.opcodes = opcodes
        super().__init__({"command": In(isa.COMMAND_BITS), "legal": Out(1), "error": Out(ErrorCode)})

    def elaborate(self, platform) -> Module:
        m = Module()
        header = view(isa.SYNC, self.command)
        sizes = {opcode: fields_end(isa.FORMATS[opcode].fields) for opcode in self.opcodes}
        # The bits between the ends of two formats are checked once.
        ends = sorted(set(sizes.values()))
        stretches = {end: Signal(name=f"used_from_{end}", reset_less=True) for end in ends}
        for (end, used), stop in zip(stretches.items(), [*ends[1:], isa.COMMAND_BITS], strict=True):
            m.d.sync += used.eq(self.command[end:stop].any())

        # The bits of the argument that engines leave unused.
        compute = view(isa.COMPUTE, self.command)
        unused_of = {
            end: Signal(name=f"argument_from_{end}", reset_less=True)
            for end in sorted({self._argument_end(own) for own in self.config.engines})
        }
        for end, unused in unused_of.items():
            m.d.sync += unused.eq(compute.argument[end:].any())

        is_legal, is_clean, has_engine, is_argument_clean = Signal(), Signal(), Signal(init=1), Signal(init=1)
        with m.Switch(header.opcode):
            for opcode, size in sizes.items():
                with m.Case(opcode):
                    unused = [stretch for end, stretch in stretches.items() if end >= size]
                    m.d.comb += [is_legal.eq(1), is_clean.eq(~Cat(unused).any() & (header.reserved == 0))]
                    if opcode is Opcode.COMPUTE:
                        m.d.comb += has_engine.eq(Cat(compute.engine == code for code in self.config.engines).any())
                        with m.Switch(compute.engine):
                            for own in self.config.engines:
                                with m.Case(own):
                                    m.d.comb += is_argument_clean.eq(~unused_of[self._argument_end(own)])
        refusal = Mux(has_engine, ErrorCode.ILLEGAL_FIELD, ErrorCode.ILLEGAL_ENGINE)
        m.d.sync += [
            self.error.eq(Mux(is_legal, refusal, ErrorCode.ILLEGAL_OPCODE)),
            self.legal.eq(is_legal & has_engine & is_clean & is_argument_clean),
        ]
        return m

    def _argument_end(self, engine: Engine) -> int:
        """Return the bit after the last one of the argument that an engine's commands use."""
        return fields_end(self.config.engines.fields(engine))


# Tokens that one queue has given to another: the counter of this pair of peers.

SIGNAL_BITS = isa.SYNC.field("signal").width
_WAIT_BITS = isa.SYNC.field("wait").width


class Tokens(wiring.Component):
    """Count the tokens that a queue has from one peer.

    Parameters
    ----------
    name : str
        Name of the queue, in assertions.

    Members
    -------
    granted : In(8)
        Tokens that the peer gives in this cycle.
    needed : In(16)
        Tokens that the queue's next command takes.
    take : In(1)
        The command begins.
    enough : Out(1)
        ``needed`` tokens are there. While ``take`` is low it can only become true.
    left : Out(1)
        Tokens are left that no command has taken, or were left before the last cycle's ``take``. Registered.
    """

    def __init__(self, name: str):
        self.name = name
        super().__init__(
            {
                "granted": In(SIGNAL_BITS),
                "needed": In(_WAIT_BITS),
                "take": In(1),
                "enough": Out(1),
                "left": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        count = Signal(_WAIT_BITS)
        # The rest is computed before it is known whether a command takes tokens, which is known late.
        m.d.sync += count.eq(Mux(self.take, (count - self.needed) + self.granted, count + self.granted))
        m.d.sync += self.left.eq((count != 0) | (self.granted != 0))
        m.d.comb += self.enough.eq(count >= self.needed)
        checks = Assertions(m, platform)
        checks.never(self.take & (count < self.needed), f"{self.name}: a command takes tokens that are not there")
        checks.never(count + self.granted >= 1 << _WAIT_BITS, f"{self.name}: more tokens than are counted")
        return m


# The commands of a queue that have begun and not completed, oldest first.

#: The unit that completes a command; commands that are not listed complete by themselves.
UNITS = {
    Opcode.LOAD: Unit.LOAD,
    Opcode.FILL: Unit.FILL,
    Opcode.STORE: Unit.STORE,
    Opcode.BARRIER: Unit.BARRIER,
    Opcode.COMPUTE: Unit.FETCH,
}

#: Commands begun and not completed; more than the units hold.
_IN_FLIGHT = 16


def flight_layout() -> data.StructLayout:
    """The tokens that a command gives, and the unit that completes it; ``NONE``: it completes by itself."""
    return data.StructLayout({"signal": unsigned(SIGNAL_BITS), "unit": unsigned(4)})


class Flight(wiring.Component):
    """Complete commands in their order: a SYNC completes with the command before it.

    Parameters
    ----------
    name : str
        Name of the queue, in assertions.

    Members
    -------
    start : In(1)
        A program begins. Only while ``idle``.
    begun : In(stream of flight_layout)
        A command begins.
    finished : In(1)
        A unit has completed a command.
    completed : Out(1)
        The oldest command completes.
    grant : Out(8)
        The tokens that it gives. Registered.
    idle : Out(1)
        Every command has completed.
    oldest : Out(push_signature of flight_layout)
        The oldest command, if there is one.
    index : Out(INDEX_BITS)
        Its index in the program.
    """

    def __init__(self, name: str):
        self.name = name
        super().__init__(
            {
                "start": In(1),
                "begun": In(stream.Signature(flight_layout())),
                "finished": In(1),
                "completed": Out(1),
                "grant": Out(SIGNAL_BITS),
                "idle": Out(1),
                "oldest": Out(push_signature(flight_layout())),
                "index": Out(INDEX_BITS),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.fifo = fifo = Fifo(flight_layout(), depth=_IN_FLIGHT)
        m.submodules.buffer = buffer = Buffer(flight_layout())
        wiring.connect(m, wiring.flipped(self.begun), fifo.input)
        wiring.connect(m, fifo.output, buffer.input)
        head = buffer.output
        # A command after a SYNC can be done before the SYNC has left the queue.
        finished, finished_later = Signal(range(_IN_FLIGHT + 1)), Signal(range(_IN_FLIGHT + 1))
        has_finished, by_itself = Signal(), Signal()
        m.d.comb += [
            by_itself.eq(head.payload.unit == Unit.NONE),
            self.completed.eq(head.valid & (by_itself | self.finished | has_finished)),
            head.ready.eq(self.completed),
            finished_later.eq(finished + self.finished - (self.completed & ~by_itself)),
            self.idle.eq(~head.valid & ~fifo.output.valid),
            self.oldest.valid.eq(head.valid),
            self.oldest.payload.eq(head.payload),
        ]
        m.d.sync += [
            finished.eq(finished_later),
            has_finished.eq(finished_later != 0),
            self.grant.eq(Mux(self.completed, head.payload.signal, 0)),
        ]
        # This is not one sum, whose carry would wait for the distant unit that has finished.
        with m.If(self.start):
            m.d.sync += self.index.eq(0)
        with m.Elif(self.completed):
            m.d.sync += self.index.eq(self.index + 1)
        checks = Assertions(m, platform)
        checks.never(self.begun.valid & ~self.begun.ready, f"{self.name}: more commands in flight than are known")
        checks.never(self.finished & self.idle, f"{self.name}: a unit completes a command that nobody began")
        return m


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
        The queue whose commands are legal here.

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
        Commands of the DMA queue; payloads are registers.
    barrier : Out(stream of BARRIER)
        Barriers of the DMA queue, with several cores.
    compute : Out(stream of COMPUTE)
        Commands of the compute queue.
    finished : In(1)
        A unit has completed a command.
    granted : In(8), grant : Out(8)
        Tokens from and to the other queue in this cycle. Registered.
    tokens_left : Out(1)
        Tokens are left that no command has taken.
    done : Out(1)
        The program has ended; low from the start on.
    began, completed : Out(1)
        A command begins, or completes; each command does both.
    in_flight : Out(1)
        A command has begun and not completed.
    stalled : Out(1)
        The next command waits for tokens.
    progress : Out(1)
    standing : Out(QueueStatus)
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
                "standing": Out(QueueStatus),
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
            # Both are of the cycle before: while a command waits to begin, they can only become true.
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
        """Build the states of a command; return whether one is read, and whether the present one has been checked."""
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
            # It stays here until the soft reset.
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
        """Assemble the command from words; return whether the present word is its last."""
        words = isa.COMMAND_BITS // self.config.axi.data_bits
        position = Signal(range(words))
        # A register delays the words, so that their arrival does not have to reach all of the command in one cycle.
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
        """Return whether the commands in flight let the next one begin."""
        if self.queue is Queue.COMPUTE:
            # Commands go to one unit, which obeys `after` itself.
            return 1
        # One unit executes LOAD and FILL, another one STORE: one of them may be about to read the bytes that the other
        # writes.
        last_was_store, is_transfer, is_store = Signal(), Signal(), Signal()
        m.d.comb += [
            is_transfer.eq((header.opcode != Opcode.SYNC) & (header.opcode != Opcode.END)),
            is_store.eq(header.opcode == Opcode.STORE),
        ]
        may_overlap = is_store == last_was_store
        with m.If(self.began & is_transfer):
            m.d.sync += last_was_store.eq(is_store)
            if Opcode.BARRIER in self.opcodes:
                # A barrier runs alone: commands after it may use data that other cores have stored.
                is_barrier, last_was_barrier = header.opcode == Opcode.BARRIER, Signal()
                m.d.sync += last_was_barrier.eq(is_barrier)
                may_overlap &= ~is_barrier & ~last_was_barrier
        return idle | (~header.after & (~is_transfer | may_overlap))

    def _unit_of(self, opcode):
        """Return the unit of the command to begin; NONE completes by itself."""
        unit = Unit.NONE
        for code in self.opcodes:
            if code in UNITS:
                unit = Mux(opcode == code, UNITS[code], unit)
        return unit
