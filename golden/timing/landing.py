"""When results land at the latest: what a program may rely on where a command does not wait for them.

Time counts on a timeline on which every step comes as early as it can: one each cycle, held back by nothing but the
results before it. In the hardware steps also wait for commands, tokens and memories. Whatever delays a step delays all
steps after it at least as much as any result before it, because all of them go through one gate in order. So a step
comes after a result has landed if it does so here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..config import Config
from ..engines import specification_of
from ..engines.specification import comes_too_early
from .issue import command_parts, issue_rounds
from .latencies import backlog_limit, finish_latency, landing_latency
from .overheads import OVERHEADS


def lead(config: Config, command: Mapping[str, int], before: Mapping[str, int], *, after: bool) -> int | None:
    """How many cycles before all earlier results have landed the hardware lets a COMPUTE command begin, at most; None
    where it does not ask.

    ``before`` has the fields of the command before it, ``after`` is what the command says.
    """
    if after:
        return 0
    issue = specification_of(command["engine"]).issue
    changes = command["engine"] != before["engine"] or issue.is_burst
    if changes or comes_too_early(command["steps"], issue.results(before) - 1):
        return finish_latency(config) if config.hands_over else 0
    return None


@dataclass(frozen=True, slots=True)
class _Rounds:
    """Some rounds of windows that are issued alike.

    Attributes
    ----------
    begin : int
        The cycle of the first step of the first window.
    number : int
        That window's, counted in its command.
    count : int
        Rounds.
    period : int
        Cycles of a round.
    windows : tuple of (int, int)
        Of each window of a round, from the round's begin: its first step, and the first step that may read its result.
    """

    begin: int
    number: int
    count: int
    period: int
    windows: tuple[tuple[int, int], ...]

    def all(self, first: int = 0) -> Iterator[tuple[int, int, int]]:
        """Windows from a round on: number, first step, and the first step that may read its result."""
        for round_ in range(first, self.count):
            number, begin = self.number + round_ * len(self.windows), self.begin + round_ * self.period
            for place, (step, landing) in enumerate(self.windows):
                yield number + place, begin + step, begin + landing


@dataclass(frozen=True, slots=True)
class Issued:
    """A COMPUTE command on the timeline.

    Attributes
    ----------
    begin, end : int
        Cycle of its first step, and the one after that of the last.
    landed : int
        From this cycle on a step may read all of its results, and all earlier ones.
    backlog : int
        Cycles that the results take that are under way when it ends.
    """

    begin: int
    end: int
    landed: int
    backlog: int
    _rounds: tuple[_Rounds, ...]

    @property
    def complete(self) -> int:
        """When the command has completed, at the latest."""
        return self.landed + OVERHEADS.completion

    def first_windows(self, end: int) -> Iterator[tuple[int, int]]:
        """The windows that begin before a cycle: number, and the cycle of the first step.

        Further steps follow one each cycle, or later.
        """
        for rounds in self._rounds:
            for number, step, _ in rounds.all():
                if step >= end:
                    return
                yield number, step

    def last_windows(self) -> Iterator[tuple[int, int]]:
        """The windows whose results may be under way when the command ends: number, and the first cycle in which a step
        may read them; in order."""
        for rounds in self._rounds:
            latest = rounds.begin + max(landing for _, landing in rounds.windows)
            skipped = max((self.end - latest) // rounds.period, 0) if rounds.period else 0
            yield from ((number, landing) for number, _, landing in rounds.all(skipped) if landing > self.end)


@dataclass
class Timeline:
    """The COMPUTE commands of a queue, one after the other.

    Attributes
    ----------
    config : Config
    before : Issued or None
        The latest command.
    fields : mapping of str to int, or None
        Its fields.
    """

    config: Config
    before: Issued | None = None
    fields: Mapping[str, int] | None = None

    def foresee(self, command: Mapping[str, int], *, after: bool) -> Issued:
        """The next command, which ``command`` describes by its fields, if it were issued."""
        begin, backlog = 0, 0
        if self.before is not None and self.fields is not None:
            begin, backlog = self.before.end, self.before.backlog
            ahead = lead(self.config, command, self.fields, after=after)
            if ahead is not None:
                # By then the result FIFO has given all that it had.
                begin, backlog = max(begin, self.before.landed - ahead), 0
        is_burst = specification_of(command["engine"]).issue.is_burst
        latency, limit = landing_latency(self.config, command), backlog_limit(self.config, command["engine"])
        now, number, begins = begin, 0, True
        rounds: list[_Rounds] = []
        for windows, part_rounds in command_parts(command, self.config):
            issued_alike = issue_rounds(backlog, windows, part_rounds, limit=limit, begins=begins, is_burst=is_burst)
            for count, issued, after_round in issued_alike:
                places, step, landed = [], 0, now
                for (steps, groups), (hold, waiting) in zip(windows, issued, strict=True):
                    counted = step + hold + (0 if is_burst else steps - 1)
                    working = max(waiting - 1, 0) + groups + begins
                    # What is held is the last step of a window, which may be the first.
                    places.append((step + hold if steps == 1 else step, counted + latency + working - 1))
                    begins = False
                    step += steps + hold
                rounds.append(_Rounds(now, number, count, step, tuple(places)))
                now, number, backlog = now + count * step, number + count * len(windows), after_round
        landed = rounds[-1].begin + (rounds[-1].count - 1) * rounds[-1].period + rounds[-1].windows[-1][1]
        return Issued(begin, now, landed, backlog, tuple(rounds))

    def issue(self, command: Mapping[str, int], issued: Issued) -> None:
        """Go on after a command that was foreseen."""
        self.before, self.fields = issued, command
