"""The read bus against the clock: LOADs, and commands that are fetched ahead of the queues."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....golden import timing
from ....golden.config import Config
from ....golden.timing import OVERHEADS


def held(ends: Sequence[float], most: int) -> float:
    """When the next burst may be asked for, where ``most`` may be in flight; ``ends``: when each before it ends."""
    return ends[-most] if len(ends) >= most else 0


@dataclass
class Ring:
    """The commands of one queue.

    Attributes
    ----------
    commands : int
        All of them, END included.
    pairs : bool
        A burst may hold two commands, of which the first has an even number.
    room : deque of int
        From when on there is room for each of the next commands, as far as that is known.
    asked : int
        Commands that have been asked for.
    ready : int
        When the next burst may be decided on.
    arrived : list of int
        The cycle in which each command's last word arrives.
    """

    commands: int
    pairs: bool
    room: deque[int]
    asked: int = 0
    ready: int = 0
    arrived: list[int] = field(default_factory=list)

    @property
    def wants(self) -> bool:
        """Whether there is a command to ask for, and room for it."""
        return self.asked < self.commands and bool(self.room)

    @property
    def decided(self) -> int:
        """When the next burst is decided on."""
        return max(self.ready, self.room[0])

    def ask(self, now: int) -> int:
        """Ask for the next burst; returns its commands."""
        is_pair = (
            self.pairs
            and self.asked % 2 == 0
            and self.asked + 1 < self.commands
            and len(self.room) > 1
            and self.room[1] <= self.decided
        )
        count = 1 + is_pair
        for _ in range(count):
            self.room.popleft()
        self.asked += count
        self.ready = now
        return count


@dataclass
class ReadBus:
    """Bursts in the order in which the memory takes them: prefetches before LOADs, a limited number in flight.

    Programs that fit their rings are resident: there is nothing to fetch. Of others the rings are filled at the start,
    taking turns, and a command is asked for whenever a queue has taken one.

    Parameters
    ----------
    config : Config
    commands : dict of str to int
        Commands of each queue, END included.
    """

    config: Config
    commands: dict[str, int]
    #: When the next beat may come; when each burst ends: all of them, those of LOADs, those of the prefetcher.
    free: int = 0
    ends: list[int] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)
    asked: int = OVERHEADS.start
    #: The ring that was served last.
    served: str = "compute"
    #: When the last request left its master for the pins, and when the memory took it from there.
    taken_at: int = 0
    pins: int = 0

    def __post_init__(self) -> None:
        resident = self.config.resident_commands
        pairs = 2 * timing.command_beats(self.config) <= self.config.axi.BURST_BEATS
        self.rings = {
            name: Ring(count, pairs, deque([OVERHEADS.start] * resident))
            for name, count in self.commands.items()
            if count > resident
        }

    def has_arrived(self, name: str, index: int) -> bool:
        """Whether it is known when a command of a queue is there."""
        return name not in self.rings or len(self.rings[name].arrived) > index

    def arrival(self, name: str, index: int) -> int:
        """When a command of a queue is there."""
        if name not in self.rings:
            return 0
        while len(self.rings[name].arrived) <= index:
            self._fetch()
        return self.rings[name].arrived[index] + OVERHEADS.fetched

    def taken(self, name: str, now: int) -> None:
        """A queue begins a command and reads the next one, which leaves room for one that has not been asked for."""
        if name in self.rings:
            self.rings[name].room.append(now + timing.command_beats(self.config) - OVERHEADS.read_ahead)

    def load(self, request: int, beats: int) -> int:
        """The cycle of the first beat of a LOAD's burst."""
        while self._next_fetch()[0] <= max(request, self.pins):
            self._fetch()
        first = self._serve(max(request, held(self.loaded, self.config.axi.outstanding) + OVERHEADS.reload), beats)
        self.loaded.append(self.free)
        return first

    def _next_fetch(self) -> tuple[float, str]:
        """When the prefetcher asks for its next burst, and for which ring: the one that was not served last goes
        first. Never, if none wants any."""
        earliest = max(self.asked, held(self.fetched, self.config.axi.outstanding) + OVERHEADS.refetch)
        found = (
            (max(earliest, ring.decided + OVERHEADS.fetch), name == self.served, name)
            for name, ring in self.rings.items()
            if ring.wants
        )
        return min(found, default=(math.inf, False, ""))[::2]

    def _fetch(self) -> None:
        self.asked, self.served = self._next_fetch()
        ring, beats = self.rings[self.served], timing.command_beats(self.config)
        commands = ring.ask(self.asked)
        first = self._serve(self.asked, commands * beats)
        self.asked += OVERHEADS.fetch_interval
        self.fetched.append(self.free)
        ring.arrived += [first + (number + 1) * beats - 1 for number in range(commands)]

    def _serve(self, request: int, beats: int) -> int:
        """Take a burst; returns the cycle of its first beat."""
        self.taken_at = max(request, self.pins)
        self.pins = max(self.taken_at, held(self.ends, OVERHEADS.bursts))
        first = max(self.free, self.pins + OVERHEADS.read_latency)
        self.free = first + beats
        self.ends.append(self.free)
        return first
