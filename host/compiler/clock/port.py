"""A port of the feature memory against the clock: the cycles that COMPUTE commands take, and those that they leave."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field

from .agenda import Agenda, Wait

#: Cycles one after the other that are taken: the first of them, and how many there are.
Run = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rounds:
    """What repeats itself: ``count`` times ``period`` cycles from ``begin`` on, of each of which ``runs`` are taken."""

    begin: int
    period: int
    count: int
    runs: tuple[Run, ...]

    def after(self, now: int, count: int) -> tuple[int, int]:
        """Go on from ``now``, not before ``begin``, for ``count`` free cycles; gives the time after the last of them
        that lies in here, and how many are missing then."""
        free = self.period - sum(length for _, length in self.runs)
        number, offset = divmod(now - self.begin, self.period)
        while number < self.count and count:
            if free and not offset:
                # Whole rounds, all but the last one.
                whole = min((count - 1) // free, self.count - 1 - number)
                number, count = number + whole, count - whole * free
            offset, count = self._within(offset, count)
            if count:
                number, offset = (self.count, 0) if not free else (number + 1, 0)
        return self.begin + number * self.period + offset, count

    def _within(self, offset: int, count: int) -> tuple[int, int]:
        for first, length in (*self.runs, (self.period, 0)):
            if first >= offset:
                if first - offset >= count:
                    return offset + count, 0
                count -= first - offset
            offset = max(offset, first + length)
        return offset, count


@dataclass
class Port:
    """The cycles that COMPUTE commands take, in order.

    Each part of a command is worked out when somebody asks, and kept as long as somebody may ask again.
    """

    _ends: list[int] = field(default_factory=list)
    _parts: list[Callable[[], Iterable[Rounds]] | list[Rounds]] = field(default_factory=list)

    def take(self, end: int, part: Callable[[], Iterable[Rounds]]) -> None:
        """Some cycles before ``end`` are taken, after those that were taken before."""
        self._ends.append(end)
        self._parts.append(part)

    def forget(self, time: int) -> None:
        """Nobody asks for cycles before ``time`` any more."""
        over = bisect.bisect_right(self._ends, time)
        del self._ends[:over], self._parts[:over]

    def after(self, begin: int, count: int) -> int:
        """The time after ``count`` cycles that nothing takes, the first of them not before ``begin``."""
        now = begin
        for index in range(bisect.bisect_right(self._ends, begin), len(self._ends)):
            part = self._parts[index]
            if callable(part):
                part = self._parts[index] = list(part())
            for rounds in part:
                gap = max(rounds.begin - now, 0)
                if gap >= count:
                    return now + count
                now, count = now + gap, count - gap
                if now < rounds.begin + rounds.period * rounds.count:
                    now, count = rounds.after(now, count)
                    if not count:
                        return now
        return now + count


def free_cycles(agenda: Agenda, port: Port, begin: int, count: int) -> Generator[Wait, None, int]:
    """Wait for ``count`` cycles that nothing takes, as :meth:`Port.after`: commands that begin meanwhile take more."""
    return (yield from agenda.settle(lambda: port.after(begin, count)))
