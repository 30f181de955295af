"""IssueGate with Results, proved: whatever the commands are, no result finds the FIFO full, and none lands late.

The pipeline between the two delays every window by the same number of cycles while one engine works, and IssueGate lets
nothing of another engine pass before the last result has been served. So the first result may arrive in the cycle after
the step that counts here: what is proved of it is true of any delay. What comes behind the FIFO is left out as well, so
that a command that waits for the last result to land and one to which an engine hands over wait for the same here.
Further results of a window follow one each cycle, and so do the steps of a burst; that, what the steps tell the gate,
and that it is asked to wait where the engine changes, is proved in ``test_proof_windows.py``.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from amaranth.hdl import Array, Assert, Assume, Cat, Const, Cover, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.utils import ceil_log2

from cocotb_tests.support.networks.butterflies import BURST_CONFIGS, CHAIN_CONFIGS
from cocotb_tests.support.proofs import Proof, ProofError, broken, entry, inside, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.engines import specification_of
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.latencies import LOOKAHEAD, RESULT_WINDOWS, backlog_limit, burst_results, window_results
from lutterfly.hdl.compute import issue_gate
from lutterfly.hdl.compute.issue_gate import foreseen_limit
from lutterfly.hdl.parts.isa import command_shape
from lutterfly.hdl.results import group_walk, results
from lutterfly.hdl.results import results as result_fifo

pytestmark = needs_yosys

#: A command's context comes so many cycles before its first result, at least; in the core it is more.
CONTEXT_AHEAD = 7
#: The row is filled in the first cycle.
DEPTH = 2

#: Without bursts a group each cycle, and as many in a window as on the other presets: four.
CONFIGS = {"tiny": PRESETS["tiny"], **BURST_CONFIGS, **CHAIN_CONFIGS}

#: Windows of several results: those of bursts, and others.
KINDS = {
    "burst": lambda code, config: specification_of(code).issue.is_burst,
    "several": lambda code, config: specification_of(code).issue.most_further(config) > 0,
}
_STATE = ("begins", "is_burst", "was_burst", "is_several", "was_several")


class FreeLoops(Elaboratable):
    """In the place of the loops: commands of any number of windows, of any sizes."""

    def __init__(self, *, side: str, word_bits: int, count_bits: int):
        command = command_shape(isa.COMPUTE)
        self.more, self.first_more = Signal(max(count_bits, 1)), Signal(max(count_bits, 1))
        self.pitch = Signal(signed(isa.LOCAL_BITS))
        self.load, self.step, self.advance = Signal(), Signal(), Signal()
        self.first, self.command = Signal(command), Signal(command)
        self.first_word, self.word = Signal(word_bits), Signal(word_bits)
        self.pointer = Signal(isa.LOCAL_BITS)
        self.last_tile, self.last, self.row_ends = Signal(), Signal(), Signal()

    def elaborate(self, platform: object) -> Module:
        return Module()


class NoRam(Elaboratable):
    """In the place of the parameters, at which nobody looks."""

    def __init__(self, *, width: int, depth: int):
        self.read_address, self.read_data = Signal(range(depth)), Signal(width)
        self.write_address, self.write_data, self.write_enable = Signal(range(depth)), Signal(width), Signal()

    def elaborate(self, platform: object) -> Module:
        return Module()


_WALK = "walks = goes_on & lookahead.next_room"
_FULL = "RESULT_WINDOWS, depth"


def abstract(*, walk: tuple[str, str] = (_WALK, _WALK), fifo: tuple[str, str] = (_FULL, _FULL)) -> ModuleType:
    """A copy of the module of Results, without what has no part in when a group goes; in its walk and in its FIFO the
    second text instead of the first."""
    copy = broken(results, "class Results(", "class Results(")
    changed = broken(group_walk, *walk)
    changed.Loops, copy.Ram = FreeLoops, NoRam
    copy.GroupWalk, copy.ResultFifo = changed.GroupWalk, broken(result_fifo, *fifo).ResultFifo
    return copy


class Row:
    """All groups of all windows in their order, as far as they matter: the first one is the next to be served.

    What comes in at the end is free, so that commands are of any kind, and their windows of any size that there is.
    """

    def __init__(self, proof: Proof, m: Module, config: Config, *, length: int, runs: Signal, moves: Value):
        self.result_groups = config.array.lanes // config.array.requant_lanes
        self.results, self.of_burst = (
            max(window_results(config, code) for code in config.engines),
            burst_results(config),
        )
        self.has_bursts, self.has_several = (
            any(kind(code, config) for code in config.engines) for kind in KINDS.values()
        )
        self.ends: dict[str, list[Signal]] = {}
        #: Of the commands to which the groups belong.
        self.kinds: dict[str, list[Signal]] = {}
        # Where results of windows end that have several, whatever the lanes of a command are.
        self.parts: dict[str, list[Signal]] = {}
        for name in ("window", "command", "part", *KINDS, "whole"):
            flags = self.ends if name in ("window", "command") else self.parts if name == "part" else self.kinds
            row = flags[name] = [Signal(name=f"{name}_{place}") for place in range(length)]
            first = proof.free(length, name=f"first_{name}")
            with m.If(~runs):
                m.d.sync += Cat(row).eq(first)
            with m.Elif(moves):
                m.d.sync += Cat(row).eq(Cat(row[1:], proof.free(name=f"next_{name}")))
        served_command = Signal(init=1)
        with m.If(runs & moves):
            m.d.sync += served_command.eq(self.ends["command"][0])
        self._number(m, runs, moves)
        self._limit(m, runs)
        is_first = [number == 0 for number in self.numbers]
        self.begins = {
            "command": [served_command, *self.ends["command"]],
            "window": [first & (count == 0) for first, count in zip(is_first, self.counts, strict=True)],
            "result": [
                first | ~several & self._part(number, 0) | whole
                for first, number, several, whole in zip(
                    is_first, self.numbers, self.kinds["several"], self.kinds["whole"], strict=False
                )
            ],
        }
        self.ended_results = _running_sums(m, self.ends["result"], "ended_results")
        self.begun_commands = _running_sums(m, self.begins["command"], "begun_commands")

    def _number(self, m: Module, runs: Signal, moves: Value) -> None:
        """Number the groups of each window, or of its result if it may have several, and count these; and find the ends
        of its results."""
        places = range(len(self.ends["window"]) + 1)
        self.numbers = [Signal(range(self.most), name=f"number_{place}") for place in places]
        self.counts = [Signal(range(self.results + 1), name=f"count_{place}") for place in places]
        self.ends["result"] = []
        with m.If(runs & moves):
            m.d.sync += [self.numbers[0].eq(self.numbers[1]), self.counts[0].eq(self.counts[1])]
        flags = (self.ends["window"], self.kinds["whole"], self.kinds["several"], self.parts["part"])
        for place, (window, whole, several, part) in enumerate(zip(*flags, strict=True)):
            number, count, ends = self.numbers[place], self.counts[place], Signal(name=f"result_{place}")
            by_number = whole | self._part(number, self.result_groups - 1)
            m.d.comb += [
                self.numbers[place + 1].eq(Mux(Mux(several, ends, window), 0, number + 1)),
                self.counts[place + 1].eq(Mux(window, 0, count + (several & ends))),
                ends.eq(window | Mux(several, part, by_number)),
            ]
            self.ends["result"].append(ends)

    def _limit(self, m: Module, runs: Signal) -> None:
        """Assume that windows are of sizes that there are, and commands of one kind."""
        flags = (self.ends["window"], self.ends["command"], self.ends["result"], *self.kinds.values())
        for number, count, window, command, result, *kinds in zip(self.numbers, self.counts, *flags, strict=False):
            burst, several, whole = kinds
            most = Mux(whole, self.of_burst, Mux(burst, self.result_groups * self.of_burst, self.result_groups))
            m.d.comb += [
                Assume(~runs | Mux(several, result, window) | (number != most - 1)),
                Assume(~runs | window | ~several | ~result | (count != self.results - 1)),
                Assume(~runs | ~command | window),
                Assume(~runs | ~whole | burst),
                Assume(~runs | ~burst | self.has_bursts & ~several),
                Assume(~runs | ~several | self.has_several),
            ]
            if number is self.numbers[0]:
                m.d.comb += [Assert(~runs | (number < most)), Assert(~runs | (count < self.results))]
        for row in self.kinds.values():
            for command, kind, following in zip(self.ends["command"], row, row[1:], strict=False):
                m.d.comb += Assume(~runs | command | (kind == following))

    def _part(self, number: Value, part: int) -> Value:
        """Whether a group of this number is that part of a result."""
        return number[: ceil_log2(self.result_groups)] == part if self.result_groups > 1 else Const(1)

    @property
    def most(self) -> int:
        """Groups of a window at most."""
        return self.result_groups * self.results

    def ends_at(self, name: str, place: Value) -> Value:
        """Whether the group at ``place`` is the last one of a result, of a window, or of a command."""
        return Array(self.ends[name])[place]

    def begins_at(self, name: str, place: Value) -> Value:
        """Whether the group at ``place`` is the first one."""
        return Array(self.begins[name])[place]

    def is_of(self, kind: str, place: Value) -> Value:
        """Whether the group at ``place`` belongs to a command of this kind."""
        return Array(self.kinds[kind])[place]

    def length(self, m: Module, name: str, place: Value, most: int) -> Signal:
        """Groups, from ``place`` on, of a result or window that begins there."""
        groups = Signal(range(most + 1), name=f"groups_of_{name}")
        for count in reversed(range(1, most + 1)):
            with m.If(self.ends_at(name, place + count - 1)):
                m.d.comb += groups.eq(count)
        return groups


def _running_sums(m: Module, bits: list[Signal], name: str) -> Array:
    """How many of ``bits`` are set in front of each place."""
    sums = [Signal(range(len(bits) + 1), name=f"{name}_{place}") for place in range(len(bits) + 1)]
    m.d.comb += [after.eq(before + bit) for before, after, bit in zip(sums[:-1], sums[1:], bits, strict=True)]
    return Array(sums)


class IssueGateProof(Proof):
    """IssueGate decides over windows, and their results arrive from the next cycle on, one each cycle.

    What is known: every group that was issued is served before the backlog says so. A group whose walk is so many
    cycles old has so many of the walker's and the lookahead's registers before it, and then one cycle for each group
    and each pause before it, at most.
    """

    def __init__(
        self,
        config: Config,
        *,
        issue_gate: ModuleType = issue_gate,
        results: ModuleType | None = None,
        counts_pauses: bool = True,
    ):
        super().__init__()
        self.counts_pauses = counts_pauses
        self.config = config
        self.gate = issue_gate.IssueGate(config, landing_latency=dict.fromkeys(config.engines, 0))
        self.results = (results or abstract()).Results(config)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.gate, m.submodules.results = self.gate, self.results
        gate, unit = inside(self.gate), inside(self.results)
        # What stands in its two halves, by the same names.
        for half in (unit.fifo, unit.walker):
            unit = SimpleNamespace(**vars(inside(half)) | vars(unit))
        runs = Signal()
        m.d.sync += runs.eq(1)

        # Groups that were issued, those of them whose results have arrived, and groups that the walker has found; none
        # of them served.
        most_results = max(window_results(self.config, code) for code in self.config.engines)
        window_groups = self.config.array.lanes // self.config.array.requant_lanes * most_results
        length = max(self._limits().values()) + 2 * window_groups + 2
        issued, arrived, walked = Signal(range(length)), Signal(range(length)), Signal(range(length))
        row = Row(self, m, self.config, length=length, runs=runs, moves=unit.serve)

        # The next window begins after all that were issued, when all results of the one before are on their way.
        step, issue = self.gate.steps, Signal()
        begins, is_burst, was_burst, is_several, was_several = (Signal(name=name) for name in _STATE)
        groups, results = row.length(m, "window", issued, row.most), Signal(range(row.results + 1))
        work = Signal.like(step.payload.work)
        issues, issued_work, coming = Signal(), Signal.like(work), Signal(range(row.results))
        m.d.comb += [
            begins.eq(row.begins_at("command", issued)),
            is_burst.eq(row.is_of("burst", issued)),
            is_several.eq(row.is_of("several", issued)),
            results.eq(row.ended_results[issued + groups] - row.ended_results[issued]),
            work.eq(groups + (begins & self.counts_pauses)),
            step.valid.eq(self.free(name="offers") & runs & (coming == 0)),
            step.payload.counts.eq(1),
            step.payload.work.eq(work),
            step.payload.waits.eq(self.free(name="waits")),
            *([step.payload.changes.eq(self.free(name="changes"))] if self.config.hands_over else []),
            step.payload.engine.eq(Mux(is_burst, self._engine("burst"), self._engine("several", is_kind=is_several))),
            *([step.payload.limit.eq(limit)] if len(limit := foreseen_limit(step.payload.engine, self.config)) else []),
            Assume(
                ~(step.valid & begins)
                | step.payload.waits
                | (step.payload.changes if self.config.hands_over else 0)
                | (is_burst == was_burst) & (is_several == was_several)
            ),
            self.gate.halt.eq(self.free(name="holds")),
            issue.eq(step.valid & step.ready),
            self.results.result.valid.eq(issue | (coming != 0)),
            # Anything: a register of nothing but zeros is one that yosys refuses.
            *(self._anything(self.results.result[half], name=half) for half in ("low", "high")),
            # Yosys takes no register that stays at zero for the inputs of RAMs that are left out.
            self.results.parameter_write.en.eq(self.free(name="writes_parameter")),
            self.results.parameter_write.addr.eq(self.free(len(self.results.parameter_write.addr), name="parameter")),
            # Bursts are narrow, other results what they like.
            self.results.result.is_wide.eq(~Mux(issue, is_burst, was_burst) & self.free(name="is_wide")),
        ]
        arrives, arriving = Signal(), row.length(m, "result", arrived, row.result_groups)
        m.d.sync += [
            issues.eq(issue),
            issued_work.eq(work),
            coming.eq(Mux(issue, results - 1, Mux(coming == 0, 0, coming - 1))),
            arrives.eq(self.results.result.valid),
            issued.eq(issued + Mux(issue, groups, 0) - unit.serve),
            arrived.eq(arrived + Mux(arrives, arriving, 0) - unit.serve),
            walked.eq(walked + unit.walk - unit.serve),
        ]
        with m.If(issue):
            m.d.sync += [was_burst.eq(is_burst), was_several.eq(is_several)]

        # A context comes some cycles before the first result of its command: `spare` of them have no result yet.
        context, young, spare, pushed = self.results.context, Signal(CONTEXT_AHEAD), Signal(5), Signal()
        m.d.comb += [
            unit.loops.last_tile.eq(self.free(name="last_tile")),
            unit.loops.row_ends.eq(self.free(name="row_ends")),
            unit.loops.last.eq(row.ends_at("command", walked)),
            unit.loops.pointer.eq(self.free(len(unit.loops.pointer), name="pointer")),
            unit.loops.word.eq(self.free(len(unit.loops.word), name="word")),
            Assume(
                ~unit.walk
                | (
                    unit.last
                    == Mux(row.is_of("several", walked), *(row.ends_at(n, walked) for n in ("result", "window")))
                )
            ),
            Assume(~unit.take | (unit.takes_all == row.is_of("whole", walked))),
            context.valid.eq(self.free(name="context_offers") & runs),
            context.payload.as_value().eq(self.free(len(context.payload.as_value()), name="context")),
            pushed.eq(context.valid & context.ready),
            Assume(~(step.valid & begins) | (spare != 0)),
        ]
        m.d.sync += [young.eq(Cat(pushed, young)), spare.eq(spare + young[-1] - (issue & begins))]

        # The backlog of a cycle before, which the results that have arrived stand for.
        backlog = Signal.like(gate.backlog)
        m.d.sync += backlog.eq(gate.backlog)
        m.d.comb += [
            Assert(~unit.fifo.overflows),
            Assert(~gate.landed | (issued == 0)),
            Assert(~(issue & step.payload.waits) | (issued == 0)),
            Assert(~unit.serve | (arrived != 0)),
        ]
        if self.config.hands_over:
            m.d.comb += [
                Assert(~gate.handed | (issued == 0)),
                Assert(~(issue & step.payload.changes) | (issued == 0)),
            ]
        self._cover(m, gate, unit, row, is_burst)

        # What is known of the registers.
        self._check_gate(m, gate, backlog, issues, issued_work)
        self._check_results(m, unit, row, issued, arrived, coming, arrives=arrives, begins=issues)
        m.d.comb += [
            Assert(backlog >= Mux(issues, arrived, issued)),
            Assert(~issues | was_burst | (backlog <= self._single_limit())),
            Assert(~was_several | (unit.waiting + arrives + coming <= RESULT_WINDOWS)),
            Assert(~was_several | ~was_burst),
            Assert((coming == 0) | was_burst | was_several),
            Assert(~arrives | issues | was_burst | was_several),
            Assert(~arrives | ~unit.result_is_wide | ~was_burst),
            # Of all places that are looked at, none lies after the end of the row.
            Assert(issued <= length - row.most),
        ]
        self._check_lookahead(m, unit, row, walked, runs)
        pending = self._check_contexts(m, unit, young, runs)
        taken = row.begun_commands[walked] + (unit.active & row.begins_at("command", walked))
        m.d.comb += [
            Assert(unit.active | row.begins_at("command", walked)),
            Assert(unit.walk == unit.active & unit.lookahead.room),
            Assert(unit.number == Array(row.numbers)[walked]),
            Assert(~unit.active | (unit.whole == row.is_of("whole", walked))),
            Assert(spare + sum(young) + row.begun_commands[issued] == pending + taken),
        ]
        self._check_deadlines(m, unit, row, gate, issued, walked, young, pending)
        return m

    def _anything(self, value: data.View, *, name: str):
        return value.as_value().eq(self.free(len(value.as_value()), name=name))

    def _cover(self, m: Module, gate: SimpleNamespace, unit: SimpleNamespace, row: Row, is_burst: Value) -> None:
        """Of each kind the last group of a window of the greatest size and of one less; a window that is held back."""
        of_burst = {(1, 0): row.result_groups * row.of_burst, (1, 1): row.of_burst} if row.has_bursts else {}
        greatest = {(0, 0): row.result_groups, **of_burst}
        for (burst, whole), groups in greatest.items():
            is_kind = (row.kinds["burst"][0] == burst) & (row.kinds["whole"][0] == whole)
            for number in {max(groups - 2, 0), groups - 1}:
                m.d.comb += Cover(unit.serve & is_kind & row.ends["window"][0] & (row.numbers[0] == number))
        if row.has_several:
            m.d.comb += Cover(unit.serve & row.ends["window"][0] & (row.counts[0] == row.results - 1))
        if max(self._limits().values()) < RESULT_WINDOWS:
            # It takes more than a minute to find the commands that fill a greater backlog.
            m.d.comb += Cover(self.gate.steps.valid & gate.is_full & (is_burst == row.has_bursts))

    def _limits(self) -> dict[int, int]:
        return {code: backlog_limit(self.config, code) for code in self.config.engines}

    def _single_limit(self) -> int:
        """The greatest backlog at which anything but a burst is issued."""
        return max(limit for code, limit in self._limits().items() if not KINDS["burst"](code, self.config))

    def _engine(self, kind: str, *, is_kind: Value | int = 1) -> Value:
        """An engine of a kind, if it is one, and else one of none."""
        plain = next(code for code in self.config.engines if not any(own(code, self.config) for own in KINDS.values()))
        of_kind = [code for code in self.config.engines if KINDS[kind](code, self.config)]
        return Mux(is_kind, [*of_kind, plain][0], plain)

    def _check_results(self, m: Module, unit, row: Row, issued, arrived, coming, *, arrives, begins) -> None:
        """A result is in the FIFO, or it arrives, or it comes in one of the next cycles; there is a place for each."""
        m.d.comb += [
            Assert(unit.waiting == row.ended_results[arrived]),
            Assert(unit.waiting + arrives + coming == row.ended_results[issued]),
            Assert(unit.waiting + arrives + coming <= unit.depth),
            Assert(unit.available == (unit.waiting != 0)),
            Assert(row.begins_at("result", arrived)),
            Assert(row.begins_at("window", issued)),
            Assert(arrived <= issued),
            Assert(arrives == (arrived != issued)),
            Assert(arrives | (coming == 0)),
            Assert(arrives | ~begins),
            # Within a burst no cycle is lost: each result has a group at least, and comes before it is wanted.
            Assert(~arrives | begins | (arrived != 0)),
        ]

    def _check_deadlines(self, m: Module, unit, row: Row, gate, issued, walked, young, pending) -> None:
        """Each group, by how far it is, comes to the end of the lookahead before it must be served."""
        output, commands = unit.lookahead.output, row.begun_commands
        working = Mux(gate.backlog == 0, 0, gate.backlog - 1)
        pause = Signal()
        m.d.comb += pause.eq(~unit.active)
        found, pushed = Signal.like(walked), Signal.like(walked)
        m.d.comb += [found.eq(walked - 1), pushed.eq(walked - 1 - unit.walked)]

        def in_time(place, cycles) -> Value:
            # What is issued after the group takes a cycle for each group and each command that begins there.
            return cycles + issued + commands[issued] <= gate.backlog + place + 1 + commands[place + 1]

        def could_be(place, cycles) -> Value:
            # It would be served in time if all up to its window were issued in this cycle.
            return cycles + issued + commands[issued] <= working + place + 2 + commands[place + 1]

        def younger(cycles, contexts) -> Value:
            # The context before so many others came in the last few cycles.
            return sum(young[:cycles]) >= contexts

        m.d.comb += [
            Assert((issued == 0) | in_time(0, ~output.valid)),
            Assert(~unit.lookahead.input.valid | (pushed >= issued) | in_time(pushed, 2)),
            Assert(~unit.walked | (found >= issued) | in_time(found, 3)),
            Assert((walked >= issued) | in_time(walked, 4 + pause)),
            Assert(
                ~unit.walked
                | (found < issued)
                | could_be(found, 3)
                | row.begins_at("command", found) & younger(7, pending + 1)
            ),
            Assert(
                ~unit.active
                | (walked < issued)
                | could_be(walked, 4)
                | row.begins_at("command", walked) & younger(6, pending + 1)
            ),
            Assert(
                unit.active
                | (walked < issued)
                | ~unit.next_context.output.valid
                | could_be(walked, 5)
                | younger(5, pending)
            ),
            # No command is issued whose context the walker could not have.
            Assert(unit.active | (walked >= issued) | unit.next_context.output.valid),
        ]

    def _check_gate(self, m: Module, gate: SimpleNamespace, backlog, issues, issued_work) -> None:
        working = Mux(backlog == 0, 0, backlog - 1)
        m.d.comb += [
            Assert(gate.backlog == working + Mux(issues, issued_work, 0)),
            Assert(gate.backlog <= gate.most),
            *(Assert(above == (gate.backlog > limit)) for limit, above in gate.full.items()),
            Assert(gate.ended == issues),
            Assert(gate.ended | (gate.backlog == 0) | (gate.landing == gate.backlog + 1)),
        ]

    def _check_lookahead(self, m: Module, unit: SimpleNamespace, row: Row, walked, runs) -> None:
        queue, output = inside(unit.lookahead), unit.lookahead.output
        underway = unit.walked + unit.lookahead.input.valid
        m.d.comb += [
            Assert(queue.free + queue.stored + queue.moved + underway == LOOKAHEAD),
            Assert(queue.waits == (queue.stored != 0)),
            Assert(unit.lookahead.room == (runs & (queue.free != 0))),
            Assert(queue.write.addr == (queue.read.addr + queue.stored)[: len(queue.read.addr)]),
            Assert(walked == queue.stored + underway + output.valid),
            Assert(~output.valid | (output.payload.pops == row.ends["result"][0])),
        ]
        # Each place of the queue, and the two registers in front of it, hold the group that they should.
        for place in range(LOOKAHEAD):
            held = data.View(unit.lookahead.shape, entry(m, queue.storage, queue.read.addr + place))
            stands = row.ends_at("result", place + output.valid)
            m.d.comb += Assert((place >= queue.stored) | (held.pops == stands))
        m.d.comb += [
            Assert(~unit.walked | (unit.found.pops == row.ends_at("result", walked - 1))),
            Assert(~unit.lookahead.input.valid | (unit.pushed.pops == row.ends_at("result", walked - 1 - unit.walked))),
        ]

    def _check_contexts(self, m: Module, unit: SimpleNamespace, young, runs) -> Value:
        """Return how many contexts the walker has not taken."""
        queue, output, taken = inside(unit.contexts), unit.next_context.output, Signal()
        m.d.sync += taken.eq(output.valid & output.ready)
        m.d.comb += [
            Assert(unit.contexts.output.valid == (queue.level != 0)),
            Assert(unit.contexts.input.ready == (runs & (queue.level < unit.contexts.depth))),
            Assert(queue.level <= unit.contexts.depth),
            # Nothing waits in the queue while the slot is empty, but where it has just been emptied.
            Assert(output.valid | (queue.level == young[0]) | taken),
            Assert(~taken | unit.active),
            Assert(unit.take == (output.valid & ~unit.active)),
        ]
        return queue.level + output.valid


@pytest.mark.parametrize(
    "config",
    [
        "tiny",
        *(pytest.param(name, marks=pytest.mark.regress) for name in ("two, hands over", "two", "chains", "eight")),
    ],
)
def test_no_result_finds_the_fifo_full_or_lands_late(config: str, tmp_path: Path) -> None:
    prove(IssueGateProof(CONFIGS[config]), tmp_path, depth=DEPTH, cover_depth=24, incremental=False)


_GATE = {
    # Then one of the results under way has no place of its own. None need be lost: others are served while they come.
    "limit": ("more > limit, working > limit", "more > limit + 1, working > limit + 1"),
    # What the core did when bursts were new.
    "counter": ("max(limits) + ", "_SINGLE_LIMIT + "),
    "landing": ("(landing <= 1))]", "(landing <= 2))]"),
    "waits": ("waits = step.waits & ~landed", "waits = step.waits & 0"),
    "handed": ("landing <= 1 + self.epilogue_latency", "landing <= 2 + self.epilogue_latency"),
    "changes": ("waits |= step.changes & ~handed", "waits |= step.changes & 0"),
}


def _changes(name: str) -> dict:
    """What is broken in the surroundings, in the gate or in Results."""
    if name == "pauses":
        # What the core did until long runs of commands were tried.
        return {"counts_pauses": False}
    if name in _GATE:
        return {"issue_gate": broken(issue_gate, *_GATE[name])}
    return {
        "walker": {"results": abstract(walk=(_WALK, f"{_WALK} & ~lookahead.input.valid"))},
        # A whole group is a result.
        "whole": {"results": abstract(walk=("return whole | number[", "return number["))},
        "places": {"results": abstract(fifo=(_FULL, "RESULT_WINDOWS, 8"))},
        # One place fewer than results that may wait.
        "wide places": {"results": abstract(fifo=(_FULL, "RESULT_WINDOWS - 1, depth"))},
    }[name]


@pytest.mark.parametrize(
    ("config", "change"),
    [
        ("chains", "limit"),
        *(
            pytest.param(*case, marks=pytest.mark.regress)
            for case in [
                ("two", "limit"),
                ("tiny", "pauses"),
                ("tiny", "limit"),
                ("tiny", "landing"),
                ("tiny", "walker"),
                ("two", "pauses"),
                ("two", "landing"),
                ("two", "waits"),
                ("two, hands over", "handed"),
                ("two, hands over", "changes"),
                ("two", "walker"),
                ("two", "whole"),
                ("two", "wide places"),
                ("eight", "counter"),
                ("eight", "places"),
            ]
        ),
    ],
)
def test_what_breaks_it_is_found(config: str, change: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="does not follow"):
        prove(
            IssueGateProof(CONFIGS[config], **_changes(change)),
            tmp_path,
            depth=DEPTH,
            cover_depth=24,
            incremental=False,
        )
