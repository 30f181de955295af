"""Windows, proved: which steps come to the gate, and when, whatever the commands are.

The proof of IssueGate with Results takes it from here: results of a burst arrive one each cycle, because its steps are
issued so; the gate is asked at its first step; it is told of all groups and of the pause; and it is asked to wait where
a command depends on those before it, the engine changes, a command of bursts begins, or the first result of a command
could come among those of the window before. Where engines hand over, it is told of the latter three instead.

Results of several chains come in successive cycles after a window's last step. That those of two windows never meet,
also not of two commands, is a property of the order of steps: they pass the gate in this order, one each cycle at most,
so that no two are nearer in time than in the order.

Steps of WINOGRAD are issued in successive cycles as well, because its windows leave so few results that the gate never
holds one back: the results of any commands before it, and what it leaves itself, are counted here.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from amaranth.hdl import Array, Assert, Assume, Cat, Const, Cover, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.utils import ceil_log2

from cocotb_tests.support.networks.butterflies import BURST_CONFIGS, CHAIN_CONFIGS
from cocotb_tests.support.proofs import Proof, ProofError, broken, entry, inside, leave_out, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.config import Config
from lutterfly.golden.engines import DEPTHWISE, FPC, WINOGRAD, specification_of
from lutterfly.golden.engines.engine import Engine
from lutterfly.golden.engines.winograd import MOST_GROUPS
from lutterfly.golden.numerics.winograd import GROUP
from lutterfly.golden.timing.latencies import LOOKAHEAD, backlog_limit, burst_results, window_results
from lutterfly.hdl.compute import intake, issue_gate, windows
from lutterfly.hdl.compute.issue_gate import foreseen_limit
from lutterfly.hdl.engines.engine import is_whole
from lutterfly.hdl.parts.isa import EngineCommand

pytestmark = needs_yosys

#: A command's positions are worked out in so many cycles.
DEPTH = 3
#: Steps in the lookahead, in its output, and in the walker's two registers; and the one that is walked.
LENGTH = LOOKAHEAD + 4
#: Cycles from a step that counts to where its result may be read, two of them left out.
LANDING = 3
_WALK = "walks = goes_on & lookahead.next_room"


class Row:
    """All steps in their order, the next one to be issued first.

    Of each is known whether it ends a window, or a command, and whether its command is one of bursts, one whose windows
    may have several results, depends on those before it, has fewer steps in a window than the command before has
    results, or has so many that they are several groups of WINOGRAD. What comes in at the end is free.
    """

    def __init__(self, proof: Proof, m: Module, *, runs: Signal, moves: Value, config: Config):
        rows, served = {}, {}
        for name in ("window", "command", "burst", "several", "after", "early", "long", "first"):
            rows[name] = [Signal(name=f"{name}_{place}") for place in range(LENGTH)]
            served[name] = Signal(init=name in ("window", "command"), name=f"served_{name}")
            with m.If(runs & moves):
                m.d.sync += served[name].eq(rows[name][0])
            if name != "first":
                first = proof.free(LENGTH, name=f"first_{name}")
                following = Cat(rows[name][1:], proof.free(name=f"next_{name}"))
                m.d.sync += Cat(rows[name]).eq(Mux(runs, Mux(moves, following, Cat(rows[name])), first))
        begins = {name: [served[name], *rows[name]] for name in rows}
        for place in range(LENGTH):
            begins_command = begins["command"][place]
            m.d.comb += [
                Assume(~runs | ~rows["command"][place] | rows["window"][place]),
                *(
                    Assume(~runs | begins_command | (rows[name][place] == begins[name][place]))
                    for name in ("burst", "several", "after", "early", "long")
                ),
                Assume(~runs | ~rows["several"][place] | bool(engine_of_several(config)) & ~rows["burst"][place]),
                # Of the first window of its command.
                rows["first"][place].eq(begins_command | begins["first"][place] & ~begins["window"][place]),
            ]
        self.ends_window, self.ends_command = Array(rows["window"]), Array(rows["command"])
        self.is_burst, self.of_first = Array(rows["burst"]), Array(rows["first"])
        self.begins_window, self.begins_command = Array(begins["window"]), Array(begins["command"])
        self.was_burst = Array(begins["burst"])
        self.is_several, self.was_several = Array(rows["several"]), Array(begins["several"])
        self.after, self.early = Array(rows["after"]), Array(rows["early"])
        self.is_long, self.was_long = Array(rows["long"]), Array(begins["long"])
        #: There is one engine of each kind.
        kinds = zip(*(flags[name] for name in ("burst", "several") for flags in (rows, begins)), strict=False)
        changes = [
            begins & (early | is_burst | was_burst | (is_several ^ was_several))
            for begins, early, (is_burst, was_burst, is_several, was_several) in zip(
                begins["command"], rows["early"], kinds, strict=False
            )
        ]
        waits = [begins & after for begins, after in zip(begins["command"], rows["after"], strict=False)]
        if not config.hands_over:
            waits = [after | change for after, change in zip(waits, changes, strict=True)]
        self.waits, self.changes = Array(waits), Array(changes)


class WindowsProof(Proof):
    """Windows with free commands.

    What is known: every step in the lookahead, and in the two registers in front of it, says what it should. A walker
    within a window goes on in every cycle for which the lookahead has room, and where it has none there are enough
    steps until the next one comes.
    """

    def __init__(self, config: Config, *, windows: ModuleType = windows):
        super().__init__()
        self.config = config
        self.several = engine_of_several(config)
        self.windows = windows.Windows(config, landing_latency=dict.fromkeys(config.engines, LANDING))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.windows = self.windows
        unit = inside(self.windows)
        intake = inside(unit.intake)
        leave_out(unit.loops, unit.lookup)
        runs, walked = Signal(), Signal(range(LENGTH))
        m.d.sync += [runs.eq(1), walked.eq(walked + unit.walk - unit.issue)]
        row = Row(self, m, runs=runs, moves=unit.issue, config=self.config)
        given = self.windows.command
        m.d.comb += [
            given.valid.eq(self.free(name="offers") & runs),
            given.payload.as_value().eq(self.free(len(given.payload.as_value()), name="given")),
            # The command queue has checked it.
            Assume(self._is_built(given.payload.engine)),
            self.windows.context.ready.eq(self.free(name="context_ready")),
            self.windows.halt.eq(self.free(name="halt")),
            unit.loops.last_tile.eq(self.free(name="last_tile")),
            unit.loops.row_ends.eq(self.free(name="row_ends")),
            unit.loops.pointer.eq(self.free(len(unit.loops.pointer), name="pointer")),
            unit.loops.word.eq(self.free(len(unit.loops.word), name="word")),
            unit.loops.last.eq(row.ends_command[walked]),
            # What is walked is what stands in the row.
            Assume(~unit.walk | (unit.position.last == row.ends_window[walked])),
            Assume(~unit.take | (_is_burst(unit.intake.offered) == row.is_burst[walked])),
            Assume(~unit.take | (self._is_several(unit.intake.offered) == row.is_several[walked])),
            Assume(~unit.take | (unit.intake.offered.after == row.after[walked])),
            Assume(~unit.take | (self._is_early(unit) == row.early[walked])),
            Assume(~unit.take | (_is_long(unit.intake.offered) == row.is_long[walked])),
        ]

        output, within_burst = unit.lookahead.output, row.is_burst[0] & ~row.begins_window[0]
        m.d.comb += [
            # The steps of a burst follow one another.
            Assert(~within_burst | output.valid & (output.ready | unit.issue_gate.halt)),
            Assert(~output.valid | self._is_right(output.payload.foreseen, row, Const(0))),
            # What a step says was there in the cycle before, unless it is its command's first one: see ColumnHop.
            Assert(row.begins_command[0] | output.valid),
            Cover(unit.issue & within_burst & row.ends_window[0] & row.ends_command[0]),
            Cover(unit.issue & row.begins_command[0] & row.was_burst[0] & ~row.is_burst[0]),
            # The lookahead is full, and the walker within a window.
            Cover(~unit.lookahead.room & runs & ~row.begins_window[walked]),
        ]
        self._check_work(m, unit, row, walked)
        number = self._check_steps(m, unit, row, walked)
        if self.several is not None:
            self._check_distances(m, unit, number)
        if self.several == WINOGRAD:
            self._check_groups(m, unit, row, walked, number)
        self._check_intake(m, unit, intake)
        self._check_walker(m, unit, row, walked)
        self._check_lookahead(m, unit, row, walked, runs)
        return m

    def _is_right(self, foreseen: data.View, row: Row, place: Value, *, has_engine: bool = True) -> Value:
        """Whether a step says what the one at ``place`` should; its ``work`` left out."""
        is_burst = row.is_burst[place]
        limit = foreseen_limit(foreseen.engine, self.config)
        return (
            (foreseen.counts == Mux(is_burst, row.begins_window[place], row.ends_window[place]))
            & (foreseen.waits == row.waits[place])
            & (foreseen.changes == row.changes[place] if self.config.hands_over else 1)
            & (self._is_built(foreseen.engine) & ((foreseen.engine == FPC) == is_burst) if has_engine else 1)
            & ((foreseen.engine == self.several) == row.is_several[place] if has_engine and self.several else 1)
            & (foreseen.limit == limit if has_engine and len(limit) else 1)
        )

    def _check_work(self, m: Module, unit: SimpleNamespace, row: Row, walked: Signal) -> None:
        """A step says how many groups its window has, and the pause of a command, when it comes to the lookahead.

        That words come out of it as they went in is proved of the lookahead.
        """
        lanes = Mux(unit.last_tile, unit.command.last_lanes, unit.command.lanes)
        requantised, whole = (
            (lanes + group - 1) >> ceil_log2(group)
            for group in (self.config.array.requant_lanes, self.config.array.lanes)
        )
        work = Signal(8)
        groups = Mux(is_whole(unit.command, self.config), whole, requantised)
        m.d.sync += work.eq(groups * self._results(unit.command) + row.of_first[walked - 1])
        m.d.comb += Assert(~unit.lookahead.input.valid | (unit.pushed.foreseen.work == work))

    def _results(self, command: data.View) -> Value:
        """Results of a window of a command."""
        if self.several is None:
            return Const(1)
        return Mux(command.engine == self.several, EngineCommand(command, self.several)["further"] + 1, 1)

    def _most_results(self) -> int:
        return max(window_results(self.config, code) for code in self.config.engines)

    def _is_early(self, unit: SimpleNamespace) -> Value:
        """Whether a window of the next command has fewer steps than one of the command before has results."""
        return unit.intake.offered.steps < self._results(unit.command) if self.several is not None else Const(0)

    def _is_several(self, command: data.View) -> Value:
        return command.engine == self.several if self.several is not None else Const(0)

    def _groups(self, lanes: Value) -> Value:
        """Groups in which the requantiser takes a result."""
        return (lanes + self.config.array.requant_lanes - 1) >> ceil_log2(self.config.array.requant_lanes)

    def _check_steps(self, m: Module, unit: SimpleNamespace, row: Row, walked: Signal) -> Signal:
        """A window of a burst has as many steps as its command says, and so at least as many as results.

        Returns the steps that were walked since a window ended.
        """
        command, position, number = unit.command, unit.position, Signal.like(unit.command.steps)
        with m.If(unit.walk):
            m.d.sync += number.eq(Mux(position.last, 0, number + 1))
        is_burst = unit.active & row.is_burst[walked]
        m.d.comb += [
            Assert(~(is_burst & unit.walk & row.ends_window[walked]) | (number + 1 == command.steps)),
            Assert(~row.begins_window[walked] | (number == 0)),
            *(
                Assert(
                    ~is_burst
                    | (position.last == (position.steps_left == 0)) & (position.steps_left + done + 1 == command.steps)
                )
                for position, done in ((position, number), (unit.beginning, 0), (unit.continuation, 0))
            ),
        ]
        return number

    def _check_distances(self, m: Module, unit: SimpleNamespace, number: Signal) -> None:
        """After a window with further results come more steps than these before another window ends, unless its first
        step waits until they have come."""
        command, position, before = unit.command, unit.position, Signal(3, name="further_before")
        results = self._results(command)
        with m.If(unit.walk & position.last):
            m.d.sync += before.eq(results - 1)
        waits = unit.changes if self.config.hands_over else unit.waits
        is_several = unit.active & self._is_several(command)
        m.d.comb += [
            Assert((unit.active & unit.first_window) | (before == results - 1)),
            Assert(~(unit.active & unit.first_window) | waits | (before == 0) | is_several & (command.steps > before)),
            *(
                Assert(
                    ~is_several
                    | (position.last == (position.steps_left == 0))
                    & Cat(position.steps_left + done + 1 + skip == command.steps for skip in skips).any()
                )
                for position, done, skips in (
                    (position, number, (0, Mux(unit.first_window, 0, command.skip))),
                    (unit.beginning, 0, (0,)),
                    (unit.continuation, 0, (command.skip,)),
                )
            ),
            Assert(~(unit.walk & position.last) | unit.first_window & waits | (number + 1 > before)),
            Cover(unit.walk & position.last & unit.first_window & ~waits & (before == 1)),
        ]
        # Whole groups are longer than their two results take.
        if self.several != WINOGRAD:
            m.d.comb += Cover(unit.walk & position.last & unit.first_window & waits & (number < before))

    def _check_groups(self, m: Module, unit: SimpleNamespace, row: Row, walked: Signal, number: Signal) -> None:
        """The steps of a window of WINOGRAD follow one another, whatever commands are around it: never do so many
        cycles of results wait that the last one is held back.

        A window has at least as many steps as cycles of results, the pause of its command included. So the backlog,
        which is zero where the engine begins, is never above the cycles of the largest window.
        """
        gate, output, shortest, most = inside(unit.issue_gate), unit.lookahead.output, GROUP, MOST_GROUPS + 1
        limit = backlog_limit(self.config, WINOGRAD)
        # Steps since the last one that ended a window, up to two groups, in front of each place.
        since = [Signal(range(2 * GROUP + 1), name=f"since_{place}") for place in range(LENGTH + 1)]
        for place, (before, after) in enumerate(itertools.pairwise(since)):
            later = Mux(row.ends_window[place], 0, before + (before != 2 * GROUP))
            m.d.comb += after.eq(later)
            if not place:
                with m.If(unit.issue):
                    m.d.sync += before.eq(later)
            ends = (place < walked) & row.is_several[place] & row.ends_window[place]
            m.d.comb += Assert(~ends | (before + 1 >= Mux(row.is_long[place], 2 * GROUP, GROUP)))

        largest = self._most_results() * self.config.array.lanes // self.config.array.requant_lanes + 1

        def is_bounded(work: Value, place: Value) -> Value:
            return work <= Mux(row.is_several[place], Mux(row.is_long[place], most, shortest), largest)

        pushed, foreseen = walked - 1 - unit.walked, output.payload.foreseen
        within = row.is_several[0] & ~row.begins_window[0]
        m.d.comb += [
            Assert(~row.begins_window[0] | (since[0] == 0)),
            Assert(
                ~(unit.active & self._is_several(unit.command))
                | (Array(since)[walked] == Mux(number > 2 * GROUP, 2 * GROUP, number))
            ),
            Assert(
                ~self._is_several(unit.command)
                | (_is_long(unit.command) == Mux(unit.active, row.is_long[walked], row.was_long[walked]))
            ),
            # It comes out of the lookahead as it went in.
            Assert(~unit.lookahead.input.valid | is_bounded(unit.pushed.foreseen.work, pushed)),
            Assume(~output.valid | is_bounded(foreseen.work, Const(0))),
            Assert(gate.backlog <= gate.most),
            Assert(self._is_built(gate.engine) | ~gate.ended),
            Assert(gate.ended | (gate.backlog == 0) | (gate.landing == gate.backlog + LANDING + 1)),
            Assert(~gate.landed | (gate.backlog == 0)),
            Assert(~gate.handed | (gate.backlog == 0)),
            *(Assert(above == (gate.backlog > bound)) for bound, above in gate.full.items()),
            Assert(~row.was_several[0] | (gate.backlog == 0) | (gate.backlog + since[0] <= most)),
            Assert(~within | output.valid & (output.ready | unit.issue_gate.halt)),
            Cover(unit.issue & within & row.ends_window[0] & row.is_long[0] & (foreseen.work == most)),
            Cover(unit.issue & within & row.ends_window[0] & ~row.is_long[0] & (gate.backlog != 0)),
        ]
        assert shortest <= most <= limit

    def _is_built(self, engine: Value) -> Value:
        """Whether the configuration has an engine."""
        return Cat(engine == code for code in self.config.engines).any()

    def _is_legal(self, command: data.View) -> Value:
        """Whether so much of a command is as it must be."""
        lanes = self.config.array.lanes
        most = Mux(_is_burst(command), burst_results(self.config) * lanes, lanes)
        counts = (command.lanes, command.last_lanes, command.steps)
        return (
            (command.lanes <= most)
            & (command.last_lanes <= command.lanes)
            & Cat(count != 0 for count in counts).all()
            & (~_is_burst(command) | (command.steps * lanes >= command.lanes) & (command.skip == 0))
            & (self._results(command) <= self._most_results())
            & (~self._is_several(command) | (command.steps >= command.skip + self._results(command)))
            & (~self._is_several(command) | self._is_in_groups(command))
        )

    def _is_in_groups(self, command: data.View) -> Value:
        """Whether steps are whole groups, and more than cycles of results, if several results are those of WINOGRAD."""
        if self.several != WINOGRAD:
            return Const(1)
        cycles = self._groups(command.lanes) * self._results(command)
        is_whole = (command.steps % GROUP == 0) & (command.skip == 0)
        return is_whole & (cycles <= MOST_GROUPS) & (cycles < command.steps)

    def _check_intake(self, m: Module, unit: SimpleNamespace, intake: SimpleNamespace) -> None:
        given = unit.intake.offered
        changes = (given.engine != unit.command.engine) | _is_burst(given) | self._is_early(unit)
        waits = given.after if self.config.hands_over else given.after | changes
        m.d.comb += [
            Assert(~intake.waiting | self._is_built(given.engine)),
            Assert(self._is_built(unit.command.engine)),
            Assert(self._results(unit.command) <= self._most_results()),
            Assert(~intake.looked_at | intake.waiting),
            Assert(~intake.checked | intake.looked_at),
            Assert(~unit.take | unit.intake.ready & ~unit.active),
            Assert(unit.take == ~unit.leaves),
            Assert(~intake.looked_at | (unit.intake.waits == waits)),
            *([Assert(~intake.looked_at | (unit.intake.changes == changes))] if self.config.hands_over else []),
            Assert(~intake.looked_at | ~intake.fulfilled.all() | self._is_legal(given)),
            Assert(~unit.intake.ready | self._is_legal(given)),
            Assert(~(unit.active | unit.walked) | self._is_legal(unit.command)),
        ]

    def _check_walker(self, m: Module, unit: SimpleNamespace, row: Row, walked: Signal) -> None:
        active, is_burst = unit.active, row.is_burst[walked]
        m.d.comb += [
            Assert(~row.begins_command[0] | row.begins_window[0]),
            Assert(active | row.begins_command[walked]),
            Assert(unit.walk == active & unit.lookahead.room),
            Assert(~(active & unit.walked) | ~row.begins_command[walked]),
            Assert(_is_burst(unit.command) == Mux(active, is_burst, row.was_burst[walked])),
            Assert(self._is_several(unit.command) == Mux(active, row.is_several[walked], row.was_several[walked])),
            Assert(~active | (unit.of_burst == is_burst)),
            Assert(~active | (unit.first == row.begins_command[walked])),
            Assert(~active | (unit.first_window == row.of_first[walked])),
            Assert(~active | (unit.window_begins == row.begins_window[walked])),
            Assert(~(active & unit.first) | (unit.waits == row.waits[walked])),
            Assert(~unit.walked | (unit.begins == row.of_first[walked - 1])),
            Assert(~unit.walked | self._is_right(unit.found.foreseen, row, walked - 1, has_engine=False)),
        ]
        if self.config.hands_over:
            m.d.comb += Assert(~(active & unit.first) | (unit.changes == row.changes[walked]))

    def _check_lookahead(self, m: Module, unit: SimpleNamespace, row: Row, walked: Signal, runs: Signal) -> None:
        queue, input_, output = inside(unit.lookahead), unit.lookahead.input, unit.lookahead.output
        pushed = walked - 1 - unit.walked
        m.d.comb += [
            Assert(queue.free + queue.stored + queue.moved + unit.walked + input_.valid == LOOKAHEAD),
            Assert(queue.waits == (queue.stored != 0)),
            Assert(unit.lookahead.room == (runs & (queue.free != 0))),
            Assert(queue.write.addr == (queue.read.addr + queue.stored)[: len(queue.read.addr)]),
            Assert(walked == queue.stored + unit.walked + input_.valid + output.valid),
            Assert(~input_.valid | self._is_right(unit.pushed.foreseen, row, pushed)),
            # Within a command nothing is missing: after each step comes the next one, unless many are waiting.
            Assert(~output.valid | row.ends_command[0] | queue.waits),
            Assert(row.begins_command[walked] | unit.walked | (queue.stored + input_.valid >= LOOKAHEAD - 2)),
            Assert(row.begins_command[walked - unit.walked] | input_.valid | (queue.stored >= LOOKAHEAD - 3)),
        ]
        for place in range(LOOKAHEAD):
            held = data.View(unit.lookahead.shape, entry(m, queue.storage, queue.read.addr + place))
            m.d.comb += Assert((place >= queue.stored) | self._is_right(held.foreseen, row, place + output.valid))


def _is_burst(command: data.View) -> Value:
    return command.engine == FPC


def _is_long(command: data.View) -> Value:
    return command.steps >= 2 * GROUP


def engine_of_several(config: Config) -> Engine | None:
    """The engine whose windows may have several results, if there is one that gives them one after the other."""
    engines = [code for code in (DEPTHWISE, WINOGRAD) if code in config.engines]
    several = [code for code in engines if specification_of(code).issue.most_further(config)]
    assert len(several) <= 1, "the proof knows one such engine at a time"
    return several[0] if several else None


@pytest.mark.regress
@pytest.mark.parametrize("name", [*CHAIN_CONFIGS, *BURST_CONFIGS])
def test_steps_of_a_burst_follow_one_another_and_the_first_counts(name: str, tmp_path: Path) -> None:
    config = (BURST_CONFIGS | CHAIN_CONFIGS)[name]
    prove(WindowsProof(config), tmp_path, depth=DEPTH, cover_depth=24, incremental=False)


#: The configuration in which something is missed, where it is not that of most.
_SHOWN_BY = {"comes_too_early": "chains", "legal_for_engine": "neighbours", "~handed": "neighbours"}


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (windows, "Mux(of_burst, window_begins, position.last)", "position.last"),
        *(
            pytest.param(*change, marks=pytest.mark.regress)
            for change in [
                (windows, _WALK, f"{_WALK} & ~lookahead.input.valid"),
                (
                    issue_gate,
                    "Cat(Const((1 << lane_bits) - 1, lane_bits), begins)",
                    "Const((1 << lane_bits) - 1, lane_bits)",
                ),
                (
                    issue_gate,
                    "Cat(Const((1 << all_bits) - 1, all_bits), begins)",
                    "Const((1 << all_bits) - 1, all_bits)",
                ),
                (windows, "begins.eq(first_window)", "begins.eq(first_window & found.first)"),
                (intake, "later.eq(changes | is_of_burst)", "later.eq(changes)"),
                (intake, "later.eq(changes | is_of_burst)", "later.eq(is_of_burst)"),
                (intake, "later.eq(changes | is_of_burst)", "later.eq((changes | is_of_burst) & command.after)"),
                (intake, "waits.eq(waits_for)", "waits.eq(changes)"),
                (intake, "comes_too_early(command.steps, ", "comes_too_early(command.steps + 1, "),
                (windows, "foreseen.changes.eq(first & changes)", "foreseen.changes.eq(changes)"),
                (windows, "pushed.foreseen.limit.eq(limit)", "pushed.foreseen.limit.eq(~limit)"),
                (intake, "            command.lanes <= limit,\n", ""),
                # Windows of WINOGRAD whose results hold steps of the next ones back, or wait behind another engine's.
                (intake, "            legal_for_engine,\n", ""),
                (issue_gate, "waits |= step.changes & ~handed", "waits |= step.changes & 0"),
            ]
        ),
    ],
)
def test_what_breaks_it_is_found(module: ModuleType, old: str, new: str, tmp_path: Path) -> None:
    changed = broken(module, old, new)
    if module is not windows:
        part, changed = changed, broken(windows, _WALK, _WALK)
        for name in ("Intake", "IssueGate", "window_work"):
            if name in module.__all__:
                setattr(changed, name, getattr(part, name))
    name = next((name for text, name in _SHOWN_BY.items() if text in old), "two, hands over")
    proof = WindowsProof((BURST_CONFIGS | CHAIN_CONFIGS)[name], windows=changed)
    with pytest.raises(ProofError, match="does not follow"):
        prove(proof, tmp_path, depth=DEPTH, incremental=False)
