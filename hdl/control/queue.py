"""A command queue: reads commands, checks them, takes and gives tokens, and hands them to units."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ...golden.config import Config
from ...golden.isa import ErrorCode, Opcode, Unit, fields_end
from ..dma.dma_load import load_command_layout
from ..parts.assertions import Assertions
from ..parts.fifo import Buffer, Fifo
from ..parts.isa import INDEX_BITS, ErrorReport, command_shape, report, view

__all__ = ["Queue", "Standing"]

TOKEN_BITS = 16
#: Commands begun and not completed; more than the units hold.
_IN_FLIGHT = 16
_SIGNAL_BITS = 8
_UNITS = {Opcode.LOAD: Unit.LOAD, Opcode.FILL: Unit.FILL, Opcode.STORE: Unit.STORE, Opcode.COMPUTE: Unit.FETCH}
_HEADER_BITS = 32


class Standing(data.Struct):
    """What a queue would be stuck with, if it were stuck: for the watchdog's report."""

    # The unit has not completed command ``oldest``.
    in_flight: unsigned(1)
    unit: unsigned(8)
    oldest: unsigned(INDEX_BITS)
    # Command ``index`` has not arrived, or waits for its turn.
    missing: unsigned(1)
    waiting: unsigned(1)
    index: unsigned(INDEX_BITS)


class Queue(wiring.Component):
    """Begin commands in order, at most one every ``COMMAND_BITS / data_bits`` + 5 cycles; give tokens as they complete.

    A command is read and checked while those before it run. Commands complete in order: a SYNC completes with the
    command before it.

    Parameters
    ----------
    config : Config
    unit : Unit
        ``DMA_QUEUE`` or ``COMPUTE_QUEUE``: whose commands are legal here, and the name in errors.

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

    Raises
    ------
    ValueError
        If ``unit`` is not a queue.
    """

    def __init__(self, config: Config, *, unit: Unit):
        if unit not in (Unit.DMA_QUEUE, Unit.COMPUTE_QUEUE):
            raise ValueError(f"unit must be DMA_QUEUE or COMPUTE_QUEUE, not {unit.name}")
        self.config = config
        self.unit = unit
        self.is_dma = unit is Unit.DMA_QUEUE
        if self.is_dma:
            self.opcodes = isa.DMA_OPCODES
            ports = {"load": load_command_layout(), "store": command_shape(isa.STORE)}
        else:
            self.opcodes = isa.COMPUTE_OPCODES
            ports = {"compute": command_shape(isa.COMPUTE)}
        super().__init__(
            {
                "start": In(1),
                "halt": In(1),
                "words": In(stream.Signature(config.axi.data_bits)),
                "exhausted": In(1),
                **{name: Out(stream.Signature(shape)) for name, shape in ports.items()},
                "finished": In(1),
                "granted": In(_SIGNAL_BITS),
                "grant": Out(_SIGNAL_BITS),
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
        # Of the next command to begin, and of the one that is offered to its unit.
        index, offered = Signal(INDEX_BITS), Signal(INDEX_BITS, reset_less=True)
        header = view(isa.SYNC, command)
        self._elaborate_outputs(m, command, offered)
        illegal, legal = self._elaborate_check(m, command)
        flight, idle = self._elaborate_flight(m)

        tokens = Signal(TOKEN_BITS)
        enough, may_begin, begin = Signal(), Signal(), Signal()
        has_tokens = tokens >= header.wait
        m.d.sync += [
            tokens.eq(tokens + self.granted - Mux(begin, header.wait, 0)),
            # Both of the cycle before: while a command waits to begin, they can only become true.
            enough.eq(has_tokens),
            may_begin.eq(has_tokens & self._in_turn(m, header, idle) & flight.ready),
        ]
        m.d.comb += [
            self.tokens_left.eq(tokens != 0),
            self.began.eq(begin),
            flight.valid.eq(begin),
            flight.payload.signal.eq(header.signal),
            flight.payload.unit.eq(self._unit_of(header.opcode)),
        ]

        words = isa.COMMAND_BITS // self.config.axi.data_bits
        position = Signal(range(words))
        moved = Signal()
        # A register on the way, so that the words' arrival does not have to reach all of the command in one cycle.
        word, takes = Signal.like(self.words.payload, reset_less=True), Signal(words)
        m.d.sync += [word.eq(self.words.payload), takes.eq((self.words.valid & self.words.ready) << position)]
        for number, take in enumerate(takes):
            with m.If(take):
                m.d.sync += command.word_select(number, len(word)).eq(word)
        m.d.comb += self.progress.eq(moved | begin | self.completed)
        m.d.sync += self.error.valid.eq(0)
        with m.FSM(name="queue") as fsm:
            with m.State("IDLE"), m.If(self.start):
                m.d.sync += [index.eq(0), self.done.eq(0)]
                m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.words.ready.eq(1)
                with m.If(self.words.valid):
                    m.d.comb += moved.eq(1)
                    m.d.sync += position.eq(position + 1)
                    with m.If(position == words - 1):
                        m.next = "SETTLE"
                with m.Elif(self.exhausted):
                    m.d.sync += report(self.error, ErrorCode.PROGRAM_END, self.unit, index)
                    m.next = "STOP"
                m.d.comb += self.standing.missing.eq(1)
            for state, following in (("SETTLE", "GATHER"), ("GATHER", "CHECK"), ("CHECK", "BEGIN")):
                with m.State(state):
                    m.next = following
            with m.State("BEGIN"):
                m.d.comb += [self.stalled.eq(~enough & legal), self.standing.waiting.eq(1)]
                with m.If(~legal):
                    m.d.sync += report(self.error, illegal, self.unit, index)
                    m.next = "STOP"
                m.d.sync += offered.eq(index)
                with m.If(begin), m.Switch(header.opcode):
                    with m.Case(Opcode.SYNC):
                        m.d.sync += index.eq(index + 1)
                        m.next = "READ"
                    with m.Case(Opcode.END):
                        m.next = "DRAIN"
                    with m.Default():
                        m.d.sync += [*self._offer(header.opcode), index.eq(index + 1)]
                        m.next = "OFFER"
            with m.State("OFFER"), m.If(self._accepted()):
                m.d.comb += moved.eq(1)
                m.d.sync += [port.valid.eq(0) for port in self._ports()]
                m.next = "READ"
            with m.State("DRAIN"), m.If(idle):
                m.d.sync += self.done.eq(1)
                m.next = "IDLE"
            # Until the soft reset.
            with m.State("STOP"):
                pass
        m.d.comb += [begin.eq(fsm.ongoing("BEGIN") & legal & may_begin & ~self.halt), self.standing.index.eq(index)]
        checks = Assertions(m, platform)
        name = self.unit.name
        checks.never(begin & (tokens < header.wait), f"{name}: a command takes tokens that are not there")
        checks.never(tokens + self.granted >= 1 << TOKEN_BITS, f"{name}: more tokens than are counted")
        checks.never(begin & ~flight.ready, f"{name}: more commands in flight than are known")
        checks.never(self.finished & idle, f"{name}: a unit completes a command that nobody began")
        return m

    def _ports(self) -> list[stream.Interface]:
        return [self.load, self.store] if self.is_dma else [self.compute]

    def _accepted(self):
        """The offered command goes to its unit."""
        if self.is_dma:
            return (self.load.valid & self.load.ready) | (self.store.valid & self.store.ready)
        return self.compute.ready

    def _offer(self, opcode) -> list:
        if self.is_dma:
            return [self.load.valid.eq(opcode != Opcode.STORE), self.store.valid.eq(opcode == Opcode.STORE)]
        return [self.compute.valid.eq(1)]

    def _in_turn(self, m: Module, header, idle):
        """Whether the commands in flight let the next one begin."""
        if not self.is_dma:
            # Commands go to one unit, which obeys `after` itself.
            return 1
        # LOAD and FILL are done by one unit, STORE by another: what one of them writes, the other may be about to read.
        last_was_store, is_transfer, is_store = Signal(), Signal(), Signal()
        m.d.comb += [
            is_transfer.eq((header.opcode != Opcode.SYNC) & (header.opcode != Opcode.END)),
            is_store.eq(header.opcode == Opcode.STORE),
        ]
        with m.If(self.began & is_transfer):
            m.d.sync += last_was_store.eq(is_store)
        return idle | (~header.after & (~is_transfer | (is_store == last_was_store)))

    def _unit_of(self, opcode):
        """The unit of the command to begin; NONE completes by itself."""
        unit = Unit.NONE
        for code in self.opcodes:
            if code in _UNITS:
                unit = Mux(opcode == code, _UNITS[code], unit)
        return unit

    def _elaborate_outputs(self, m: Module, command, index) -> None:
        """The command as its unit wants it; views of one register, so that nothing is copied."""

        def decode(target: data.View, opcode: Opcode) -> None:
            fields = view(isa.FORMATS[opcode], command)
            m.d.comb += target.index.eq(index)
            m.d.comb += [target[name].eq(fields[name]) for name in target.shape().members if name != "index"]

        if self.is_dma:
            m.d.comb += self.load.payload.is_fill.eq(view(isa.FILL, command).opcode == Opcode.FILL)
            decode(self.load.payload.load, Opcode.LOAD)
            decode(self.load.payload.fill, Opcode.FILL)
            decode(self.store.payload, Opcode.STORE)
        else:
            decode(self.compute.payload, Opcode.COMPUTE)

    def _elaborate_check(self, m: Module, command) -> tuple[Signal, Signal]:
        """Why the command must not begin, and whether it may; valid two cycles after the command is complete."""
        header = view(isa.SYNC, command)
        sizes = {
            opcode: max(field.lsb + field.width for field in isa.FORMATS[opcode].fields) for opcode in self.opcodes
        }
        # Each stretch between the ends of two formats is looked at once.
        ends = sorted(set(sizes.values()))
        stretches = {end: Signal(name=f"used_from_{end}", reset_less=True) for end in ends}
        for (end, used), stop in zip(stretches.items(), [*ends[1:], isa.COMMAND_BITS], strict=True):
            m.d.sync += used.eq(command[end:stop].any())

        # What engines leave unused of the argument.
        argument = view(isa.COMPUTE, command).argument
        unused_of = {
            end: Signal(name=f"argument_from_{end}", reset_less=True)
            for end in sorted({fields_end(own.fields) for own in self.config.engines})
        }
        for end, unused in unused_of.items():
            m.d.sync += unused.eq(argument[end:].any())

        is_legal, is_clean, has_engine, is_argument_clean = Signal(), Signal(), Signal(init=1), Signal(init=1)
        with m.Switch(header.opcode):
            for opcode, size in sizes.items():
                with m.Case(opcode):
                    unused = [stretch for end, stretch in stretches.items() if end >= size]
                    m.d.comb += [is_legal.eq(1), is_clean.eq(~Cat(unused).any() & (header.reserved == 0))]
                    if opcode is Opcode.COMPUTE:
                        engine = view(isa.COMPUTE, command).engine
                        m.d.comb += has_engine.eq(Cat(engine == code for code in self.config.engines).any())
                        with m.Switch(engine):
                            for own in self.config.engines:
                                with m.Case(own):
                                    m.d.comb += is_argument_clean.eq(~unused_of[fields_end(own.fields)])
        illegal, legal = Signal(ErrorCode), Signal()
        m.d.sync += [
            illegal.eq(
                Mux(
                    ~is_legal,
                    ErrorCode.ILLEGAL_OPCODE,
                    Mux(~has_engine, ErrorCode.ILLEGAL_ENGINE, ErrorCode.ILLEGAL_FIELD),
                )
            ),
            legal.eq(is_legal & has_engine & is_clean & is_argument_clean),
        ]
        return illegal, legal

    def _elaborate_flight(self, m: Module) -> tuple:
        """Commands in flight, oldest first, with what they signal and the unit that completes them."""
        entry = data.StructLayout({"signal": unsigned(_SIGNAL_BITS), "unit": unsigned(4)})
        m.submodules.flight = flight = Fifo(entry, depth=_IN_FLIGHT)
        m.submodules.oldest_in_flight = oldest_in_flight = Buffer(entry)
        wiring.connect(m, flight.output, oldest_in_flight.input)
        head = oldest_in_flight.output
        # A command behind a SYNC can be done before the SYNC has left the queue.
        finished, finished_later = Signal(range(_IN_FLIGHT + 1)), Signal(range(_IN_FLIGHT + 1))
        has_finished, by_itself, idle = Signal(), Signal(), Signal()
        oldest = Signal(INDEX_BITS)
        m.d.comb += [
            by_itself.eq(head.payload.unit == Unit.NONE),
            self.completed.eq(head.valid & (by_itself | self.finished | has_finished)),
            head.ready.eq(self.completed),
            finished_later.eq(finished + self.finished - (self.completed & ~by_itself)),
            idle.eq(~head.valid & ~flight.output.valid),
            self.in_flight.eq(~idle),
            self.standing.in_flight.eq(head.valid),
            self.standing.unit.eq(head.payload.unit),
            self.standing.oldest.eq(oldest),
        ]
        m.d.sync += [
            finished.eq(finished_later),
            has_finished.eq(finished_later != 0),
            self.grant.eq(Mux(self.completed, head.payload.signal, 0)),
            oldest.eq(Mux(self.start, 0, oldest + self.completed)),
        ]
        return flight.input, idle
