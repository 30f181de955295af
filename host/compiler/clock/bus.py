"""The bus against the clock: bursts in the order in which the memory takes them."""

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
    """The pins, which all that read share, and the memory behind them.

    Attributes
    ----------
    shared : bool
        Several read at the same time: commands are fetched while the program runs, or there are several cores.
    latency : int
        From a request to its first beat.
    free : int
        When the next beat may come.
    ends : list of int
        When each burst ends.
    accepted : int
        When the memory has taken the last request.
    """

    agenda: Agenda
    shared: bool
    latency: int = OVERHEADS.read_latency
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
        first = max(self.free, self.accepted + self.latency)
        self.free = first + beats
        self.ends.append(self.free)
        return request, first


@dataclass
class WriteBus:
    """The pins of the write channels, behind an arbiter that collects the beats of a burst before it offers it.

    Attributes
    ----------
    free : int
        When the next beat may go.
    """

    agenda: Agenda
    free: int = 0

    def send(self, collected: int, beats: int) -> Generator[Wait, None, tuple[int, int]]:
        """Send a burst that is there with all its beats; gives when its last beat has gone and when it is answered."""
        begin = max(collected + OVERHEADS.shared_write, self.free)
        # Others may be there before.
        while not self.agenda.is_next(begin):
            yield begin
            if self.free <= begin:
                break
            begin = self.free
        self.free = begin + beats
        return self.free, self.free + OVERHEADS.write_latency
