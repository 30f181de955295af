"""The compute queue against the clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from ....golden.config import Config
from ....golden.engines import specification_of
from ....golden.timing.issue import command_parts, issue_steps
from ....golden.timing.landing import lead
from ....golden.timing.latencies import STEPS_AHEAD, backlog_limit, landing_latency
from ....golden.timing.overheads import OVERHEADS
from ..data.command import Command
from .agenda import Events
from .issue import Part, hide, pieces
from .port import Port

#: First and last issue of a command.
Issues = tuple[int, int]


@dataclass
class ComputeClock:
    """The compute unit.

    Attributes
    ----------
    completed : Events
        Commands of the compute queue.
    issues : list of Issues
    latest : deque of int
        When the last steps so far were issued, as many as the walker may be ahead.
    reads, writes : Port
        The feature memory: reads in the cycles of their issue, writes in the cycle of the first issue that may read
        what is written.
    accepts : int
        When the unit takes the next command.
    walked, landed, backlog, hidden, before
        Of the last command: when its walk ended, when its results may be read, how many cycles they take, how many of
        these were a pause between commands that was hidden, its fields.
    """

    config: Config
    completed: Events
    issues: list[Issues] = field(default_factory=list)
    latest: deque[int] = field(default_factory=lambda: deque(maxlen=STEPS_AHEAD))
    reads: Port = field(default_factory=Port)
    writes: Port = field(default_factory=Port)
    accepts: int = 0
    walked: int = 0
    landed: int = 0
    backlog: int = 0
    hidden: int = 0
    before: Mapping[str, int] | None = None

    def run(self, command: Command, accepted: int) -> None:
        """Run the next command, which the unit has ``accepted``."""
        fields, config = command.fields, self.config
        taken = max(accepted + OVERHEADS.intake, self.walked + 1)
        # One command waits in the unit while the one before it is walked.
        self.accepts = taken + 2
        after = self.issues[-1][1] + 1 if self.issues else 0
        first = max(after, taken + OVERHEADS.issue)
        spec = specification_of(fields["engine"])
        ahead = None if self.before is None else lead(config, fields, self.before, after=command.after)
        if ahead is not None:
            first = max(first, self.landed - ahead)
        self.backlog = max(self.backlog - (first - after), 0)
        self.before = fields
        latency = landing_latency(config, fields)
        limit = backlog_limit(config, fields["engine"])
        unread = fields["steps"] - spec.issue.steps_read(fields, config)
        now = first
        for windows, rounds in command_parts(fields, config):
            begins, row = now == first, sum(steps for steps, _ in windows)
            part = Part(
                *(now, self.backlog, windows, rounds, begins, self.hidden, limit, spec.issue.is_burst),
                *(unread, pieces(fields, windows, config), latency),
            )
            for begin, count, issued, self.backlog in part.issue():
                self.latest.extend(part.last_steps(begin, count, issued, STEPS_AHEAD))
                now = begin + count * (row + sum(hold for hold, _ in issued))
                waits = [waiting for _, waiting in issued]
                if begins:
                    self.hidden, begins = hide(self.hidden, waits[0], begins=True), False
                    waits = waits[1:]
                self.hidden = min([self.hidden, *waits])
            # The last window's own groups but for one, and what waits before them, come on top of the latency of a
            # group.
            self.landed = now - 1 + latency + self.backlog - 1
            self.reads.take(now, part.reads)
            self.writes.take(self.landed + 1, part.writes)
        self.issues.append((first, now - 1))
        # The walker is ahead of the issue by what lies between them, the gate's own register included, and no more.
        self.walked = max(taken + issue_steps(fields), self.latest[0] if len(self.latest) == STEPS_AHEAD else 0)
        self.completed.add(self.landed - self.hidden + OVERHEADS.completion)
        command.begin, command.end = first, self.completed.last
