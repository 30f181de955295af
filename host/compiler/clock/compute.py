"""The compute queue against the clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ....golden import timing
from ....golden.config import Config
from ....golden.engines import specification
from ....golden.timing import LOOKAHEAD, OVERHEADS
from ..plan import Command
from .bus import ReadBus

#: A time in which something is taken: first cycle, last cycle, and how many of these cycles are.
Busy = tuple[int, int, int]


@dataclass
class ComputeClock:
    """The compute queue and its unit."""

    config: Config
    bus: ReadBus
    completed: list[int] = field(default_factory=list)
    #: Of each command, the cycles of the first and the last issue and the steps; the same of the steps that read; the
    #: same of the writes of its results, those of its last tile apart from those of the others.
    issues: list[Busy] = field(default_factory=list)
    reads: list[Busy] = field(default_factory=list)
    writes: list[Busy] = field(default_factory=list)
    #: When the last command was offered, when its walk began, and when it ended.
    offered: int = OVERHEADS.start
    taken: int = 0
    walked: int = 0
    landed: int = 0
    backlog: int = 0
    engine: int | None = None

    def run(self, command: Command, allowed: int) -> None:
        """Take the next command, which may begin when it is ``allowed`` to."""
        fields = command.fields
        # One command waits in the unit while the one before it is walked.
        arrival = self.bus.arrival("compute", len(self.completed))
        self.offered = max(self.offered + timing.command_cycles(self.config), self.taken + 1, allowed, arrival)
        self.bus.taken("compute", self.offered)
        self.taken = max(self.offered + OVERHEADS.intake, self.walked + 1)
        behind = self.issues[-1][1] + 1 if self.issues else 0
        first = max(behind, self.taken + OVERHEADS.issue)
        is_burst = specification(fields["engine"]).is_burst
        if command.after or fields["engine"] != self.engine or is_burst:
            first = max(first, self.landed)
        self.backlog = max(self.backlog - (first - behind), 0)
        self.engine = fields["engine"]
        latency = timing.landing_latency(self.config, fields)
        now, begins = first, True
        for windows, rounds, writes in _tiles(fields, self.config):
            cycles, self.backlog = timing.issue_windows(
                self.backlog,
                windows,
                rounds,
                begins=begins,
                burst_limit=timing.burst_limit(self.config) if is_burst else None,
            )
            # Results are written in order: its own come behind those that wait before them.
            written = self.writes[-1][1] + 1 if self.writes else 0
            begin_write = max(now + (0 if is_burst else fields["steps"] - 1) + latency, written)
            now, begins = now + cycles, False
            # The last window's own groups but for one, and what waits before them, come on top of the latency of a
            # group.
            self.landed = now - 1 + latency + self.backlog - 1
            self.writes.append((begin_write, self.landed, writes))
        last = now - 1
        self.issues.append((first, last, timing.issue_steps(fields)))
        self.reads.append((first, last, timing.read_steps(self.config, fields)))
        # The walker is ahead of the issue by what lies between them, the gate's own register included, and no more.
        self.walked = max(self.taken + self.issues[-1][2], self._issued(LOOKAHEAD + 1))
        self.completed.append(self.landed + OVERHEADS.completion)
        command.begin, command.end = first, self.completed[-1]

    def _issued(self, before: int) -> int:
        """When the step so many before the last one was issued."""
        for _, last, steps in reversed(self.issues):
            if before < steps:
                return last - before
            before -= steps
        return 0


def _tiles(fields: dict[str, int], config: Config) -> Iterator[tuple[list[tuple[int, int]], int, int]]:
    """Parts of a command whose windows have the same results: steps and groups of each window of a round, the rounds,
    and the writes in all of them."""
    steps, rounds = fields["steps"], fields["middle"] * fields["outer"]
    full, last = fields["lanes"], fields["last_lanes"]
    if fields.get("tile_inner"):
        lanes = [full] * (fields["inner"] - 1) + [last]
        parts = [([steps] * fields["inner"], lanes, rounds)]
    else:
        row = [steps, *[steps - fields.get("skip", 0)] * (fields["inner"] - 1)]
        parts = [
            (row, [count] * fields["inner"], tiles * fields["middle"])
            for count, tiles in ((full, fields["outer"] - 1), (last, 1))
            if tiles
        ]
    for row, lanes, rounds in parts:
        is_direct = bool(specification(fields["engine"]).is_direct(fields))
        groups = [timing.result_groups(config, count, is_direct=is_direct) for count in lanes]
        pieces = sum(groups) if is_direct else sum(-(-count // config.array.columns) for count in lanes)
        yield list(zip(row, groups, strict=True)), rounds, rounds * pieces
