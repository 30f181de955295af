"""Issue: walk the windows of COMPUTE commands, one step per cycle, from the step lists."""

from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.engines.engine import Engine
from ...golden.engines.specification import leaves_nothing_out
from ...golden.engines.specifications import specification
from ...golden.packing import packing_conditions
from ..engines.engine import has_direct, is_direct, own_fields, step_layout, take_fields
from ..parts.device import RAM_LATENCY, Ram
from ..parts.isa import INDEX_BITS, EngineCommand, ErrorReport, command_shape, field_shape, report
from ..parts.lookahead import Lookahead
from ..parts.pipeline import delay
from .foresight import Foresight, foreseen_layout
from .loops import Loops

__all__ = ["ISSUE_LATENCY", "Windows"]

#: From the cycle in which a step is issued to the one in which its address is out: list, add.
ISSUE_LATENCY = RAM_LATENCY + 1

_COMMAND = command_shape(isa.COMPUTE)


class _Position(data.Struct):
    """A step within a window; ``takes_weight``: the next step has the next weight word."""

    entry: field_shape(isa.COMPUTE, "list")
    steps_left: field_shape(isa.COMPUTE, "steps")
    last: unsigned(1)
    takes_weight: unsigned(1)


def _begin(position, command, skip, steps, takes_weight) -> list:
    """Assign the first step of a window that leaves out ``skip`` and has ``steps``."""
    return [
        position.entry.eq(command.list + skip),
        position.steps_left.eq(steps - 1),
        position.last.eq(steps == 1),
        position.takes_weight.eq(takes_weight(command, steps)),
    ]


def _follow(position, command, takes_weight) -> list:
    """Assign the step after ``position``."""
    return [
        position.entry.eq(position.entry + 1),
        position.steps_left.eq(position.steps_left - 1),
        position.last.eq(position.steps_left == 1),
        position.takes_weight.eq(takes_weight(command, position.steps_left)),
    ]


@dataclass(frozen=True)
class _Intake:
    """The next command: ``ready`` to be taken or ``illegal``, whether it ``waits`` for every earlier result, and its
    positions."""

    command: data.View
    ready: Value
    illegal: Value
    waits: Signal
    beginning: data.View
    continuation: data.View


class Windows(wiring.Component):
    """Issue one step per cycle: an address, a weight word and flags, ``ISSUE_LATENCY`` cycles later.

    A walker finds the steps and runs ahead of the issue, where :class:`.foresight.Foresight` lets them
    pass. Two commands that are not dependent follow with one cycle between. Golden twin:
    :mod:`lutterfly.golden.windows`.

    Parameters
    ----------
    config : Config
    landing_latency : dict of Engine to int
        See :class:`.foresight.Foresight`.

    Members
    -------
    command : In(stream of COMPUTE)
    context : Out(stream of COMPUTE)
        Each command again, before its first step is issued, for the other end of the pipeline.
    halt : In(1)
        Issue nothing more.
    list_write : Out(memory.WritePort.Signature)
        Entries of the step lists.
    step : Out(step_layout), engine : Out(4), address : Out(24), weight : Out
        One step: what its command says, its activation word's feature address and its weight word.
    reads : Out(1)
        ``address`` is one of a step that reads it; registered.
    first, last : Out(1)
        The first, the last step of a command is issued.
    dependent : Out(1)
        The first step of a command is issued that has waited for all earlier results.
    issued, stalled : Out(1)
        A step is issued; a command is here but no step is issued.
    error : Out(ErrorReport)
    """

    def __init__(self, config: Config, *, landing_latency: dict[Engine, int]):
        self.config = config
        self.landing_latency = landing_latency
        self.weight_bits = _COMMAND["weight"].width + 1
        self.offset_bits = ceil_log2(config.memory.feature_bytes)
        self.engines = [specification(code) for code in config.engines]
        super().__init__(
            {
                "command": In(stream.Signature(_COMMAND)),
                "context": Out(stream.Signature(_COMMAND)),
                "halt": In(1),
                "list_write": Out(
                    memory.WritePort.Signature(
                        addr_width=ceil_log2(config.memory.list_entries), shape=8 * isa.LIST_ENTRY_BYTES
                    )
                ),
                "step": Out(step_layout(config, config.engines)),
                "engine": Out(_COMMAND["engine"].shape),
                "address": Out(isa.LOCAL_BITS),
                "weight": Out(ceil_log2(config.weight_words)),
                "reads": Out(1),
                "first": Out(1),
                "last": Out(1),
                "dependent": Out(1),
                "issued": Out(1),
                "stalled": Out(1),
                "error": Out(ErrorReport),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.loops = loops = Loops(side="source", word_bits=self.weight_bits)
        m.submodules.lookahead = lookahead = Lookahead(self._step_layout())
        m.submodules.foresight = foresight = Foresight(self.config, landing_latency=self.landing_latency)
        active, command, take = Signal(), Signal(_COMMAND, reset_less=True), Signal()
        intake = self._elaborate_intake(m, command.engine, take)
        m.d.comb += [
            take.eq(intake.ready & ~active & self.context.ready),
            self.context.valid.eq(take),
            self.context.payload.eq(intake.command),
        ]
        with m.If(take):
            m.d.sync += [active.eq(1), command.eq(intake.command)]
        self._elaborate_walk(m, intake, command, active, take, loops, lookahead)

        step, issue = lookahead.output, Signal()
        m.d.comb += [
            foresight.steps.valid.eq(step.valid),
            foresight.steps.payload.eq(step.payload.foreseen),
            foresight.halt.eq(self.halt),
            step.ready.eq(foresight.steps.ready),
            issue.eq(step.valid & step.ready),
            self.issued.eq(issue),
            self.stalled.eq((active | intake.ready | step.valid) & ~issue),
            self.first.eq(issue & step.payload.first),
            self.last.eq(issue & step.payload.last),
            self.dependent.eq(issue & step.payload.foreseen.waits),
        ]
        self._elaborate_lookup(m, issue, step.payload)
        with m.If(intake.illegal):
            m.d.sync += report(self.error, isa.ErrorCode.ILLEGAL_FIELD, isa.Unit.FETCH, intake.command.index)
        return m

    def _takes_weight(self, command, steps):
        """Whether the first of the last ``steps`` steps of a window takes a weight word, if its engine takes any."""
        conditions = [
            (command.engine != engine.engine) | (steps <= EngineCommand(command, engine.engine)[engine.weight_words])
            for engine in self.engines
            # As many as there are steps: all of them.
            if engine.weight_words not in (None, "steps")
        ]
        return reduce(and_, conditions) if conditions else Const(1)

    def _is_burst(self, command):
        """Whether the steps of its windows come one after the other."""
        return reduce(or_, (command.engine == engine.engine for engine in self.engines if engine.is_burst), Const(0))

    def _step_layout(self) -> data.StructLayout:
        """A step on its way to the issue."""
        return data.StructLayout(
            {
                "foreseen": foreseen_layout(self.config),
                "entry": field_shape(isa.COMPUTE, "list"),
                "base": unsigned(isa.LOCAL_BITS),
                "weight": unsigned(self.weight_bits),
                **own_fields(self.config.engines, "step_fields"),
                "index": unsigned(INDEX_BITS),
                "first": unsigned(1),
                "last": unsigned(1),
            }
        )

    def _elaborate_walk(
        self, m: Module, intake: "_Intake", command, active, take, loops: Loops, lookahead: Lookahead
    ) -> None:
        """Walk the active command: the loops give the window, ``position`` the step within it."""
        position, beginning, continuation = (
            Signal(_Position, name=name, reset_less=True) for name in ("position", "beginning", "continuation")
        )
        walk, window_ends, first, first_window = Signal(), Signal(), Signal(reset_less=True), Signal(reset_less=True)
        m.d.comb += [
            walk.eq(active & lookahead.room),
            window_ends.eq(walk & position.last),
            loops.command.eq(command),
            loops.first.eq(intake.command),
            loops.first_word.eq(intake.command.weight),
            loops.load.eq(take),
            loops.step.eq(walk & position.takes_weight),
            loops.advance.eq(window_ends),
        ]
        with m.If(walk):
            m.d.sync += first.eq(0)
            with m.If(~position.last):
                m.d.sync += _follow(position, command, self._takes_weight)
            with m.Elif(loops.row_ends):
                m.d.sync += position.eq(beginning)
            with m.Else():
                m.d.sync += position.eq(continuation)
        with m.If(window_ends):
            m.d.sync += first_window.eq(0)
        with m.If(window_ends & loops.last):
            m.d.sync += active.eq(0)
        with m.If(take):
            m.d.sync += [
                first.eq(1),
                first_window.eq(1),
                position.eq(intake.beginning),
                beginning.eq(intake.beginning),
                continuation.eq(intake.continuation),
            ]

        # A cycle later the loops' pointer has arrived as well; the command is still the same then. One more
        # for the sums.
        walked, last_tile, begins = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        found, pushed = (Signal(self._step_layout(), name=name, reset_less=True) for name in ("walked_step", "pushed"))
        waits, is_burst, window_begins = Signal(reset_less=True), Signal(reset_less=True), Signal(reset_less=True)
        with m.If(take):
            m.d.sync += [waits.eq(intake.waits), is_burst.eq(self._is_burst(intake.command))]
        with m.If(take | walk):
            m.d.sync += window_begins.eq(take | position.last)
        m.d.sync += [
            walked.eq(walk),
            last_tile.eq(loops.last_tile),
            begins.eq(first_window),
            found.entry.eq(position.entry),
            found.weight.eq(loops.word),
            found.first.eq(first),
            found.last.eq(position.last & loops.last),
            found.foreseen.counts.eq(Mux(is_burst, window_begins, position.last)),
            found.foreseen.waits.eq(first & waits),
        ]
        lane_bits = ceil_log2(self.config.array.requant_lanes)
        lanes = Mux(last_tile, command.last_lanes, command.lanes)
        # Groups, rounded up, and one cycle more where the command begins: as one sum.
        work = (lanes + Cat(Const((1 << lane_bits) - 1, lane_bits), begins)) >> lane_bits
        all_bits = ceil_log2(self.config.array.lanes)
        if has_direct(self.config):
            direct_work = (lanes + Cat(Const((1 << all_bits) - 1, all_bits), begins)) >> all_bits
            work = Mux(is_direct(command, self.config), direct_work, work)
        m.d.sync += [
            pushed.eq(found),
            pushed.base.eq(loops.pointer),
            *take_fields(pushed, command),
            pushed.index.eq(command.index),
            pushed.foreseen.engine.eq(command.engine),
            pushed.foreseen.work.eq(work),
            lookahead.input.valid.eq(walked),
        ]
        m.d.comb += [lookahead.reserve.eq(walk), lookahead.input.payload.eq(pushed)]

    def _elaborate_intake(self, m: Module, last_engine, take) -> "_Intake":
        """Hold the next command; check its counts and work out its positions, two cycles before it may be taken."""
        waiting, looked_at, checked, legal = Signal(), Signal(), Signal(), Signal()
        command = Signal(_COMMAND, reset_less=True)
        m.d.comb += self.command.ready.eq(~waiting)
        with m.If(~waiting):
            m.d.sync += [waiting.eq(self.command.valid), command.eq(self.command.payload)]
        with m.Elif(take):
            m.d.sync += waiting.eq(0)
        limit = self.config.array.lanes
        for engine in self.engines:
            if engine.most_results(self.config) != self.config.array.lanes:
                limit = Mux(command.engine == engine.engine, engine.most_results(self.config), limit)
        legal_for_engine = Signal(init=1)
        with m.Switch(command.engine):
            for engine in self.engines:
                if engine.conditions is not None:
                    with m.Case(engine.engine):
                        own = EngineCommand(command, engine.engine)
                        m.d.comb += legal_for_engine.eq(engine.legal(own, self.config))
            with m.Default():
                m.d.comb += legal_for_engine.eq(leaves_nothing_out(command))

        positions = {}
        for name, skip in (("beginning", 0), ("continuation", command.skip)):
            positions[name] = Signal(_Position, name=f"next_{name}", reset_less=True)
            steps = Signal.like(command.steps, name=f"steps_of_{name}", reset_less=True)
            m.d.sync += [
                steps.eq(command.steps - skip),
                _begin(positions[name], command, skip, steps, self._takes_weight),
            ]
        conditions = (
            *(command[name].any() for name in ("outer", "middle", "inner", "steps", "lanes", "last_lanes")),
            command.lanes <= limit,
            command.last_lanes <= command.lanes,
            command.list + command.steps <= self.config.memory.list_entries,
            command.table < self.config.memory.tables,
            legal_for_engine,
            *packing_conditions(command, self.config),
        )
        fulfilled = Signal(len(conditions), reset_less=True)
        m.d.sync += [
            looked_at.eq(waiting & ~take),
            checked.eq(looked_at & ~take),
            fulfilled.eq(Cat(conditions)),
            legal.eq(fulfilled.all()),
        ]
        waits = Signal(reset_less=True)
        m.d.sync += waits.eq(command.after | (command.engine != last_engine) | self._is_burst(command))
        return _Intake(
            command=command,
            ready=checked & legal,
            illegal=checked & ~legal,
            waits=waits,
            beginning=positions["beginning"],
            continuation=positions["continuation"],
        )

    def _elaborate_lookup(self, m: Module, issue, step) -> None:
        """Read the step's list entry and add its offset to the window's base."""
        flag_bits, has_counts = 2, "keeps" in self.step.shape().members
        count_bits = ceil_log2(self.config.array.lanes) if has_counts else 0
        written = self.list_write.data
        counts = written[isa.LIST_COUNT_LSB : isa.LIST_COUNT_LSB + count_bits]
        entry = Cat(written[: self.offset_bits], written[-flag_bits:], counts)
        m.submodules.lists = lists = Ram(width=len(entry), depth=self.config.memory.list_entries)
        m.d.comb += [
            lists.read_address.eq(step.entry),
            lists.write_enable.eq(self.list_write.en),
            lists.write_address.eq(self.list_write.addr),
            lists.write_data.eq(entry),
        ]
        valid = delay(m, issue, RAM_LATENCY, name="valid")
        now = delay(m, step, RAM_LATENCY, name="step")
        engine = now.foreseen.engine

        flags = lists.read_data[self.offset_bits : self.offset_bits + flag_bits]
        if has_counts:
            m.d.sync += self.step.keeps.eq(self._keeps(engine, lists.read_data[self.offset_bits + flag_bits :]))
        has_word, reads = self._reads(m, now, valid, flags[0]), Signal()
        index = Signal(INDEX_BITS, reset_less=True)
        uses_weights, weight, valid_address = Signal(), Signal(self.weight_bits, reset_less=True), Signal()
        m.d.sync += [
            valid_address.eq(valid & ~self.halt),
            reads.eq(valid & ~self.halt & has_word),
            self.step.clear.eq(flags[0]),
            self.step.fire.eq(flags[1]),
            self.engine.eq(engine),
            *take_fields(self.step, now),
            self.address.eq(now.base + lists.read_data[: self.offset_bits]),
            weight.eq(now.weight),
            index.eq(now.index),
            uses_weights.eq(reduce(or_, (engine == own.engine for own in self.engines if own.weight_words))),
        ]
        bad_address, bad_weight = Signal(), Signal()
        m.d.comb += [
            bad_address.eq(reads & (self.address >= self.config.memory.feature_bytes)),
            bad_weight.eq(uses_weights & (weight >= self.config.weight_words)),
            self.reads.eq(reads),
            self.step.valid.eq(valid_address & ~bad_address & ~bad_weight),
            self.weight.eq(weight),
        ]
        m.d.sync += [
            report(
                self.error, isa.ErrorCode.ADDRESS_RANGE, isa.Unit.FETCH, index, Mux(bad_address, self.address, weight)
            ),
            self.error.valid.eq(valid_address & (bad_address | bad_weight)),
        ]

    def _keeps(self, engine: Value, count: Value) -> Value:
        """The bytes of a word that count: so many, or all."""
        masks = reduce(or_, (engine == own.engine for own in self.engines if own.masks_words))
        lanes = range(self.config.array.lanes)
        return Cat(~masks | (count == 0) | (count > lane) for lane in lanes)

    def _reads(self, m: Module, step, valid: Signal, clear: Value) -> Value:
        """Whether a step reads its word, in the cycle before its address: not behind ``read_steps`` of a window."""
        reads: Value = Const(1)
        for engine in self.engines:
            if engine.read_steps:
                left = Signal(_COMMAND["steps"].shape, name=f"{engine.name}_reads_left", reset_less=True)
                with m.If(valid):
                    count = engine.read_steps(step.fields[engine.name], self.config)
                    m.d.sync += left.eq(Mux(clear, count - 1, Mux(left == 0, 0, left - 1)))
                reads &= (step.foreseen.engine != engine.engine) | clear | (left != 0)
        return reads
