"""The rings of commands against the clock, and the prefetcher that fills them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from ....golden import timing
from ....golden.config import Config
from ....golden.timing import OVERHEADS
from .agenda import Agenda, Process, Signal, Wait
from .bus import ReadBus, held


@dataclass
class Ring:
    """The commands of one queue, of a program that is longer than the ring.

    Attributes
    ----------
    commands : int
        All of them, END included.
    pairs : bool
        A burst may hold two commands, of which the first has an even number.
    room : list of int
        From when on there is room for each command, as far as that is known.
    arrived : list of int
        The cycle in which each command's last word arrives, likewise.
    asked : int
        Commands that have been asked for.
    offers : int
        Commands of the burst that waits for the prefetcher.
    changed : Signal
        Of ``room``, ``arrived`` and ``offers``.
    """

    commands: int
    pairs: bool
    room: list[int]
    arrived: list[int] = field(default_factory=list)
    asked: int = 0
    offers: int = 0
    changed: Signal = field(default_factory=Signal)

    def ask(self, fetcher: Signal, agenda: Agenda) -> Process:
        """Offer bursts to the prefetcher as long as there are commands to fetch, and room for them."""
        measured = OVERHEADS.first_fetch
        while self.asked < self.commands:
            while len(self.room) <= self.asked:
                yield self.changed
            # Every other cycle it looks for room.
            measured += max(self.room[self.asked] - measured + 1, 0) // 2 * 2
            yield measured
            following = self.asked + 1
            is_pair = (
                self.pairs
                and self.asked % 2 == 0
                and following < min(self.commands, len(self.room))
                and self.room[following] <= measured
            )
            yield measured + OVERHEADS.fetch - 2
            self.offers = 1 + is_pair
            agenda.fire(fetcher)
            while self.offers:
                yield self.changed
            measured = agenda.now + 2


class Fetch:
    """Fetches the commands of both queues. Programs that fit their rings are resident: there is nothing to fetch.

    Parameters
    ----------
    agenda : Agenda
    bus : ReadBus
    config : Config
    commands : dict of str to int
        Commands of each queue, END included.
    last : str
        The ring that the run before this one served last: the other one goes first.
    """

    def __init__(self, agenda: Agenda, bus: ReadBus, config: Config, commands: dict[str, int], last: str):
        self.agenda, self.bus, self.config = agenda, bus, config
        self.beats = timing.command_beats(config)
        self.served, self.offered = last, Signal()
        resident, pairs = config.resident_commands, timing.commands_at_once(config) > 1
        self.rings = {name: Ring(count, pairs, [0] * resident) for name, count in commands.items() if count > resident}
        #: When each burst ends.
        self.ends: list[int] = []

    def start(self) -> None:
        """Begin to fetch."""
        for ring in self.rings.values():
            self.agenda.start(ring.ask(self.offered, self.agenda), 0)
        self.agenda.start(self._serve(), 1)

    def arrival(self, name: str, index: int, begun: int) -> Generator[Wait, None, int]:
        """Wait until it is known when a queue has a command; it reads that from when the one before has ``begun``."""
        ring = self.rings.get(name)
        if ring is None:
            return 0
        while len(ring.arrived) <= index:
            yield ring.changed
        arrived = ring.arrived[index]
        ring.room.append(max(begun + self.beats - OVERHEADS.read_ahead, arrived + OVERHEADS.read_first))
        self.agenda.fire(ring.changed)
        return arrived + OVERHEADS.fetched

    def _serve(self) -> Process:
        """Take the bursts of the rings, in turns where both have one."""
        while any(ring.asked < ring.commands for ring in self.rings.values()):
            offers = [name for name, ring in self.rings.items() if ring.offers]
            if not offers:
                yield self.offered
                continue
            held_until = held(self.ends, self.config.axi.outstanding) + OVERHEADS.refetch - 2
            if held_until > self.agenda.now:
                yield held_until
                continue
            self.served = next((name for name in offers if name != self.served), self.served)
            ring = self.rings[self.served]
            count, ring.offers = ring.offers, 0
            ring.asked += count
            self.agenda.fire(ring.changed)
            taken, first = yield from self.bus.take(self.agenda.now + 1, count * self.beats)
            self.ends.append(self.bus.free)
            ring.arrived += [first + (number + 1) * self.beats - 1 for number in range(count)]
            self.agenda.fire(ring.changed)
            yield taken + 1
