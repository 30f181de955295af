"""An arbiter against the clock: whose burst is next at the pins that cores share.

Twin of :mod:`lutterfly.hdl.bus.axi_arbiter`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator

from ....golden.timing.latencies import OFFERED_BURSTS, REQUESTS_AHEAD
from ....golden.timing.overheads import OVERHEADS
from .agenda import Agenda, Events, Process, Signal, Wait
from .bus import ReadMemory, held


class Turns:
    """Who is served next of the cores that ask: the first behind the one that was served last.

    Parameters
    ----------
    agenda : Agenda
    cores : int
    last : int
        The core that was served last.
    """

    def __init__(self, agenda: Agenda, cores: int, last: int):
        self.agenda, self.cores, self.last = agenda, cores, last
        #: When each core's requests come, and their numbers.
        self.asking: list[list[tuple[int, int]]] = [[] for _ in range(cores)]
        self.numbers = itertools.count()
        self.served = Signal()

    def wait(self, core: int, request: int, free: Callable[[], int]) -> Generator[Wait, None, int]:
        """Wait until a core is served with its request that comes at ``request``; gives when that is.

        ``free`` says when whoever is next may be served at the earliest.
        """
        ticket = (request, next(self.numbers))
        self.asking[core].append(ticket)
        while True:
            now = yield from self.agenda.settle(lambda: max(request, free()))
            if self._chosen(now) == ticket:
                break
            yield self.served
        self.asking[core].remove(ticket)
        self.last = core
        self.agenda.fire(self.served)
        return now

    def _chosen(self, now: int) -> tuple[int, int]:
        """The request whose turn it is of those that are here: a core's own are served one after the other."""
        behind = ((self.last + distance) % self.cores for distance in range(1, self.cores + 1))
        firsts = (min(self.asking[core], default=(now + 1, 0)) for core in behind)
        return next(first for first in firsts if first[0] <= now)


class SharedReads:
    """A core's side of the pins behind an arbiter.

    Parameters
    ----------
    memory : ReadMemory
    turns : Turns
        At the pins.
    core : int
    """

    def __init__(self, memory: ReadMemory, turns: Turns, core: int):
        self.memory, self.turns, self.core = memory, turns, core
        #: Requests that have not been served; when the guard may take the next one, if there is room; that there is.
        self.waiting, self.free, self.room = 0, 0, Signal()

    def take(self, request: int, beats: int, begins: Events) -> Generator[Wait, None, int]:
        """As :meth:`Reads.take`."""
        agenda = self.turns.agenda
        while True:
            while self.waiting == REQUESTS_AHEAD:
                yield self.room
            now = yield from agenda.settle(lambda: max(request, self.free))
            if self.waiting < REQUESTS_AHEAD:
                break
        self.waiting, self.free = self.waiting + 1, now + 1
        agenda.start(self._serve(now + 2, beats, begins), 0)
        return now

    def _serve(self, request: int, beats: int, begins: Events) -> Process:
        served = yield from self.turns.wait(self.core, request, lambda: self.memory.accepted)
        if self.waiting == REQUESTS_AHEAD:
            self.free = served + 1
            self.turns.agenda.fire(self.room)
        self.waiting -= 1
        begins.add(self.memory.accept(served, beats) + OVERHEADS.shared_answer)


class SharedWrites:
    """The pins of the write channels behind an arbiter, which collects the beats of a burst before it offers it.

    Parameters
    ----------
    turns : Turns
        At the pins.
    """

    def __init__(self, turns: Turns):
        self.turns = turns
        #: When each burst has gone and is answered; when the memory has taken the last request.
        self.ends: list[int] = []
        self.answers: list[int] = []
        self.accepted = 0

    def send(self, core: int, collected: int, beats: int) -> Generator[Wait, None, tuple[int, int]]:
        """Send a burst that is there with all its beats; gives when its first beat goes and when it is answered."""
        served = yield from self.turns.wait(
            core, collected + OVERHEADS.shared_write - 1, lambda: max(self.accepted, held(self.ends, OFFERED_BURSTS))
        )
        self.accepted = max(served + 1, held(self.answers, OVERHEADS.bursts) + 1)
        begin = max(self.accepted, held(self.ends, 1))
        self.ends.append(begin + beats)
        self.answers.append(begin + beats + OVERHEADS.write_latency)
        return begin, self.answers[-1]
