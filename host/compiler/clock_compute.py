"""The compute queue against the clock."""
from __future__ import annotations

import math
from dataclasses import dataclass, field

from ...golden import timing
from ...golden.config import Config
from ...golden.isa import Engine
from ...golden.timing import LOOKAHEAD, OVERHEADS
from .clock_bus import ReadBus
from .plan import Command

#: First cycle, last cycle, and how many of the cycles between are taken.
Span = tuple[int, int, int]


@dataclass
class ComputeClock:
    """The compute queue and its unit."""

    config: Config
    bus: ReadBus
    completed: list[int] = field(default_factory=list)
    #: Of each command, the cycles of the first and the last issue and the steps; the same of the writes of its results.
    issues: list[Span] = field(default_factory=list)
    writes: list[Span] = field(default_factory=list)
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
        if command.after or fields["engine"] != self.engine:
            first = max(first, self.landed)
        idle = first - behind
        cycles, self.backlog = _issue(fields, max(self.backlog - idle, 0), self.config)
        self.engine = fields["engine"]
        last = first + cycles - 1
        steps = fields["steps"]
        self.issues.append((first, last, timing.issue_steps(fields)))
        # The walker is ahead of the issue by what lies between them, the gate's own register included, and no more.
        self.walked = max(self.taken + self.issues[-1][2], self._issued(LOOKAHEAD + 1))
        # The last window's own groups but for one, and what waits before them, come on top of the latency of a group.
        latency = timing.landing_latency(self.config, Engine(self.engine))
        self.landed = last + latency + self.backlog - 1
        # Results are written in order: its own come behind those that wait before them.
        written = self.writes[-1][1] + 1 if self.writes else 0
        self.writes.append((max(first + steps - 1 + latency, written), self.landed, _writes(fields, self.config)))
        self.completed.append(self.landed + OVERHEADS.completion)
        command.begin, command.end = first, self.completed[-1]

    def _issued(self, before: int) -> int:
        """When the step so many before the last one was issued."""
        for _, last, steps in reversed(self.issues):
            if before < steps:
                return last - before
            before -= steps
        return 0


def _issue(fields: dict[str, int], backlog: int, config: Config) -> tuple[int, int]:
    """Cycles that a command issues, and the backlog afterwards."""
    full, last = (timing.result_groups(config, fields[name]) for name in ("lanes", "last_lanes"))
    steps = fields["steps"]
    if fields.get("tile_inner"):
        windows = [(steps, full)] * (fields["inner"] - 1) + [(steps, last)]
        return timing.issue_windows(backlog, windows, fields["outer"] * fields["middle"], begins=True)
    later = [steps - fields.get("skip", 0)] * (fields["inner"] - 1)
    cycles, begins = 0, True
    for groups, tiles in ((full, fields["outer"] - 1), (last, 1)):
        row = [(count, groups) for count in (steps, *later)]
        more, backlog = timing.issue_windows(backlog, row, tiles * fields["middle"], begins=begins)
        cycles, begins = cycles + more, begins and not tiles
    return cycles, backlog


def _writes(fields: dict[str, int], config: Config) -> int:
    """Writes of the results of a command, at most."""
    pieces = -(-fields["lanes"] // config.array.columns)
    return math.prod(fields[name] for name in ("outer", "middle", "inner")) * pieces
