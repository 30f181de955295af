"""Foresight with Results, proved: whatever the commands, no result finds the FIFO full, and none lands late.

The pipeline between the two delays every window by the same number of cycles while one engine works, and Foresight lets
nothing of another engine pass before the last result has landed. So results may arrive in the cycle after their issue
here: what is proved of them is true of any delay.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from amaranth.hdl import Array, Assert, Assume, Cat, Cover, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data
from formal import Proof, ProofError, broken, entry, inside, needs_yosys, prove

from lutterfly.golden import isa, timing
from lutterfly.golden.config import PRESETS, Config
from lutterfly.hdl.compute import foresight, results
from lutterfly.hdl.parts.isa import command_shape

pytestmark = needs_yosys

#: A command's context comes so many cycles before its first result, at least; in the core it is more.
CONTEXT_AHEAD = 7
#: The row is filled in the first cycle.
DEPTH = 2


class FreeLoops(Elaboratable):
    """In the place of the loops: commands of any number of windows, of any sizes."""

    def __init__(self, *, side: str, word_bits: int):
        command = command_shape(isa.COMPUTE)
        self.load, self.step, self.advance = Signal(), Signal(), Signal()
        self.first, self.command = Signal(command), Signal(command)
        self.first_word, self.word = Signal(word_bits), Signal(word_bits)
        self.pointer = Signal(isa.LOCAL_BITS)
        self.last_tile, self.last = Signal(), Signal()

    def elaborate(self, platform: object) -> Module:
        return Module()


class NoRam(Elaboratable):
    """In the place of the parameters, at which nobody looks."""

    def __init__(self, *, width: int, depth: int):
        self.read_address, self.read_data = Signal(range(depth)), Signal(width)
        self.write_address, self.write_data, self.write_enable = Signal(range(depth)), Signal(width), Signal()

    def elaborate(self, platform: object) -> Module:
        return Module()


_WALK = "walk.eq(active & lookahead.room)"


def abstract(walk: str = _WALK) -> ModuleType:
    """A copy of the module of Results without what has no part in when a group goes; ``walk``: when its walker goes."""
    copy = broken(results, _WALK, walk)
    copy.Loops, copy.Ram = FreeLoops, NoRam
    return copy


class Row:
    """All groups of all windows in their order, as far as they matter: the first one is the next to be served.

    What comes in at the end is free, so that commands are of any kind.
    """

    def __init__(self, proof: Proof, m: Module, *, length: int, most: int, runs: Signal, moves: Value):
        self.ends: dict[str, list[Signal]] = {}
        self.served: dict[str, Signal] = {}
        for name in ("window", "command"):
            served = self.served[name] = Signal(init=1, name=f"served_{name}")
            row = self.ends[name] = [Signal(name=f"ends_{name}_{place}") for place in range(length)]
            first = proof.free(length, name=f"first_{name}")
            with m.If(~runs):
                m.d.sync += Cat(row).eq(first)
            with m.Elif(moves):
                m.d.sync += Cat(served, row).eq(Cat(row, proof.free(name=f"next_{name}")))
        windows = Cat(self.served["window"], *self.ends["window"])
        m.d.comb += [Assume(~runs | windows[place : place + most].any()) for place in range(length + 2 - most)]
        m.d.comb += [
            Assume(~runs | ~command | window)
            for window, command in zip(self.ends["window"], self.ends["command"], strict=True)
        ]
        self.ended_windows = _running_sums(m, self.ends["window"], "ended_windows")
        self.begun_commands = _running_sums(m, [self.served["command"], *self.ends["command"]], "begun_commands")

    def ends_at(self, name: str, place: Value) -> Value:
        """Whether the group at ``place`` is the last one of a window, or of a command."""
        return Array(self.ends[name])[place]

    def begins(self, name: str, place: Value) -> Value:
        """Whether the group at ``place`` is the first one."""
        return Array([self.served[name], *self.ends[name]])[place]


def _running_sums(m: Module, bits: list[Signal], name: str) -> Array:
    """How many of ``bits`` are set in front of each place."""
    sums = [Signal(range(len(bits) + 1), name=f"{name}_{place}") for place in range(len(bits) + 1)]
    m.d.comb += [after.eq(before + bit) for before, after, bit in zip(sums[:-1], sums[1:], bits, strict=True)]
    return Array(sums)


class ForesightProof(Proof):
    """Foresight decides over windows, and their results arrive a cycle later.

    What is known: every group that was issued is served before the backlog says so. A group whose walk is so many
    cycles old has so many of the walker's and the lookahead's registers before it, and then one cycle for each group
    and each pause before it, at most.
    """

    def __init__(
        self,
        config: Config,
        *,
        foresight: ModuleType = foresight,
        results: ModuleType | None = None,
        counts_pauses: bool = True,
    ):
        super().__init__()
        self.counts_pauses = counts_pauses
        self.config = config
        self.most = config.array.lanes // config.array.requant_lanes
        self.gate = foresight.Foresight(config, landing_latency=dict.fromkeys(config.engines, 0))
        self.results = (results or abstract()).Results(config)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.gate, m.submodules.results = self.gate, self.results
        gate, unit = inside(self.gate), inside(self.results)
        runs = Signal()
        m.d.sync += runs.eq(1)

        # Groups whose results have arrived, and groups that the walker has found, none of them served.
        length = timing.BACKLOG_LIMIT + 2 * self.most + 2
        arrived, walked = Signal(range(length)), Signal(range(length))
        row = Row(self, m, length=length, most=self.most, runs=runs, moves=unit.serve)

        # The next window begins behind all that were issued.
        step, issue = self.gate.steps, Signal()
        issued, begins = Signal(range(length)), Signal()
        groups, work = Signal(range(self.most + 1)), Signal.like(step.payload.work)
        arrives, arriving, arriving_work = Signal(), Signal.like(groups), Signal.like(work)
        for count in reversed(range(1, self.most + 1)):
            with m.If(row.ends_at("window", issued + count - 1)):
                m.d.comb += groups.eq(count)
        m.d.comb += [
            issued.eq(arrived + Mux(arrives, arriving, 0)),
            begins.eq(row.begins("command", issued)),
            work.eq(groups + (begins & self.counts_pauses)),
            step.valid.eq(self.free(name="offers") & runs),
            step.payload.counts.eq(1),
            step.payload.work.eq(work),
            step.payload.waits.eq(self.free(name="waits")),
            self.gate.halt.eq(self.free(name="holds")),
            issue.eq(step.valid & step.ready),
            self.results.result.valid.eq(issue),
        ]
        m.d.sync += [
            arrives.eq(issue),
            arriving.eq(groups),
            arriving_work.eq(work),
            arrived.eq(issued - unit.serve),
            walked.eq(walked + unit.walk - unit.serve),
        ]

        # A context comes some cycles before the first result of its command: `spare` of them have no result yet.
        context, young, spare, pushed = self.results.context, Signal(CONTEXT_AHEAD), Signal(5), Signal()
        m.d.comb += [
            unit.loops.last_tile.eq(self.free(name="last_tile")),
            unit.loops.last.eq(row.ends_at("command", walked)),
            unit.loops.pointer.eq(self.free(len(unit.loops.pointer), name="pointer")),
            unit.loops.word.eq(self.free(len(unit.loops.word), name="word")),
            Assume(~unit.walk | (unit.last == row.ends_at("window", walked))),
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
            Assert(~unit.overflows),
            Assert(~gate.landed | (arrived == 0) & ~arrives),
            Assert(backlog >= arrived),
            Cover(unit.serve & (unit.waiting == 2)),
        ]

        # What is known of the registers.
        self._check_gate(m, gate, backlog, arrives, arriving_work)
        m.d.comb += [
            Assert(unit.waiting == row.ended_windows[arrived]),
            Assert(unit.available == (unit.waiting != 0)),
            Assert(row.begins("window", arrived)),
            Assert(row.begins("window", issued)),
        ]
        self._check_lookahead(m, unit, row, walked, runs)
        pending = self._check_contexts(m, unit, young, runs)
        taken = row.begun_commands[walked] + (unit.active & row.begins("command", walked))
        m.d.comb += [
            Assert(unit.active | row.begins("command", walked)),
            Assert(spare + sum(young) + row.begun_commands[issued] == pending + taken),
        ]
        self._check_deadlines(m, unit, row, gate, issued, walked, young, pending)
        return m

    def _check_deadlines(self, m: Module, unit, row: Row, gate, issued, walked, young, pending) -> None:
        """Each group, by how far it is, comes to the end of the lookahead before it must be served."""
        output, commands = unit.lookahead.output, row.begun_commands
        working = Mux(gate.backlog == 0, 0, gate.backlog - 1)
        pause = Signal()
        m.d.comb += pause.eq(~unit.active)
        found, pushed = Signal.like(walked), Signal.like(walked)
        m.d.comb += [found.eq(walked - 1), pushed.eq(walked - 1 - unit.walked)]

        def in_time(place, cycles) -> Value:
            # What is issued behind the group takes a cycle for each group and each command that begins there.
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
                | row.begins("command", found) & younger(7, pending + 1)
            ),
            Assert(
                ~unit.active
                | (walked < issued)
                | could_be(walked, 4)
                | row.begins("command", walked) & younger(6, pending + 1)
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

    def _check_gate(self, m: Module, gate: SimpleNamespace, backlog, arrives, arriving_work) -> None:
        working = Mux(backlog == 0, 0, backlog - 1)
        m.d.comb += [
            Assert(gate.backlog == working + Mux(arrives, arriving_work, 0)),
            Assert(gate.backlog <= gate.most),
            Assert(gate.ended == arrives),
            Assert(gate.ended | (gate.backlog == 0) | (gate.landing == gate.backlog + 1)),
        ]

    def _check_lookahead(self, m: Module, unit: SimpleNamespace, row: Row, walked, runs) -> None:
        queue, output = inside(unit.lookahead), unit.lookahead.output
        underway = unit.walked + unit.lookahead.input.valid
        m.d.comb += [
            Assert(queue.free + queue.stored + underway == timing.LOOKAHEAD),
            Assert(queue.waits == (queue.stored != 0)),
            Assert(unit.lookahead.room == (runs & (queue.free != 0))),
            Assert(queue.write.addr == (queue.read.addr + queue.stored)[: len(queue.read.addr)]),
            Assert(walked == queue.stored + underway + output.valid),
            Assert(~output.valid | (output.payload.pops == row.ends["window"][0])),
        ]
        # Each place of the queue, and the two registers in front of it, hold the group that they should.
        for place in range(timing.LOOKAHEAD):
            held = data.View(unit.lookahead.shape, entry(m, queue.storage, queue.read.addr + place))
            stands = row.ends_at("window", place + output.valid)
            m.d.comb += Assert((place >= queue.stored) | (held.pops == stands))
        m.d.comb += [
            Assert(~unit.walked | (unit.found.pops == row.ends_at("window", walked - 1))),
            Assert(~unit.lookahead.input.valid | (unit.pushed.pops == row.ends_at("window", walked - 1 - unit.walked))),
        ]

    def _check_contexts(self, m: Module, unit: SimpleNamespace, young, runs) -> Value:
        """Return how many contexts the walker has not taken."""
        queue, buffer = inside(unit.contexts), inside(unit.next_context)
        output = unit.next_context.output
        m.d.comb += [
            Assert(unit.contexts.output.valid == (queue.level != 0)),
            Assert(unit.contexts.input.ready == (runs & (queue.level < unit.contexts.depth))),
            Assert(queue.level <= unit.contexts.depth),
            Assert(unit.next_context.input.ready == (runs & ~buffer.has_spare)),
            Assert(~buffer.has_spare | output.valid),
            # Nothing waits in the first queue while the second one is empty.
            Assert(output.valid | (queue.level == young[0])),
        ]
        return queue.level + output.valid + buffer.has_spare


def test_no_result_finds_the_fifo_full_or_lands_late(tmp_path: Path) -> None:
    # A group each cycle, and as many in a window as on the other presets: four.
    prove(ForesightProof(PRESETS["tiny"]), tmp_path, depth=DEPTH, cover_depth=16, incremental=False)


@pytest.mark.regress
@pytest.mark.parametrize(
    "changes",
    [
        # What the core did until long runs of commands were tried.
        {"counts_pauses": False},
        {"foresight": broken(foresight, "backlog > BACKLOG_LIMIT", "backlog > BACKLOG_LIMIT + 1")},
        {"foresight": broken(foresight, "landing <= 1", "landing <= 2")},
        {"results": abstract("walk.eq(active & lookahead.room & ~lookahead.input.valid)")},
    ],
    ids=["pauses", "limit", "landing", "walker"],
)
def test_what_breaks_it_is_found(changes: dict, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="does not follow"):
        prove(ForesightProof(PRESETS["tiny"], **changes), tmp_path, depth=DEPTH, cover_depth=16, incremental=False)
