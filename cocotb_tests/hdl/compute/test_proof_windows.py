"""Windows, proved: which steps come to the gate, and when, whatever the commands are.

The proof of Foresight with Results takes it from here: results of a burst arrive one each cycle, because its steps are
issued so; the gate is asked at its first step; it is told of all groups and of the pause; and it is asked to wait where
a command depends on those before it, the engine changes, a command of bursts begins, or the first result of a command
could come among those of the window before. Where engines hand over, it is told of the latter three instead.

Results of several chains come in successive cycles after a window's last step. That those of two windows never meet,
also not of two commands, is a property of the order of steps: they pass the gate in this order, one each cycle at most,
so that no two are nearer in time than in the order.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from amaranth.hdl import Array, Assert, Assume, Cat, Const, Cover, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.utils import ceil_log2

from cocotb_tests.support.extras import needs_yosys
from cocotb_tests.support.proofs.formal import Proof, broken, entry, inside, leave_out
from cocotb_tests.support.proofs.prove import ProofError, prove
from cocotb_tests.support.quantised.fpc_configs import BURST_CONFIGS, CHAIN_CONFIGS
from lutterfly.golden.config import Config
from lutterfly.golden.engines import DEPTHWISE, FPC
from lutterfly.golden.timing.latencies import LOOKAHEAD, burst_results, window_results
from lutterfly.hdl.compute import foresight, intake, windows
from lutterfly.hdl.compute.foresight import foreseen_limit
from lutterfly.hdl.engines.engine import is_whole
from lutterfly.hdl.parts.isa import EngineCommand

pytestmark = needs_yosys

#: A command's positions are worked out in so many cycles.
DEPTH = 3
#: Steps in the lookahead, in its output, and in the walker's two registers; and the one that is walked.
LENGTH = LOOKAHEAD + 4
_WALK = "walks = goes_on & lookahead.next_room"


class Row:
    """All steps in their order, the next one to be issued first.

    Of each is known whether it ends a window, or a command, and whether its command is one of bursts, one whose windows
    may have several results, depends on those before it, or has fewer steps in a window than the command before has
    results. What comes in at the end is free.
    """

    def __init__(self, proof: Proof, m: Module, *, runs: Signal, moves: Value, config: Config):
        rows, served = {}, {}
        for name in ("window", "command", "burst", "several", "after", "early", "first"):
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
                    for name in ("burst", "several", "after", "early")
                ),
                Assume(~runs | ~rows["several"][place] | (DEPTHWISE in config.engines) & ~rows["burst"][place]),
                # Of the first window of its command.
                rows["first"][place].eq(begins_command | begins["first"][place] & ~begins["window"][place]),
            ]
        self.ends_window, self.ends_command = Array(rows["window"]), Array(rows["command"])
        self.is_burst, self.of_first = Array(rows["burst"]), Array(rows["first"])
        self.begins_window, self.begins_command = Array(begins["window"]), Array(begins["command"])
        self.was_burst = Array(begins["burst"])
        self.is_several, self.was_several = Array(rows["several"]), Array(begins["several"])
        self.after, self.early = Array(rows["after"]), Array(rows["early"])
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
        self.windows = windows.Windows(config, landing_latency=dict.fromkeys(config.engines, 3))

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
            Assume(self._is_built(given.payload)),
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
            Assume(~unit.take | (_is_several(unit.intake.offered) == row.is_several[walked])),
            Assume(~unit.take | (unit.intake.offered.after == row.after[walked])),
            Assume(~unit.take | (self._is_early(unit) == row.early[walked])),
        ]

        output, within_burst = unit.lookahead.output, row.is_burst[0] & ~row.begins_window[0]
        m.d.comb += [
            # The steps of a burst follow one another.
            Assert(~within_burst | output.valid & (output.ready | unit.foresight.halt)),
            Assert(~output.valid | self._is_right(output.payload.foreseen, row, Const(0))),
            Cover(unit.issue & within_burst & row.ends_window[0] & row.ends_command[0]),
            Cover(unit.issue & row.begins_command[0] & row.was_burst[0] & ~row.is_burst[0]),
            # The lookahead is full, and the walker within a window.
            Cover(~unit.lookahead.room & runs & ~row.begins_window[walked]),
        ]
        self._check_work(m, unit, row, walked)
        number = self._check_steps(m, unit, row, walked)
        if DEPTHWISE in self.config.engines:
            self._check_distances(m, unit, number)
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
            & ((foreseen.engine == FPC) == is_burst if has_engine else 1)
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
        if DEPTHWISE not in self.config.engines:
            return Const(1)
        return Mux(command.engine == DEPTHWISE, EngineCommand(command, DEPTHWISE)["further"] + 1, 1)

    def _most_results(self) -> int:
        return max(window_results(self.config, code) for code in self.config.engines)

    def _is_early(self, unit: SimpleNamespace) -> Value:
        """Whether a window of the next command has fewer steps than one of the command before has results."""
        return unit.intake.offered.steps < self._results(unit.command) if DEPTHWISE in self.config.engines else Const(0)

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
        is_several = unit.active & _is_several(command)
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
            Cover(unit.walk & position.last & unit.first_window & waits & (number < before)),
        ]

    def _is_built(self, command: data.View) -> Value:
        """Whether the configuration has its engine."""
        return Cat(command.engine == code for code in self.config.engines).any()

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
            & (~_is_several(command) | (command.steps >= command.skip + self._results(command)))
        )

    def _check_intake(self, m: Module, unit: SimpleNamespace, intake: SimpleNamespace) -> None:
        given = unit.intake.offered
        changes = (given.engine != unit.command.engine) | _is_burst(given) | self._is_early(unit)
        waits = given.after if self.config.hands_over else given.after | changes
        m.d.comb += [
            Assert(~intake.waiting | self._is_built(given)),
            Assert(self._is_built(unit.command)),
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
            Assert(_is_several(unit.command) == Mux(active, row.is_several[walked], row.was_several[walked])),
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
            # Within a window nothing is missing: after each step comes the next one, unless many are waiting.
            Assert(~output.valid | row.ends_window[0] | queue.waits),
            Assert(row.begins_window[walked] | unit.walked | (queue.stored + input_.valid >= LOOKAHEAD - 2)),
            Assert(row.begins_window[walked - unit.walked] | input_.valid | (queue.stored >= LOOKAHEAD - 3)),
        ]
        for place in range(LOOKAHEAD):
            held = data.View(unit.lookahead.shape, entry(m, queue.storage, queue.read.addr + place))
            m.d.comb += Assert((place >= queue.stored) | self._is_right(held.foreseen, row, place + output.valid))


def _is_burst(command: data.View) -> Value:
    return command.engine == FPC


def _is_several(command: data.View) -> Value:
    return command.engine == DEPTHWISE


@pytest.mark.regress
@pytest.mark.parametrize("name", ["chains", *BURST_CONFIGS])
def test_steps_of_a_burst_follow_one_another_and_the_first_counts(name: str, tmp_path: Path) -> None:
    config = (BURST_CONFIGS | CHAIN_CONFIGS)[name]
    prove(WindowsProof(config), tmp_path, depth=DEPTH, cover_depth=24, incremental=False)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (windows, "Mux(of_burst, window_begins, position.last)", "position.last"),
        *(
            pytest.param(*change, marks=pytest.mark.regress)
            for change in [
                (windows, _WALK, f"{_WALK} & ~lookahead.input.valid"),
                (
                    foresight,
                    "Cat(Const((1 << lane_bits) - 1, lane_bits), begins)",
                    "Const((1 << lane_bits) - 1, lane_bits)",
                ),
                (
                    foresight,
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
            ]
        ),
    ],
)
def test_what_breaks_it_is_found(module: ModuleType, old: str, new: str, tmp_path: Path) -> None:
    changed = broken(module, old, new)
    if module is not windows:
        part, changed = changed, broken(windows, _WALK, _WALK)
        for name in ("Intake", "window_work"):
            if name in module.__all__:
                setattr(changed, name, getattr(part, name))
    config = CHAIN_CONFIGS["chains"] if "comes_too_early" in old else BURST_CONFIGS["two, hands over"]
    proof = WindowsProof(config, windows=changed)
    with pytest.raises(ProofError, match="does not follow"):
        prove(proof, tmp_path, depth=DEPTH, incremental=False)
