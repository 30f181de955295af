"""The next COMPUTE command is checked, and its first steps are computed, before it is taken."""

from functools import reduce
from operator import and_, or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ...golden.config import Config
from ...golden.engines import specification_of
from ...golden.engines.specification import comes_too_early, leaves_nothing_out
from ...golden.machine.write_back import packing_conditions
from ..engines.engine import most_further
from ..parts.isa import EngineCommand, command_shape, field_shape

__all__ = [
    "Intake",
    "Position",
    "begin",
    "follow",
    "is_burst",
]


# The step within a window, and its successor.


class Position(data.Struct):
    """A step within a window; ``takes_weight``: the next step has the next weight word."""

    entry: field_shape(isa.COMPUTE, "list")
    steps_left: field_shape(isa.COMPUTE, "steps")
    last: unsigned(1)
    takes_weight: unsigned(1)


def begin(position: data.View, command: data.View, skip: Value | int, steps: Value, config: Config) -> list:
    """Assign the first step of a window that leaves out ``skip`` and has ``steps``."""
    return [
        position.entry.eq(command.list + skip),
        position.steps_left.eq(steps - 1),
        position.last.eq(steps == 1),
        position.takes_weight.eq(_takes_weight(command, steps, config)),
    ]


def follow(position: data.View, command: data.View, config: Config) -> list:
    """Assign the step after ``position``."""
    return [
        position.entry.eq(position.entry + 1),
        position.steps_left.eq(position.steps_left - 1),
        position.last.eq(position.steps_left == 1),
        position.takes_weight.eq(_takes_weight(command, position.steps_left, config)),
    ]


def _takes_weight(command: data.View, steps: Value, config: Config) -> Value:
    """Return whether the first of the last ``steps`` steps of a window takes a weight word, if its engine takes any."""
    conditions = [
        (command.engine != engine) | (steps <= EngineCommand(command, engine)[words])
        for engine in config.engines
        # If as many steps take a weight as there are, all of them do.
        if (words := specification_of(engine).issue.weight_words) not in (None, "steps")
    ]
    return reduce(and_, conditions) if conditions else Const(1)


_COMMAND = command_shape(isa.COMPUTE)


def is_burst(engine: Value, config: Config) -> Value:
    """Return whether the steps of an engine's windows come without a pause, as one bit."""
    engines = [code for code in config.engines if specification_of(code).issue.is_burst]
    return reduce(or_, (engine == code for code in engines), Const(0))


class Intake(wiring.Component):
    """Hold the next command; check its counts and compute its positions, two cycles before it may be taken.

    Parameters
    ----------
    config : Config

    Members
    -------
    command : In(stream of COMPUTE)
    last_engine : In(4)
        The engine of the command before.
    last_further : In
        The number of further results of that command's windows, where there are engines with several.
    take : In(1)
        Take the command that is ``ready``; one that is ``illegal`` stays.
    offered : Out(COMPUTE)
    ready, illegal : Out(1)
        The command has been checked.
    comes : Out(1)
        The command is ``ready`` in the next cycle, unless it is taken in this one.
    waits : Out(1)
        The command has to wait for every earlier result.
    changes : Out(1), where engines overlap
        The command has to wait until every earlier result has left its engine and the result FIFO: its engine is
        another one, or a result of the command before could still come when its own first result does.
    beginning, continuation : Out(Position)
        The first step of the first window of its inner loops, and of the windows after that.
    """

    def __init__(self, config: Config):
        self.config = config
        self.engines = [specification_of(code) for code in config.engines]
        super().__init__(
            {
                "command": In(stream.Signature(_COMMAND)),
                "last_engine": In(_COMMAND["engine"].shape),
                **({"last_further": In(range(most + 1))} if (most := most_further(config)) else {}),
                "take": In(1),
                "offered": Out(_COMMAND),
                "ready": Out(1),
                "illegal": Out(1),
                "comes": Out(1),
                "waits": Out(1),
                **({"changes": Out(1)} if config.hands_over else {}),
                "beginning": Out(Position),
                "continuation": Out(Position),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        waiting, looked_at, checked, legal = Signal(), Signal(), Signal(), Signal()
        command = Signal(_COMMAND, reset_less=True)
        m.d.comb += [self.command.ready.eq(~waiting), self.offered.eq(command)]
        with m.If(~waiting):
            m.d.sync += [waiting.eq(self.command.valid), command.eq(self.command.payload)]
        with m.Elif(self.take):
            m.d.sync += waiting.eq(0)

        conditions = self._conditions(m, command)
        waits_for, changes = command.after, command.engine != self.last_engine
        if most_further(self.config):
            changes |= comes_too_early(command.steps, self.last_further)
        # The settings of a burst are stable beside all its words, so that a next command waits as for another engine.
        is_of_burst = is_burst(command.engine, self.config)
        if self.config.hands_over:
            later = Signal(reset_less=True, name="next_changes")
            m.d.sync += later.eq(changes | is_of_burst)
            m.d.comb += self.changes.eq(later)
        else:
            waits_for = command.after | changes | is_of_burst
        fulfilled, waits = Signal(len(conditions), reset_less=True), Signal(reset_less=True)
        m.d.sync += [
            looked_at.eq(waiting & ~self.take),
            checked.eq(looked_at & ~self.take),
            fulfilled.eq(Cat(conditions)),
            legal.eq(fulfilled.all()),
            waits.eq(waits_for),
        ]
        m.d.comb += [
            self.ready.eq(checked & legal),
            self.illegal.eq(checked & ~legal),
            self.comes.eq(looked_at & fulfilled.all()),
            self.waits.eq(waits),
        ]
        for name, skip in (("beginning", 0), ("continuation", command.skip)):
            position = Signal(Position, name=f"next_{name}", reset_less=True)
            steps = Signal.like(command.steps, name=f"steps_of_{name}", reset_less=True)
            m.d.sync += [steps.eq(command.steps - skip), begin(position, command, skip, steps, self.config)]
            m.d.comb += getattr(self, name).eq(position)
        return m

    def _conditions(self, m: Module, command: data.View) -> tuple[Value, ...]:
        """Return the conditions that a legal command fulfils."""
        limit = self.config.array.lanes
        for engine in self.engines:
            if engine.most_results(self.config) != self.config.array.lanes:
                limit = Mux(command.engine == engine.engine, engine.most_results(self.config), limit)
        legal_for_engine = Signal(init=1)
        with m.Switch(command.engine):
            for engine in self.engines:
                if engine.has_conditions:
                    with m.Case(engine.engine):
                        own = EngineCommand(command, engine.engine)
                        m.d.comb += legal_for_engine.eq(engine.legal(own, self.config))
            with m.Default():
                m.d.comb += legal_for_engine.eq(leaves_nothing_out(command))
        return (
            *(command[name].any() for name in ("outer", "middle", "inner", "steps", "lanes", "last_lanes")),
            command.lanes <= limit,
            command.last_lanes <= command.lanes,
            command.list + command.steps <= self.config.memory.list_entries,
            command.table < self.config.memory.tables,
            legal_for_engine,
            *packing_conditions(command, self.config),
        )
