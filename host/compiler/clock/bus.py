"""The read bus against the clock: bursts in the order in which the memory takes them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from ....golden.timing.overheads import OVERHEADS
from .agenda import Agenda, Wait


def held(ends: Sequence[int], most: int) -> int:
    """When the next burst may be asked for, where ``most`` may be in flight; ``ends``: when each before it ends."""
    return ends[-most] if len(ends) >= most else 0


@dataclass
class ReadBus:
    """The pins, which the prefetcher and the LOADs share, and the memory behind them.

    Attributes
    ----------
    shared : bool
        Commands are fetched while the program runs.
    free : int
        When the next beat may come.
    ends : list of int
        When each burst ends.
    accepted : int
        When the memory has taken the last request.
    """

    agenda: Agenda
    shared: bool
    free: int = 0
    ends: list[int] = field(default_factory=list)
    accepted: int = 0

    def take(self, request: int, beats: int) -> Generator[Wait, None, tuple[int, int]]:
        """Hand a burst to the pins at ``request`` or later; gives when that was and the cycle of its first beat."""
        request = max(request, self.accepted)
        # Others may be faster, and make it wait longer.
        while self.shared and not self.agenda.is_next(request):
            yield request
            if self.accepted <= request:
                break
            request = self.accepted
        self.accepted = max(request + 1, held(self.ends, OVERHEADS.bursts))
        first = max(self.free, self.accepted + OVERHEADS.read_latency)
        self.free = first + beats
        self.ends.append(self.free)
        return request, first
