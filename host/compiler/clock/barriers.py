"""Barriers against the clock: where cores meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field

from ....golden.timing.overheads import OVERHEADS
from .agenda import Agenda, Signal, Wait


@dataclass(eq=False)
class _Meeting:
    """One time that a group meets."""

    missing: int
    latest: int = 0
    complete: Signal = field(default_factory=Signal)


@dataclass
class Barriers:
    """The barriers of all cores, each group's one after the other."""

    agenda: Agenda
    _count: Counter[tuple[int, int]] = field(default_factory=Counter)
    _meetings: dict[tuple[int, int], _Meeting] = field(default_factory=dict)

    def meet(self, core: int, group: int, arrival: int) -> Generator[Wait, None, int]:
        """A core is at a barrier from ``arrival`` on; waits for the others, and gives when it is complete."""
        number = self._count[core, group]
        self._count[core, group] += 1
        meeting = self._meetings.setdefault((group, number), _Meeting(group.bit_count()))
        meeting.missing -= 1
        meeting.latest = max(meeting.latest, arrival)
        if not meeting.missing:
            self.agenda.fire(meeting.complete)
        while meeting.missing:
            yield meeting.complete
        return meeting.latest + OVERHEADS.barrier
