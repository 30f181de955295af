"""Which cycles the windows of a COMPUTE command take at the two ports of the feature memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....golden.config import Config
from ....golden.engines import specification_of
from ....golden.timing.issue import issue_rounds
from ....golden.timing.latencies import PAUSES_HIDDEN
from .port import Rounds, Run


@dataclass(frozen=True, slots=True)
class Part:
    """Windows of a command that have the same results, or rows of them that have.

    Attributes
    ----------
    begin : int
        The cycle of the first issue.
    backlog : int
        Cycles that the results of earlier windows take then.
    windows : list of (int, int)
        Steps of each window of a round, and groups of its results.
    rounds : int
    begins : bool
        The first window is the first of the command.
    hidden : int
        See :func:`hide`.
    limit : int
        See :func:`~lutterfly.golden.timing.latencies.backlog_limit`.
    is_burst : bool
        Each window is a burst.
    unread : int
        Steps of a window that are left out at most where it reads.
    pieces : list of list of int
        For each window of a round, its groups that complete a piece, which is written then.
    latency : int
        From a window's last issue to the first one that may read its result.
    """

    begin: int
    backlog: int
    windows: list[tuple[int, int]]
    rounds: int
    begins: bool
    hidden: int
    limit: int
    is_burst: bool
    unread: int
    pieces: list[list[int]]
    latency: int

    def issue(self) -> Iterator[tuple[int, int, list[tuple[int, int]], int]]:
        """Rounds: when the first one begins, how often they come, and as ``golden.timing.issue.issue_rounds``."""
        begin = self.begin
        steps = sum(steps for steps, _ in self.windows)
        for count, issued, backlog in issue_rounds(
            *(self.backlog, self.windows, self.rounds),
            limit=self.limit,
            begins=self.begins,
            is_burst=self.is_burst,
        ):
            yield begin, count, issued, backlog
            begin += count * (steps + sum(hold for hold, _ in issued))

    def last_steps(self, begin: int, count: int, issued: list[tuple[int, int]], most: int) -> list[int]:
        """When the last steps of rounds are issued, ``most`` of them at most, in order."""
        found: list[int] = []
        end = begin + count * (sum(steps for steps, _ in self.windows) + sum(hold for hold, _ in issued))
        while end > begin and len(found) < most:
            for (steps, _), (hold, _) in zip(reversed(self.windows), reversed(issued), strict=True):
                # What is held is the last step of a window, of a burst the first.
                last = 0 if self.is_burst else 1
                found += [end - 1 - step - (hold if last and step else 0) for step in range(min(steps, most))]
                end -= steps + hold
        return found[most - 1 :: -1] if len(found) >= most else found[::-1]

    def reads(self) -> Iterator[Rounds]:
        """The cycles of the steps that read."""
        for begin, count, issued, _ in self.issue():
            runs: list[Run] = []
            at = 0
            for (steps, _), (hold, _) in zip(self.windows, issued, strict=True):
                if self.is_burst:
                    taken = [(at + hold, steps - self.unread)]
                elif hold:
                    taken = [(at, steps - 1), (at + hold + steps - 1, 1)]
                else:
                    taken = [(at, steps)]
                for first, length in taken:
                    if runs and sum(runs[-1]) == first:
                        runs[-1] = (runs[-1][0], runs[-1][1] + length)
                    elif length:
                        runs.append((first, length))
                at += hold + steps
            yield Rounds(begin, at, count, tuple(runs))

    def writes(self) -> Iterator[Rounds]:
        """The cycles in which pieces are written."""
        begins, hidden = self.begins, self.hidden
        for begin, count, issued, _ in self.issue():
            pieces, at = [], begin
            for (steps, _), own, (hold, waiting) in zip(self.windows, self.pieces, issued, strict=True):
                counted = at + hold + (0 if self.is_burst else steps - 1)
                hidden = hide(hidden, waiting, begins=begins)
                first = counted + max(waiting, 1) + begins - hidden - 1 + self.latency
                begins = False
                pieces += [first + group for group in own]
                at += hold + steps
            runs = tuple((piece - pieces[0], 1) for piece in pieces)
            yield Rounds(pieces[0], at - begin if count > 1 else runs[-1][0] + 1, count, runs)


def hide(hidden: int, waiting: int, *, begins: bool) -> int:
    """How many cycles the results of a window come before what the gate foresees: of the pauses between the commands
    whose results wait, one for each, some are hidden, as groups are found ahead. But no result comes before it has gone
    through the pipeline, and one that hardly waits has no more than that before it."""
    return min(hidden + begins, max(waiting, 1) - 1 + begins, PAUSES_HIDDEN)


def pieces(fields: dict[str, int], windows: list[tuple[int, int]], config: Config) -> list[list[int]]:
    """The groups that complete a piece, of each window of a command; ``windows`` are steps and groups of each."""
    spec = specification_of(fields["engine"])
    slots = 1 if spec.finish_of(fields).is_whole else config.array.columns // config.array.requant_lanes
    results = spec.issue.results(fields)
    counts = [groups // results for _, groups in windows]
    # Most windows have the same.
    found = {
        count: [
            result * count + min(group + slots, count) - 1
            for result in range(results)
            for group in range(0, count, slots)
        ]
        for count in {*counts}
    }
    return [found[count] for count in counts]
