"""The rings of commands against the clock, and the prefetcher that fills them."""

from __future__ import annotations

from array import array
from collections.abc import Generator

from ....golden.config import Config
from ....golden.timing.latencies import WORDS_AHEAD, command_beats, commands_at_once
from ....golden.timing.overheads import OVERHEADS
from ....golden.units import Queue
from .agenda import Agenda, Events, Process, Signal, Wait
from .bus import Reads


class Ring:
    """The commands of one queue, of a program that is longer than the ring.

    Parameters
    ----------
    agenda : Agenda
    config : Config
    commands : int
        All of them, END included.

    Attributes
    ----------
    room : Events
        There is room for each command.
    arrived : Events
        Each command's last word arrives.
    started : Events
        The queue may read each command.
    asked : int
        Commands that have been asked for.
    offers : int
        Commands of the burst that waits for the prefetcher.
    taken : Signal
        The prefetcher takes the burst.
    """

    def __init__(self, agenda: Agenda, config: Config, commands: int):
        self.agenda, self.commands = agenda, commands
        self.beats = command_beats(config)
        # A burst may hold two commands, of which the first has an even number.
        self.pairs = commands_at_once(config) > 1
        self.room = Events(agenda, array("q", [0] * config.resident_commands))
        self.arrived, self.started = Events(agenda), Events(agenda)
        self.asked, self.offers, self.taken = 0, 0, Signal()

    def ask(self, fetcher: Signal) -> Process:
        """Offer bursts to the prefetcher as long as there are commands to fetch, and room for them."""
        measured = OVERHEADS.first_fetch
        while self.asked < self.commands:
            # Every other cycle it looks for room.
            measured += max((yield from self.room.of(self.asked)) - measured + 1, 0) // 2 * 2
            yield measured
            following = self.asked + 1
            is_pair = (
                self.pairs
                and self.asked % 2 == 0
                and following < min(self.commands, len(self.room.times))
                and self.room.times[following] <= measured
            )
            yield measured + OVERHEADS.fetch - 2
            self.offers = 1 + is_pair
            self.agenda.fire(fetcher)
            while self.offers:
                yield self.taken
            measured = self.agenda.now + 2

    def read(self) -> Process:
        """Make room: words leave the ring as soon as those that are so many before them have left for the queue."""
        for index in range(self.commands):
            number, word = divmod((index + 1) * self.beats - 1 - WORDS_AHEAD, self.beats)
            left = 0
            if number >= 0:
                begin = (yield from self.started.of(number)) + 1
                end = (yield from self.arrived.of(number)) + OVERHEADS.fetched - OVERHEADS.command
                left = max(begin + word, end + 1 - self.beats + word)
            arrived = yield from self.arrived.of(index)
            self.room.add(max(left + OVERHEADS.read_next, arrived + OVERHEADS.read_first))


class Fetch:
    """Fetches the commands of both queues. Programs that fit their rings are resident: there is nothing to fetch.

    Parameters
    ----------
    agenda : Agenda
    bus : Reads
    config : Config
    commands : dict of Queue to int
        Commands of each queue, END included.
    last : Queue
        The ring that the run before this one served last: the other one goes first.
    """

    def __init__(self, agenda: Agenda, bus: Reads, config: Config, commands: dict[Queue, int], last: Queue):
        self.agenda, self.bus, self.config = agenda, bus, config
        self.served, self.offered = last, Signal()
        self.rings = {
            queue: Ring(agenda, config, count) for queue, count in commands.items() if count > config.resident_commands
        }
        #: Bursts, of which ring and of how many commands; when each begins on the bus.
        self.bursts: list[tuple[Ring, int]] = []
        self.begins = Events(agenda)

    def start(self) -> None:
        """Begin to fetch."""
        for ring in self.rings.values():
            self.agenda.start(ring.ask(self.offered), 0)
            self.agenda.start(ring.read(), 0)
        self.agenda.start(self._serve(), 1)
        self.agenda.start(self._arrive(), 1)

    def arrival(self, queue: Queue, index: int, begun: int) -> Generator[Wait, None, int]:
        """Wait until it is known when a queue has a command; it reads that from when the one before has ``begun``."""
        ring = self.rings.get(queue)
        if ring is None:
            return 0
        ring.started.add(begun)
        return (yield from ring.arrived.of(index)) + OVERHEADS.fetched

    def _serve(self) -> Process:
        """Take the bursts of the rings, in turns where both have one."""
        while any(ring.asked < ring.commands for ring in self.rings.values()):
            offers = [queue for queue, ring in self.rings.items() if ring.offers]
            if not offers:
                yield self.offered
                continue
            held_until = (
                (yield from self._ended(len(self.bursts) - self.config.axi.outstanding)) + OVERHEADS.refetch - 2
            )
            if held_until > self.agenda.now:
                yield held_until
                continue
            self.served = next((queue for queue in offers if queue is not self.served), self.served)
            ring = self.rings[self.served]
            count, ring.offers = ring.offers, 0
            ring.asked += count
            self.agenda.fire(ring.taken)
            self.bursts.append((ring, count))
            yield (yield from self.bus.take(self.agenda.now, count * ring.beats, self.begins)) + 2

    def _arrive(self) -> Process:
        """Tell the rings what comes."""
        number = 0
        while True:
            first = yield from self.begins.of(number)
            ring, count = self.bursts[number]
            ring.arrived.add(*(first + (command + 1) * ring.beats for command in range(count)))
            number += 1

    def _ended(self, number: int) -> Generator[Wait, None, int]:
        """Wait until it is known when a burst has ended on the bus; zero if there is none of this number."""
        if number < 0:
            return 0
        ring, count = self.bursts[number]
        return (yield from self.begins.of(number)) + count * ring.beats + 1
