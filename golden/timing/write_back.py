"""The latest cycles in which results are written back: a program may rely on them where a command does not wait.

Time counts on a timeline on which every step comes as early as it can: one each cycle, held back by nothing but the
results before it. In the hardware steps also wait for commands, tokens and memories. Whatever delays a step delays all
steps after it at least as much as any result before it, because all of them go through one gate in order. So a step
that comes after the write-back of a result here does so in the hardware.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..config import Config
from ..engines import specification_of
from ..engines.specification import comes_too_early
from .issue import command_parts, issue_rounds
from .latencies import backlog_limit, epilogue_latency, result_latency
from .overheads import OVERHEADS


def lead(config: Config, command: Mapping[str, int], before: Mapping[str, int], *, after: bool) -> int | None:
    """Return how many cycles before the last write-back of earlier results the hardware lets a COMPUTE command begin.

    None where the hardware does not wait. ``before`` has the fields of the command before it, ``after`` is the flag of
    the command.
    """
    if after:
        return 0
    issue = specification_of(command["engine"]).issue
    changes = command["engine"] != before["engine"] or issue.is_burst
    if changes or comes_too_early(command["steps"], issue.results(before) - 1):
        return epilogue_latency(config) if config.hands_over else 0
    return None


@dataclass(frozen=True, slots=True)
class _Rounds:
    """Rounds of windows that are issued alike.

    Attributes
    ----------
    begin : int
        The cycle of the first step of the first window.
    number : int
        The number of that window in its command.
    count : int
        Rounds.
    period : int
        Cycles of a round.
    windows : tuple of (int, int)
        For each window of a round, in cycles from the round's beginning: its first step, and the first step that may
        read its result.
    """

    begin: int
    number: int
    count: int
    period: int
    windows: tuple[tuple[int, int], ...]

    def all(self, first: int = 0) -> Iterator[tuple[int, int, int]]:
        """Yield the windows from a round on: number, first step, and the first step that may read its result."""
        for round_ in range(first, self.count):
            number, begin = self.number + round_ * len(self.windows), self.begin + round_ * self.period
            for place, (step, readable) in enumerate(self.windows):
                yield number + place, begin + step, begin + readable


@dataclass(frozen=True, slots=True)
class Issued:
    """A COMPUTE command on the timeline.

    Attributes
    ----------
    begin, end : int
        The cycle of its first step, and the cycle after its last.
    written_back : int
        The cycle from which on a step may read all of its results, and all earlier ones.
    backlog : int
        Cycles that the requantiser still needs when it ends.
    """

    begin: int
    end: int
    written_back: int
    backlog: int
    _rounds: tuple[_Rounds, ...]

    @property
    def complete(self) -> int:
        """The cycle by which the command has completed."""
        return self.written_back + OVERHEADS.completion

    def first_windows(self, end: int) -> Iterator[tuple[int, int]]:
        """Yield the windows that begin before a cycle: number, and the cycle of the first step.

        Further steps follow one each cycle, or later.
        """
        for rounds in self._rounds:
            for number, step, _ in rounds.all():
                if step >= end:
                    return
                yield number, step

    def last_windows(self) -> Iterator[tuple[int, int]]:
        """Yield in order the windows whose results may not be written back when the command ends.

        Each is given by its number and the first cycle in which a step may read its results.
        """
        for rounds in self._rounds:
            latest = rounds.begin + max(readable for _, readable in rounds.windows)
            skipped = max((self.end - latest) // rounds.period, 0) if rounds.period else 0
            yield from ((number, readable) for number, _, readable in rounds.all(skipped) if readable > self.end)


@dataclass
class Timeline:
    """The COMPUTE commands of a queue, one after the other.

    Attributes
    ----------
    config : Config
    before : Issued or None
        The latest command.
    fields : mapping of str to int, or None
        The fields of the latest command.
    """

    config: Config
    before: Issued | None = None
    fields: Mapping[str, int] | None = None

    def foresee(self, command: Mapping[str, int], *, after: bool) -> Issued:
        """Return the next command, given its fields, as it would be issued."""
        begin, backlog = 0, 0
        if self.before is not None and self.fields is not None:
            begin, backlog = self.before.end, self.before.backlog
            ahead = lead(self.config, command, self.fields, after=after)
            if ahead is not None:
                # By then the result FIFO is empty.
                begin, backlog = max(begin, self.before.written_back - ahead), 0
        is_burst = specification_of(command["engine"]).issue.is_burst
        latency, limit = result_latency(self.config, command), backlog_limit(self.config, command["engine"])
        now, number, begins = begin, 0, True
        rounds: list[_Rounds] = []
        for windows, part_rounds in command_parts(command, self.config):
            issued_alike = issue_rounds(backlog, windows, part_rounds, limit=limit, begins=begins, is_burst=is_burst)
            for count, issued, after_round in issued_alike:
                places, step, written_back = [], 0, now
                for (steps, groups), (hold, waiting) in zip(windows, issued, strict=True):
                    counted = step + hold + (0 if is_burst else steps - 1)
                    working = max(waiting - 1, 0) + groups + begins
                    # The last step of a window is held, which may be its first.
                    places.append((step + hold if steps == 1 else step, counted + latency + working - 1))
                    begins = False
                    step += steps + hold
                rounds.append(_Rounds(now, number, count, step, tuple(places)))
                now, number, backlog = now + count * step, number + count * len(windows), after_round
        written_back = rounds[-1].begin + (rounds[-1].count - 1) * rounds[-1].period + rounds[-1].windows[-1][1]
        return Issued(begin, now, written_back, backlog, tuple(rounds))

    def issue(self, command: Mapping[str, int], issued: Issued) -> None:
        """Continue after a command that :meth:`foresee` returned."""
        self.before, self.fields = issued, command
