"""The issue walks the windows of COMPUTE commands, one step per cycle, along the step lists."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ...golden.config import Config
from ...golden.engines.engine import Engine
from ...golden.units import ErrorCode, Unit
from ..engines.engine import further_results, most_further, take_fields
from ..parts.fifo import Lookahead
from ..parts.isa import ErrorReport, command_shape, report_error
from ..parts.loops import Loops
from ..parts.pipeline import Assertions
from .intake import Intake, Position, follow, is_burst
from .issue_gate import IssueGate, foreseen_limit, window_work
from .lookup import ISSUE_LATENCY, Lookup, issued_layout, lookup_members

__all__ = ["ISSUE_LATENCY", "Windows"]

_COMMAND = command_shape(isa.COMPUTE)


class _WalkState(NamedTuple):
    """The present step of the walk of a command."""

    #: Whether it is walked in this cycle.
    walk: Signal
    position: data.View
    #: Whether it is the first step of its command.
    first: Signal
    #: Whether it belongs to the first window of its command.
    first_window: Signal


class Windows(wiring.Component):
    """Issue one step per cycle: an address, a weight word and flags, ``ISSUE_LATENCY`` cycles later.

    A walker finds the steps ahead of the issue, where :class:`.issue_gate.IssueGate` is the gate. Two commands that are
    not dependent follow each other with one cycle between. Golden model: :mod:`lutterfly.golden.numerics.windows`.

    Parameters
    ----------
    config : Config
    landing_latency : dict of Engine to int
    epilogue_latency : int
        See :class:`.issue_gate.IssueGate`.

    Members
    -------
    command : In(stream of COMPUTE)
    context : Out(stream of COMPUTE)
        Each command again, before its first step is issued, for the end of the pipeline.
    halt : In(1)
        Give no step; issue none from the next cycle on.
    list_write : Out(memory.WritePort.Signature)
        Entries of the step lists.
    step : Out(step_layout), engine : Out(4), address : Out(24), weight : Out
        One step: fields of its command, the feature address of its activation word and the address of its weight word.
    engine_valid, reads : Out(1)
        ``engine`` is valid, and a step reads ``address``, even beyond a memory; registered.
    first, last : Out(1)
        The first, the last step of a command is issued.
    dependent : Out(1)
        The first step of a command is issued that has waited for all earlier results.
    issued, stalled : Out(1)
        A step is issued; a command is here but no step is issued.
    error : Out(ErrorReport)
    """

    def __init__(self, config: Config, *, landing_latency: dict[Engine, int], epilogue_latency: int = 0):
        self.config = config
        self.landing_latency = landing_latency
        self.epilogue_latency = epilogue_latency
        super().__init__(
            {
                "command": In(stream.Signature(_COMMAND)),
                "context": Out(stream.Signature(_COMMAND)),
                "halt": In(1),
                **lookup_members(config),
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
        m.submodules.intake = intake = Intake(self.config)
        m.submodules.loops = Loops(side="source", word_bits=issued_layout(self.config)["weight"].width)
        m.submodules.lookahead = lookahead = Lookahead(issued_layout(self.config), gated=["foreseen", "entry"])
        m.submodules.issue_gate = issue_gate = IssueGate(
            self.config, landing_latency=self.landing_latency, epilogue_latency=self.epilogue_latency
        )
        m.submodules.lookup = lookup = Lookup(self.config)
        wiring.connect(m, wiring.flipped(self.command), intake.command)
        active, command = Signal(), Signal(_COMMAND, reset_less=True)
        # The signal drives more logic than is near one register; so its complement has a register as well.
        take, leaves = Signal(), Signal(init=1)
        m.d.comb += [
            intake.last_engine.eq(command.engine),
            *([intake.last_further.eq(further_results(command, self.config))] if most_further(self.config) else []),
            intake.take.eq(take),
            self.context.valid.eq(~leaves),
            self.context.payload.eq(intake.offered),
        ]
        Assertions(m, platform).never(take & ~self.context.ready, "windows: a command finds no room for its context")
        with m.If(take):
            m.d.sync += command.eq(intake.offered)
        state, goes_on = self._elaborate_walk(m, command, active, take)
        # Whether the next cycle takes a command. Only a command that is taken occupies an entry of the contexts.
        takes = intake.comes & ~take & self.context.ready & ~goes_on
        m.d.sync += [take.eq(takes), leaves.eq(~takes)]
        self._elaborate_push(m, command, self._elaborate_found(m, take, state), state)

        step, issue = lookahead.output, Signal()
        # A step that was issued in the cycle before `halt` gets no further than the lookup.
        m.d.sync += issue_gate.halt.eq(self.halt)
        m.d.comb += [
            issue_gate.steps.valid.eq(step.valid),
            issue_gate.steps.payload.eq(step.payload.foreseen),
            step.ready.eq(issue_gate.steps.ready),
            issue.eq(step.valid & step.ready),
            self.issued.eq(issue),
            self.stalled.eq((active | intake.ready | step.valid) & ~issue),
            self.first.eq(issue & step.payload.first),
            self.last.eq(issue & step.payload.last),
            self.dependent.eq(issue & step.payload.foreseen.waits),
        ]
        self._elaborate_lookup(m, lookup, issue, step.payload)
        with m.If(intake.illegal):
            m.d.sync += report_error(self.error, ErrorCode.ILLEGAL_FIELD, Unit.FETCH, intake.offered.index)
        with m.Else():
            m.d.sync += self.error.eq(lookup.problem)
        return m

    def _elaborate_lookup(self, m: Module, lookup: Lookup, issue: Signal, step: data.View) -> None:
        """Add the address lookup of issued steps."""
        m.d.comb += [
            lookup.issue.eq(issue),
            lookup.issued.eq(step),
            lookup.halt.eq(self.halt),
            *(getattr(lookup.list_write, name).eq(getattr(self.list_write, name)) for name in ("addr", "data", "en")),
            *(
                getattr(self, name).eq(getattr(lookup, name))
                for name in ("step", "engine", "engine_valid", "address", "weight", "reads")
            ),
        ]

    def _elaborate_walk(self, m: Module, command: data.View, active: Signal, take: Signal) -> tuple[_WalkState, Value]:
        """Walk the active command: the loops give the window, ``position`` the step within it. Return the walk's state,
        and whether a command is active in the next cycle."""
        intake, loops, lookahead = m.submodules.intake, m.submodules.loops, m.submodules.lookahead
        position, beginning, continuation = (
            Signal(Position, name=name, reset_less=True) for name in ("position", "beginning", "continuation")
        )
        walk, window_ends, first, first_window = Signal(), Signal(), Signal(reset_less=True), Signal(reset_less=True)
        rests = Signal(init=1)
        m.d.comb += [
            window_ends.eq(walk & position.last),
            loops.command.eq(command),
            loops.first.eq(intake.offered),
            loops.first_word.eq(intake.offered.weight),
            loops.load.eq(take),
            loops.step.eq(~rests & position.takes_weight),
            loops.advance.eq(~rests & position.last),
        ]
        with m.If(walk):
            m.d.sync += first.eq(0)
            with m.If(~position.last):
                m.d.sync += follow(position, command, self.config)
            with m.Elif(loops.row_ends):
                m.d.sync += position.eq(beginning)
            with m.Else():
                m.d.sync += position.eq(continuation)
        with m.If(window_ends):
            m.d.sync += first_window.eq(0)
        goes_on = (active | take) & ~(window_ends & loops.last)
        # A register of its own for `active` and `room` enables the walk, and its complement enables the loops.
        walks = goes_on & lookahead.next_room
        m.d.sync += [active.eq(goes_on), walk.eq(walks), rests.eq(~walks)]
        with m.If(take):
            m.d.sync += [
                first.eq(1),
                first_window.eq(1),
                position.eq(intake.beginning),
                beginning.eq(intake.beginning),
                continuation.eq(intake.continuation),
            ]
        return _WalkState(walk, position, first, first_window), goes_on

    def _elaborate_found(self, m: Module, take: Signal, state: _WalkState) -> data.View:
        """Return the fields of the step that the walk gives, a cycle later."""
        intake, loops, lookahead = m.submodules.intake, m.submodules.loops, m.submodules.lookahead
        walk, position, first, _ = state
        waits, of_burst, window_begins = Signal(reset_less=True), Signal(reset_less=True), Signal(reset_less=True)
        with m.If(take):
            m.d.sync += [waits.eq(intake.waits), of_burst.eq(is_burst(intake.offered.engine, self.config))]
        with m.If(take | walk):
            m.d.sync += window_begins.eq(take | position.last)
        found = Signal(lookahead.shape, name="walked_step", reset_less=True)
        m.d.sync += [
            found.entry.eq(position.entry),
            found.weight.eq(loops.word),
            found.first.eq(first),
            found.last.eq(position.last & loops.last),
            found.foreseen.counts.eq(Mux(of_burst, window_begins, position.last)),
            found.foreseen.waits.eq(first & waits),
        ]
        if self.config.hands_over:
            changes = Signal(reset_less=True)
            with m.If(take):
                m.d.sync += changes.eq(intake.changes)
            m.d.sync += found.foreseen.changes.eq(first & changes)
        return found

    def _elaborate_push(self, m: Module, command: data.View, found: data.View, state: _WalkState) -> None:
        """Hand the step that was found to the lookahead.

        The loops' pointer comes a cycle after the walk, when the command is still the same. The sums take another
        cycle.
        """
        loops, lookahead = m.submodules.loops, m.submodules.lookahead
        walk, _, _, first_window = state
        walked, last_tile, begins = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        pushed = Signal(lookahead.shape, name="pushed", reset_less=True)
        m.d.sync += [walked.eq(walk), last_tile.eq(loops.last_tile), begins.eq(first_window)]
        m.d.sync += [
            pushed.eq(found),
            pushed.base.eq(loops.pointer),
            *take_fields(pushed, command),
            pushed.index.eq(command.index),
            pushed.foreseen.engine.eq(command.engine),
            *([pushed.foreseen.limit.eq(limit)] if len(limit := foreseen_limit(command.engine, self.config)) else []),
            pushed.foreseen.work.eq(window_work(m, command, last_tile, begins, self.config)),
            lookahead.input.valid.eq(walked),
        ]
        m.d.comb += [lookahead.reserve.eq(walk), lookahead.input.payload.eq(pushed)]
