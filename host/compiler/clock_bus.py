"""The read bus against the clock: LOADs, and commands that are fetched ahead of the queues."""
from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ...golden import timing
from ...golden.config import Config
from ...golden.timing import OVERHEADS


@dataclass
class Ring:
    """The commands of one queue.

    Attributes
    ----------
    commands : int
        All of them, END included.
    asked : int
        Of these, how many have been asked for.
    arrived : list of int
        The cycle in which each command's last word arrives; empty if the program is resident.
    """

    commands: int
    asked: int = 0
    arrived: list[int] = field(default_factory=list)


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
    #: When the next beat may come; when each burst ends, all of them and those of the prefetcher.
    free: int = 0
    ends: list[int] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)
    asked: int = OVERHEADS.start
    #: When the last request left its master for the pins, and when the memory took it from there.
    taken_at: int = 0
    pins: int = 0

    def __post_init__(self) -> None:
        resident = self.config.resident_commands
        self.rings = {name: Ring(count) for name, count in self.commands.items() if count > resident}
        beats = timing.command_beats(self.config)
        pair = 2 if 2 * beats <= self.config.axi.BURST_BEATS else 1
        #: Name of the ring, commands, and the cycle from which on there is room for them.
        self.wanted: deque[tuple[str, int, int]] = deque(
            (name, pair, OVERHEADS.start) for _ in range(resident // pair) for name in self.rings
        )
        for name in self.rings:
            self.rings[name].asked = resident

    def arrival(self, name: str, index: int) -> int:
        """When a command of a queue is there."""
        if name not in self.rings:
            return 0
        while len(self.rings[name].arrived) <= index:
            self._fetch()
        return self.rings[name].arrived[index] + OVERHEADS.fetched

    def taken(self, name: str, now: int) -> None:
        """A queue begins a command and reads the next one, which leaves room for one that has not been asked for."""
        ring = self.rings.get(name)
        if ring is not None and ring.asked < ring.commands:
            ring.asked += 1
            self.wanted.append((name, 1, now + timing.command_beats(self.config)))

    def load(self, request: int, beats: int) -> int:
        """The cycle of the first beat of a LOAD's burst."""
        while self.wanted and self._next_fetch() <= max(request, self.pins):
            self._fetch()
        return self._serve(request, beats)

    def _next_fetch(self) -> int:
        """When the prefetcher asks for its next burst."""
        outstanding = self.config.axi.outstanding
        in_flight = self.fetched[-outstanding] + OVERHEADS.refetch if len(self.fetched) >= outstanding else 0
        return max(self.asked, in_flight, self.wanted[0][2] + OVERHEADS.fetch)

    def _fetch(self) -> None:
        self.asked = self._next_fetch()
        name, commands, _ = self.wanted.popleft()
        beats = timing.command_beats(self.config)
        first = self._serve(self.asked, commands * beats)
        self.asked += OVERHEADS.fetch_interval
        self.fetched.append(self.free)
        self.rings[name].arrived += [first + (number + 1) * beats - 1 for number in range(commands)]

    def _serve(self, request: int, beats: int) -> int:
        """Take a burst; returns the cycle of its first beat."""
        outstanding = self.config.axi.outstanding
        self.taken_at = max(request, self.pins)
        self.pins = max(self.taken_at, self.ends[-outstanding] if len(self.ends) >= outstanding else 0)
        first = max(self.free, self.pins + OVERHEADS.read_latency)
        self.free = first + beats
        self.ends.append(self.free)
        return first
