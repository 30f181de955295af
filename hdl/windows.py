"""Issue: walk the windows of COMPUTE commands, one step per cycle, from the step lists."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..golden import isa
from ..golden.config import Config
from ..golden.timing import BACKLOG_LIMIT
from .device import RAM_LATENCY, Ram
from .engine import Step
from .isa import INDEX_BITS, ErrorReport, command_shape, field_shape, report
from .loops import Loops
from .pipeline import delay

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


def _begin(position, command, skip) -> list:
    """Assign the first step of a window that leaves out ``skip``."""
    return [
        position.entry.eq(command.list + skip),
        position.steps_left.eq(command.steps - skip - 1),
        position.last.eq(command.steps == skip + 1),
        position.takes_weight.eq(_takes_weight(command, command.steps - skip - 1)),
    ]


def _follow(position, command) -> list:
    """Assign the step after ``position``."""
    return [
        position.entry.eq(position.entry + 1),
        position.steps_left.eq(position.steps_left - 1),
        position.last.eq(position.steps_left == 1),
        position.takes_weight.eq(_takes_weight(command, position.steps_left - 1)),
    ]


def _takes_weight(command, steps_left):
    return (command.engine != isa.Engine.DEPTHWISE) | (steps_left < command.rows)


class Windows(wiring.Component):
    """Issue one step per cycle: an address, a weight word and flags, ``ISSUE_LATENCY`` cycles later.

    Nothing behind the issue can stall. Two counters foresee what happens there: ``backlog``, the groups of results that
    wait for the requantiser, holds the last step of a window back while its result could overflow the result FIFO;
    ``landing``, the cycles until the last result can be read, holds a dependent command back. Two commands that are not
    dependent follow without a cycle between. Golden twin: :mod:`lutterfly.golden.windows`.

    Parameters
    ----------
    config : Config
    landing_latency : dict of Engine to int
        Cycles from the last issue of a window with one group, when nothing waits, to the first issue that may read its
        result.

    Members
    -------
    command : In(stream of COMPUTE)
    context : Out(stream of COMPUTE)
        Each command again, when its first step is issued, for the other end of the pipeline.
    halt : In(1)
        Issue nothing more.
    list_write_enable, list_write_address, list_write_data : In
        Entries of the step lists.
    step : Out(Step), engine : Out(4), rows : Out, address : Out(24), weight : Out
        One step: what its command says, its activation word's feature address and its weight word.
    reads : Out(1)
        ``address`` is one of a step; registered.
    first, last : Out(1)
        The first, the last step of a command is issued.
    issued, stalled : Out(1)
        A step is issued; a command is here but no step is issued.
    error : Out(ErrorReport)
    """

    def __init__(self, config: Config, *, landing_latency: dict[isa.Engine, int]):
        self.config = config
        self.landing_latency = landing_latency
        self.weight_bits = _COMMAND["weight"].width + 1
        self.offset_bits = ceil_log2(config.memory.feature_bytes)
        super().__init__(
            {
                "command": In(stream.Signature(_COMMAND)),
                "context": Out(stream.Signature(_COMMAND)),
                "halt": In(1),
                "list_write_enable": In(1),
                "list_write_address": In(ceil_log2(config.memory.list_entries)),
                "list_write_data": In(32),
                "step": Out(Step),
                "engine": Out(unsigned(4)),
                "rows": Out(field_shape(isa.COMPUTE, "rows")),
                "address": Out(isa.LOCAL_BITS),
                "weight": Out(ceil_log2(config.weight_words)),
                "reads": Out(1),
                "first": Out(1),
                "last": Out(1),
                "issued": Out(1),
                "stalled": Out(1),
                "error": Out(ErrorReport),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        next_command, next_positions, legal, checked, take = self._elaborate_intake(m)

        # The active command. Its loops give the window, `position` the step within it.
        active, command = Signal(), Signal(_COMMAND, reset_less=True)
        m.submodules.loops = loops = Loops(side="source", word_bits=self.weight_bits)
        position, beginning, continuation = (
            Signal(_Position, name=name, reset_less=True) for name in ("position", "beginning", "continuation")
        )
        first_step = Signal(reset_less=True)
        held, issue, window_ends, command_ends = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            issue.eq(active & ~held & ~self.halt),
            window_ends.eq(issue & position.last),
            command_ends.eq(window_ends & loops.last),
            loops.command.eq(command),
            loops.first.eq(next_command),
            loops.first_word.eq(next_command.weight),
            loops.load.eq(take),
            loops.step.eq(issue & position.takes_weight),
            loops.advance.eq(window_ends),
        ]
        with m.If(issue):
            m.d.sync += first_step.eq(0)
            with m.If(~position.last):
                m.d.sync += _follow(position, command)
            with m.Elif(loops.row_ends):
                m.d.sync += position.eq(beginning)
            with m.Else():
                m.d.sync += position.eq(continuation)
        with m.If(command_ends):
            m.d.sync += active.eq(0)
        with m.If(take):
            m.d.sync += [
                active.eq(1),
                first_step.eq(1),
                command.eq(next_command),
                position.eq(next_positions["beginning"]),
                beginning.eq(next_positions["beginning"]),
                continuation.eq(next_positions["continuation"]),
            ]

        may_read = self._elaborate_foresight(m, command, loops.last_tile, window_ends, held, position.last)

        engine_stays = Signal()
        m.d.comb += [
            engine_stays.eq(next_command.engine == command.engine),
            take.eq(
                checked
                & legal
                & (~active | command_ends)
                & self.context.ready
                & ~self.halt
                & (may_read | (engine_stays & ~next_command.after))
            ),
            self.context.valid.eq(take),
            self.context.payload.eq(next_command),
            self.issued.eq(issue),
            self.stalled.eq((active | checked) & ~issue),
            self.first.eq(issue & first_step),
            self.last.eq(command_ends),
        ]

        self._elaborate_lookup(m, issue, position.entry, command, loops)
        with m.If(checked & ~legal):
            m.d.sync += report(self.error, isa.ErrorCode.ILLEGAL_FIELD, isa.Unit.FETCH, next_command.index)
        return m

    def _elaborate_intake(self, m: Module) -> tuple:
        """Hold the next command; check its counts and work out its positions, a cycle before it may be taken."""
        waiting, checked, legal, take = Signal(), Signal(), Signal(), Signal()
        command = Signal(_COMMAND, reset_less=True)
        m.d.comb += self.command.ready.eq(~waiting | take)
        with m.If(self.command.ready):
            m.d.sync += [waiting.eq(self.command.valid), command.eq(self.command.payload)]
        limit = Mux(command.engine == isa.Engine.MAC, self.config.array.columns, self.config.array.lanes)
        legal_for_engine = Signal(init=1)
        with m.Switch(command.engine):
            with m.Case(isa.Engine.DEPTHWISE):
                m.d.comb += legal_for_engine.eq(
                    ~command.tile_inner & command.rows.any() & (command.skip + command.rows <= command.steps)
                )
            with m.Case(isa.Engine.ADD):
                m.d.comb += legal_for_engine.eq(
                    (command.steps == 2) & (command.add_table < self.config.memory.add_tables) & ~command.skip.any()
                )
            with m.Default():
                m.d.comb += legal_for_engine.eq(~command.skip.any())

        positions = {}
        for name, skip in (("beginning", 0), ("continuation", command.skip)):
            positions[name] = Signal(_Position, name=f"next_{name}", reset_less=True)
            m.d.sync += _begin(positions[name], command, skip)
        m.d.sync += [
            checked.eq(waiting & ~take),
            legal.eq(
                command.outer.any()
                & command.middle.any()
                & command.inner.any()
                & command.steps.any()
                & command.lanes.any()
                & command.last_lanes.any()
                & (command.lanes <= limit)
                & (command.last_lanes <= command.lanes)
                & (command.list + command.steps <= self.config.memory.list_entries)
                & (command.table < self.config.memory.tables)
                & legal_for_engine
            ),
        ]
        return command, positions, legal, checked, take

    def _elaborate_foresight(self, m: Module, command, last_tile, window_ends, held, last_step) -> Signal:
        """Count what waits for the requantiser and how long results are under way; true when all can be read."""
        lane_bits = ceil_log2(self.config.array.requant_lanes)
        lanes = Signal.like(command.lanes)
        groups = Signal(range(self.config.array.lanes // self.config.array.requant_lanes + 1))
        backlog = Signal(range(BACKLOG_LIMIT + self.config.array.lanes + 1))
        working = Signal.like(backlog)
        m.d.comb += [
            lanes.eq(Mux(last_tile, command.last_lanes, command.lanes)),
            groups.eq((lanes + (1 << lane_bits) - 1) >> lane_bits),
            working.eq(Mux(backlog == 0, 0, backlog - 1)),
            held.eq(last_step & (backlog > BACKLOG_LIMIT)),
        ]
        m.d.sync += backlog.eq(Mux(window_ends, working + groups, working))

        latencies = {engine: self.landing_latency[engine] for engine in self.config.engines}
        landing = Signal(range(max(latencies.values()) + BACKLOG_LIMIT + self.config.array.lanes + 1))
        latency = Signal.like(landing)
        with m.Switch(command.engine):
            for engine, cycles in latencies.items():
                with m.Case(engine):
                    m.d.comb += latency.eq(cycles)
        with m.If(window_ends):
            # The last group leaves the requantiser when all that waits has been worked off.
            m.d.sync += landing.eq(latency + working + groups)
        with m.Elif(landing != 0):
            m.d.sync += landing.eq(landing - 1)
        may_read = Signal()
        m.d.comb += may_read.eq((landing == 0) & ~window_ends)
        return may_read

    def _elaborate_lookup(self, m: Module, issue, entry, command, loops: Loops) -> None:
        """Read the step's list entry and add its offset to the window's base."""
        flag_bits = 2
        m.submodules.lists = lists = Ram(width=self.offset_bits + flag_bits, depth=self.config.memory.list_entries)
        m.d.comb += [
            lists.read_address.eq(entry),
            lists.write_enable.eq(self.list_write_enable),
            lists.write_address.eq(self.list_write_address),
            lists.write_data[: self.offset_bits].eq(self.list_write_data),
            lists.write_data[self.offset_bits :].eq(self.list_write_data[-flag_bits:]),
        ]
        behind = data.StructLayout(
            {
                "weight": unsigned(self.weight_bits),
                "engine": unsigned(4),
                "rows": field_shape(isa.COMPUTE, "rows"),
                "index": unsigned(INDEX_BITS),
            }
        )
        now = Signal(behind)
        m.d.comb += [
            now.weight.eq(loops.word),
            now.engine.eq(command.engine),
            now.rows.eq(command.rows),
            now.index.eq(command.index),
        ]
        valid = delay(m, issue, RAM_LATENCY, name="valid")
        now = delay(m, now, RAM_LATENCY, name="behind")
        base = delay(m, loops.pointer, RAM_LATENCY - 1, name="base")

        flags = lists.read_data[self.offset_bits :]
        index = Signal(INDEX_BITS, reset_less=True)
        uses_weights, weight, valid_address = Signal(), Signal(self.weight_bits, reset_less=True), Signal()
        m.d.sync += [
            valid_address.eq(valid & ~self.halt),
            self.step.clear.eq(flags[0]),
            self.step.fire.eq(flags[1]),
            self.engine.eq(now.engine),
            self.rows.eq(now.rows),
            self.address.eq(base + lists.read_data[: self.offset_bits]),
            weight.eq(now.weight),
            index.eq(now.index),
            uses_weights.eq((now.engine == isa.Engine.MAC) | (now.engine == isa.Engine.DEPTHWISE)),
            self.error.valid.eq(0),
        ]
        bad_address, bad_weight = Signal(), Signal()
        m.d.comb += [
            bad_address.eq(self.address >= self.config.memory.feature_bytes),
            bad_weight.eq(uses_weights & (weight >= self.config.weight_words)),
            self.reads.eq(valid_address),
            self.step.valid.eq(valid_address & ~bad_address & ~bad_weight),
            self.weight.eq(weight),
        ]
        with m.If(valid_address & (bad_address | bad_weight)):
            m.d.sync += report(
                self.error, isa.ErrorCode.ADDRESS_RANGE, isa.Unit.FETCH, index, Mux(bad_address, self.address, weight)
            )
