"""The pins and the memory against the clock: bursts in the order in which the memory takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ....golden.timing.overheads import OVERHEADS
from .agenda import Agenda, Events, Wait


def held(ends: Sequence[int], most: int) -> int:
    """When the next burst may be asked for, where ``most`` may be in flight; ``ends``: when each before it ends."""
    return ends[-most] if len(ends) >= most else 0


class Reads(Protocol):
    """Where a core's bursts are read."""

    def take(self, request: int, beats: int, begins: Events) -> Generator[Wait, None, int]:
        """Hand a burst on at ``request`` or later; gives when that was. The cycle of its first beat is added to
        ``begins`` as soon as it is known."""


@dataclass
class ReadMemory:
    """The pins of the read channels, and the memory behind them.

    Attributes
    ----------
    free : int
        When the next beat may come.
    ends : deque of int
        When the latest bursts end, as many as may be in flight.
    accepted : int
        When the memory has taken the last request.
    """

    free: int = 0
    ends: deque[int] = field(default_factory=lambda: deque(maxlen=OVERHEADS.bursts))
    accepted: int = 0

    def accept(self, request: int, beats: int) -> int:
        """Take a request that is at the pins; gives the cycle of its first beat."""
        self.accepted = max(request + 1, held(self.ends, OVERHEADS.bursts))
        first = max(self.free, self.accepted + OVERHEADS.read_latency)
        self.free = first + beats
        self.ends.append(self.free)
        return first


@dataclass
class ReadBus:
    """A core's own pins.

    Attributes
    ----------
    shared : bool
        Commands are fetched while the program runs.
    memory : ReadMemory
    """

    agenda: Agenda
    shared: bool
    memory: ReadMemory = field(default_factory=ReadMemory)

    def take(self, request: int, beats: int, begins: Events) -> Generator[Wait, None, int]:
        """As :meth:`Reads.take`."""
        if self.shared:
            request = yield from self.agenda.settle(lambda: max(request, self.memory.accepted))
        request = max(request, self.memory.accepted)
        begins.add(self.memory.accept(request, beats))
        return request
