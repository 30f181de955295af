"""Cycles: predict when every command issues and completes, on the design's ideal bus."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field

from ...golden import timing
from ...golden.config import Config
from ...golden.dma import local_unit_bytes
from ...golden.isa import Engine, LocalMemory, Opcode
from ...golden.program import LayerReport
from ...golden.timing import OVERHEADS
from ..graph import Add, AveragePool, Concat, Convolution, Layer, MaxPool, Pointwise, Slice
from .plan import Command, Plan

_KINDS = {
    Add: "addition",
    AveragePool: "average pooling",
    Concat: "concatenation",
    MaxPool: "max pooling",
    Pointwise: "table",
    Slice: "slice",
}

#: First cycle, last cycle, and how many of the cycles between are taken.
Span = tuple[int, int, int]


@dataclass
class _Dma:
    """The DMA queue and its units. Times are cycles from the start of the run.

    A STORE reads in the cycles in which no step does, LOAD and FILL write in those in which no result is written. How
    long they take is known only when the COMPUTE commands beside them are, so that commands are worked out when
    somebody asks for their completion.
    """

    config: Config
    compute: _Compute
    completed: list[int] = field(default_factory=list)
    waiting: list[Command] = field(default_factory=list)
    #: When the next command may be given to its unit, the next burst requested, the next beat come, the next chunk be
    #: written.
    ready: int = 0
    request: int = 0
    bus: int = 0
    write: int = 0
    bursts: list[int] = field(default_factory=list)
    last_opcode: Opcode = Opcode.LOAD

    def completion(self, index: int) -> int:
        """When the command of this index completes; every COMPUTE command that is issued before must be known."""
        while len(self.completed) <= index:
            command = self.waiting.pop(0)
            allowed = 0 if command.waits_for is None else self.compute.completed[command.waits_for] + OVERHEADS.token
            self._run(command, allowed)
        return self.completed[index]

    def _run(self, command: Command, allowed: int) -> None:
        """Take the next command, which may begin when it is ``allowed`` to."""
        is_store = command.opcode is Opcode.STORE
        if self.completed and (command.after or is_store != (self.last_opcode is Opcode.STORE)):
            allowed = max(allowed, self.completed[-1] + 1)
        begin = max(self.ready, allowed)
        self.ready, self.last_opcode = begin + timing.command_cycles(self.config), command.opcode
        earlier = self.completed[-1] if self.completed else 0
        run = {Opcode.LOAD: self._load, Opcode.FILL: self._fill, Opcode.STORE: self._store}[command.opcode]
        self.completed.append(max(run(command.fields, begin), earlier + 1))
        command.begin, command.end = begin, self.completed[-1]

    def _load(self, fields: dict[str, int], begin: int) -> int:
        prepared = begin + OVERHEADS.load + fields["row_pieces"].bit_length()
        self.ready = max(self.ready, prepared)
        self.request = max(self.request, prepared)
        self.write = max(self.write, prepared)
        run_bytes = fields["row_pieces"] * fields["piece_bytes"]
        for row in range(fields["rows"]):
            for fold in range(fields["folds"]):
                address = (
                    fields["external"] + row * fields.get("external_row", 0) + fold * fields.get("external_fold", 0)
                )
                first_beat = None
                for beats in timing.burst_beats(self.config, address, run_bytes):
                    if len(self.bursts) >= self.config.axi.outstanding:
                        self.request = max(self.request, self.bursts[-self.config.axi.outstanding])
                    start = max(self.bus, self.request + OVERHEADS.read_latency)
                    first_beat = start if first_beat is None else first_beat
                    self.bus = start + beats
                    self.bursts.append(self.bus)
                    self.request += 1
                self.write = max(self._written(fields, max(self.write, first_beat)), self.bus)
        return self.write + OVERHEADS.load_finish

    def _written(self, fields: dict[str, int], begin: int) -> int:
        """When the bytes of a run are in their memory."""
        memory = LocalMemory(fields["memory"])
        if memory is LocalMemory.FEATURE:
            cycles = timing.chunk_cycles(self.config, fields["row_pieces"], fields["piece_bytes"])
            return self._after_writes(begin, cycles)
        unit = local_unit_bytes(memory, lanes=self.config.array.lanes)
        return begin + timing.unit_cycles(self.config, unit, fields["piece_bytes"])

    def _fill(self, fields: dict[str, int], begin: int) -> int:
        cycles = timing.fill_cycles(self.config, fields["rows"], fields["piece_bytes"])
        self.write = self._after_writes(max(self.write, begin), cycles)
        return self.write + OVERHEADS.fill

    def _store(self, fields: dict[str, int], begin: int) -> int:
        beats = sum(
            sum(timing.burst_beats(self.config, fields["external"] + row * fields["external_row"], fields["row_bytes"]))
            for row in range(fields["rows"])
        )
        return _after_free_cycles(self.compute.issues, begin, beats) + OVERHEADS.store + OVERHEADS.write_latency

    def _after_writes(self, begin: int, count: int) -> int:
        return _after_free_cycles(self.compute.writes, begin, count)


@dataclass
class _Compute:
    """The compute queue and its unit."""

    config: Config
    completed: list[int] = field(default_factory=list)
    #: Of each command, the cycles of the first and the last issue and the steps; the same of the writes of its results.
    issues: list[Span] = field(default_factory=list)
    writes: list[Span] = field(default_factory=list)
    #: When the last command was offered, when its first step was issued, when the next one's can be.
    offered: int = 0
    first_issue: int = 0
    ready: int = 0
    landed: int = 0
    backlog: int = 0
    engine: int | None = None

    def run(self, command: Command, allowed: int) -> None:
        """Take the next command, which may begin when it is ``allowed`` to."""
        fields = command.fields
        # One command waits in the unit while the one before it is worked on.
        self.offered = max(self.offered + timing.command_cycles(self.config), self.first_issue, allowed)
        first = max(self.ready, self.offered + OVERHEADS.issue)
        if command.after or fields["engine"] != self.engine:
            first = max(first, self.landed)
        idle = first - (self.issues[-1][1] + 1 if self.issues else 0)
        cycles, self.backlog = _issue(fields, max(self.backlog - idle, 0), self.config)
        self.engine = fields["engine"]
        last = first + cycles - 1
        steps = fields["steps"]
        self.issues.append((first, last, timing.issue_steps(fields)))
        self.first_issue, self.ready = first, first + cycles
        # The last window's own groups but for one, and what waits before them, come on top of the latency of a group.
        latency = timing.landing_latency(self.config, Engine(self.engine))
        self.landed = last + latency + self.backlog - 1
        self.writes.append((first + steps - 1 + latency, self.landed, _writes(fields, self.config)))
        self.completed.append(self.landed + OVERHEADS.completion)
        command.begin, command.end = first, self.completed[-1]


def _after_free_cycles(spans: list[Span], begin: int, count: int) -> int:
    """The cycle behind ``count`` cycles that no span takes, the first of them not before ``begin``."""
    now = begin
    for first, last, taken in spans[bisect.bisect_left(spans, begin, key=lambda span: span[1]):]:
        gap = max(first - now, 0)
        if gap >= count:
            break
        now, count = now + gap, count - gap
        # The cycles that are left free lie all over the span.
        free = (last + 1 - now) * (last + 1 - first - taken) // (last + 1 - first)
        if free >= count:
            return now + -(-count * (last + 1 - now) // free)
        now, count = last + 1, count - free
    return now + count


def predict(plan: Plan) -> Plan:
    """Run the synchronised commands against the clock, and report on every layer."""
    compute = _Compute(plan.config, offered=OVERHEADS.start)
    dma = _Dma(plan.config, compute, ready=OVERHEADS.start + timing.command_cycles(plan.config))
    indices: list[list[int]] = [[] for _ in plan.graph.layers]
    for command in plan.commands:
        if command.queue == "compute":
            allowed = 0 if command.waits_for is None else dma.completion(command.waits_for) + OVERHEADS.token
            indices[command.layer].append(len(compute.completed))
            compute.run(command, allowed)
        else:
            dma.waiting.append(command)
    if dma.waiting:
        dma.completion(len(dma.completed) + len(dma.waiting) - 1)
    before = 0
    for index, layer in enumerate(plan.graph.layers):
        _, last, _ = compute.issues[indices[index][-1]]
        plan.reports.append(_report(plan, index, layer, tuple(indices[index]), last - before))
        before = last
    ends = [queue.completed[-1] for queue in (dma, compute) if queue.completed]
    plan.predicted_cycles = max(ends, default=OVERHEADS.start) + OVERHEADS.finish
    return plan


def _issue(fields: dict[str, int], backlog: int, config: Config) -> tuple[int, int]:
    """Cycles that a command issues, and the groups that wait afterwards."""
    full, last = (timing.result_groups(config, fields[name]) for name in ("lanes", "last_lanes"))
    steps = fields["steps"]
    if fields.get("tile_inner"):
        windows = [(steps, full)] * (fields["inner"] - 1) + [(steps, last)]
        return timing.issue_windows(backlog, windows, fields["outer"] * fields["middle"])
    later = [steps - fields.get("skip", 0)] * (fields["inner"] - 1)
    cycles = 0
    for groups, tiles in ((full, fields["outer"] - 1), (last, 1)):
        row = [(count, groups) for count in (steps, *later)]
        more, backlog = timing.issue_windows(backlog, row, tiles * fields["middle"])
        cycles += more
    return cycles, backlog


def _writes(fields: dict[str, int], config: Config) -> int:
    """Writes of the results of a command, at most."""
    pieces = -(-fields["lanes"] // config.array.columns)
    return math.prod(fields[name] for name in ("outer", "middle", "inner")) * pieces


def _commands(plan: Plan, index: int) -> list[Command]:
    """The COMPUTE commands of a layer."""
    return [command for command in plan.queue("compute") if command.layer == index]


def _report(plan: Plan, index: int, layer: Layer, commands: tuple[int, ...], cycles: int) -> LayerReport:
    height, width, _ = plan.graph.tensors[layer.output].shape
    steps = sum(timing.issue_steps(command.fields) for command in _commands(plan, index))
    macs = height * width * layer.weights.size if isinstance(layer, Convolution) else 0
    return LayerReport(layer.name, _kind(plan, layer), commands, macs, cycles, steps, plan.operations[index].fold)


def _kind(plan: Plan, layer: Layer) -> str:
    """What a layer is, for people."""
    kind = _KINDS.get(type(layer), "convolution")
    if kind == "convolution":
        is_whole_map = layer.window.kernel == plan.graph.tensors[layer.input].shape[:2]
        if layer.groups > 1:
            kind = "depthwise" if layer.groups == len(layer.weights) else "grouped convolution"
        elif is_whole_map and plan.graph.tensors[layer.output].shape[:2] == (1, 1):
            kind = "fully connected"
    return kind if kind == "table" or getattr(layer, "table", None) is None else f"{kind}, table"
