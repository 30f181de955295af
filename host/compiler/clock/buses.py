"""Timing of the buses: external port, memory, arbiters, the ports of the feature memory, and barriers."""

from __future__ import annotations

import bisect
import heapq
import itertools
from array import array
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ....golden.timing.latencies import OFFERED_BURSTS, REQUESTS_AHEAD
from ....golden.timing.overheads import OVERHEADS

# Discrete-event simulation: processes that are resumed in the order of time.


@dataclass(eq=False)
class Signal:
    """An event that processes wait for."""

    waiting: list[tuple[int, Process]] = field(default_factory=list)


#: The object that a process waits for: a time in cycles, or a signal.
Wait = int | Signal
#: A process returns nothing; its sub-generators may return the result that they have waited for.
Process = Generator[Wait, None, None]


@dataclass
class Agenda:
    """Resume processes in the order of time. All that a process reads is final up to the time at which it is resumed;
    it may publish events of its own future that no other process can change any more.

    Attributes
    ----------
    now : int
    """

    now: int = 0
    _heap: list[tuple[int, int, int, Process]] = field(default_factory=list)
    _number: Iterator[int] = field(default_factory=itertools.count)

    def start(self, process: Process, rank: int) -> None:
        """Begin a process; of several at the same time the one with the lowest rank goes first."""
        self._push(self.now, rank, process)

    def fire(self, signal: Signal) -> None:
        """Resume all processes that wait for a signal."""
        waiting, signal.waiting = signal.waiting, []
        for rank, process in waiting:
            self._push(self.now, rank, process)

    def is_next(self, time: int) -> bool:
        """Return whether nothing else is due up to a time, so that the caller may proceed there at once."""
        if self._heap and self._heap[0][0] <= time:
            return False
        self.now = max(self.now, time)
        return True

    def settle(self, when: Callable[[], int]) -> Generator[Wait, None, int]:
        """Wait for a time that other processes may postpone meanwhile; return it."""
        time = when()
        while not self.is_next(time):
            yield time
            before, time = time, when()
            if time == before:
                break
        return time

    def run(self) -> None:
        """Run until no process is left, or all wait for signals."""
        heap = self._heap
        while heap:
            self.now, rank, _, process = heapq.heappop(heap)
            wanted = next(process, None)
            if isinstance(wanted, Signal):
                wanted.waiting.append((rank, process))
            elif wanted is not None:
                self._push(wanted, rank, process)

    def _push(self, time: int, rank: int, process: Process) -> None:
        heapq.heappush(self._heap, (max(time, self.now), rank, next(self._number), process))


@dataclass
class Events:
    """The times of a sequence of events, as far as they are known.

    Attributes
    ----------
    times : array of int
        Times in cycles; there are hundreds of thousands, and a list of objects would take five times the memory.
    changed : Signal
        Fired when ``times`` grows.
    """

    agenda: Agenda
    times: array[int] = field(default_factory=lambda: array("q"))
    changed: Signal = field(default_factory=Signal)

    def add(self, *times: int) -> None:
        """Append the times of the next events."""
        self.times.extend(times)
        self.agenda.fire(self.changed)

    def of(self, index: int | None) -> Generator[Wait, None, int]:
        """Wait until the time of an event is known, and return it; zero, at once, for None or a negative number."""
        if index is None or index < 0:
            return 0
        while len(self.times) <= index:
            yield self.changed
        return self.times[index]

    @property
    def last(self) -> int:
        """The time of the last event so far; zero if there is none."""
        return self.times[-1] if self.times else 0


def held(ends: Sequence[int], most: int) -> int:
    """Return the time from which the next burst may be requested, with at most ``most`` in flight; ``ends`` are the
    times at which earlier bursts end."""
    return ends[-most] if len(ends) >= most else 0


class Reads(Protocol):
    """The read channels of a core's external port."""

    def take(self, request: int, beats: int, begins: Events) -> Generator[Wait, None, int]:
        """Request a burst at ``request`` or later, and return the time of the request. The cycle of its first beat is
        added to ``begins`` as soon as it is known."""


@dataclass
class ReadMemory:
    """The pins of the read channels, and the memory behind them.

    Attributes
    ----------
    free : int
        Time of the next free beat.
    ends : deque of int
        Times at which the latest bursts end, as many as may be in flight.
    accepted : int
        Time at which the memory has accepted the last request.
    """

    free: int = 0
    ends: deque[int] = field(default_factory=lambda: deque(maxlen=OVERHEADS.bursts))
    accepted: int = 0

    def accept(self, request: int, beats: int) -> int:
        """Accept a request that is at the pins; return the cycle of its first beat."""
        self.accepted = max(request + 1, held(self.ends, OVERHEADS.bursts))
        first = max(self.free, self.accepted + OVERHEADS.read_latency)
        self.free = first + beats
        self.ends.append(self.free)
        return first


@dataclass
class ReadBus:
    """The read channels of a core that shares its pins with no other core.

    Attributes
    ----------
    shared : bool
        Whether commands are fetched while the program runs.
    memory : ReadMemory
    """

    agenda: Agenda
    shared: bool
    memory: ReadMemory = field(default_factory=ReadMemory)

    def take(self, request: int, beats: int, begins: Events) -> Generator[Wait, None, int]:
        """Request a burst, see :meth:`Reads.take`."""
        if self.shared:
            request = yield from self.agenda.settle(lambda: max(request, self.memory.accepted))
        request = max(request, self.memory.accepted)
        begins.add(self.memory.accept(request, beats))
        return request


# Timing of the arbiter of pins that cores share, :mod:`lutterfly.hdl.bus.axi_arbiter`.


class Turns:
    """A round-robin arbiter: the next core with a request behind the one that was served last.

    Parameters
    ----------
    agenda : Agenda
    cores : int
    last : int
        The core that was served last.
    """

    def __init__(self, agenda: Agenda, cores: int, last: int):
        self.agenda, self.cores, self.last = agenda, cores, last
        #: Time and number of each waiting request, for each core.
        self.asking: list[list[tuple[int, int]]] = [[] for _ in range(cores)]
        self.numbers = itertools.count()
        self.served = Signal()

    def wait(self, core: int, request: int, free: Callable[[], int]) -> Generator[Wait, None, int]:
        """Wait until a core's request that comes at ``request`` is served; return the time of that.

        ``free`` returns the earliest time of the next service.
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
        """Return the waiting request that is served next; requests of one core are served in order."""
        behind = ((self.last + distance) % self.cores for distance in range(1, self.cores + 1))
        firsts = (min(self.asking[core], default=(now + 1, 0)) for core in behind)
        return next(first for first in firsts if first[0] <= now)


class SharedReads:
    """The read channels of a core behind an arbiter.

    Parameters
    ----------
    memory : ReadMemory
    turns : Turns
        The arbiter of the pins.
    core : int
    """

    def __init__(self, memory: ReadMemory, turns: Turns, core: int):
        self.memory, self.turns, self.core = memory, turns, core
        #: Requests that have not been served; the time from which another may be queued, if there is room; fired when
        #: there is.
        self.waiting, self.free, self.room = 0, 0, Signal()

    def take(self, request: int, beats: int, begins: Events) -> Generator[Wait, None, int]:
        """Request a burst, see :meth:`Reads.take`."""
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
    """The write channels behind an arbiter, which collects all beats of a burst before it offers the burst.

    Parameters
    ----------
    turns : Turns
        The arbiter of the pins.
    """

    def __init__(self, turns: Turns):
        self.turns = turns
        #: Times at which each burst ends and is answered, and at which the memory has accepted the last request.
        self.ends: list[int] = []
        self.answers: list[int] = []
        self.accepted = 0

    def send(self, core: int, collected: int, beats: int) -> Generator[Wait, None, tuple[int, int]]:
        """Send a burst whose beats have all been collected; return the times of its first beat and of its answer."""
        served = yield from self.turns.wait(
            core, collected + OVERHEADS.shared_write - 1, lambda: max(self.accepted, held(self.ends, OFFERED_BURSTS))
        )
        self.accepted = max(served + 1, held(self.answers, OVERHEADS.bursts) + 1)
        begin = max(self.accepted, held(self.ends, 1))
        self.ends.append(begin + beats)
        self.answers.append(begin + beats + OVERHEADS.write_latency)
        return begin, self.answers[-1]


# Timing of a port of the feature memory: the cycles that COMPUTE commands occupy, and those that they leave free.

#: A run of occupied cycles: the first of them, and their number.
Run = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rounds:
    """A repeated pattern from ``begin`` on: ``count`` periods of ``period`` cycles, in each of which ``runs`` are
    occupied."""

    begin: int
    period: int
    count: int
    runs: tuple[Run, ...]

    def after(self, now: int, count: int) -> tuple[int, int]:
        """Advance from ``now``, not before ``begin``, by ``count`` free cycles; return the time after the last of them
        within the pattern, and the number of cycles that are still missing."""
        free = self.period - sum(length for _, length in self.runs)
        number, offset = divmod(now - self.begin, self.period)
        while number < self.count and count:
            if free and not offset:
                # These periods are skipped as a whole; the last one is not.
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
class MemoryPort:
    """The cycles of a port that COMPUTE commands occupy, in order.

    Each part of a command is computed on the first query, and kept as long as another query may need it.
    """

    _ends: list[int] = field(default_factory=list)
    _parts: list[Callable[[], Iterable[Rounds]] | list[Rounds]] = field(default_factory=list)

    def take(self, end: int, part: Callable[[], Iterable[Rounds]]) -> None:
        """Occupy cycles before ``end``, after all that were occupied earlier."""
        self._ends.append(end)
        self._parts.append(part)

    def forget(self, time: int) -> None:
        """Drop the cycles before ``time``, which no query needs any more."""
        over = bisect.bisect_right(self._ends, time)
        del self._ends[:over], self._parts[:over]

    def after(self, begin: int, count: int) -> int:
        """Return the time after ``count`` free cycles, the first of them not before ``begin``."""
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


def free_cycles(agenda: Agenda, port: MemoryPort, begin: int, count: int) -> Generator[Wait, None, int]:
    """Wait for ``count`` free cycles, see :meth:`MemoryPort.after`; commands that begin meanwhile may postpone it."""
    return (yield from agenda.settle(lambda: port.after(begin, count)))


# Timing of barriers.


@dataclass(eq=False)
class _Barrier:
    """One barrier of a group of cores."""

    missing: int
    latest: int = 0
    complete: Signal = field(default_factory=Signal)


@dataclass
class Barriers:
    """The barriers of all groups of cores, in order for each group."""

    agenda: Agenda
    _count: Counter[tuple[int, int]] = field(default_factory=Counter)
    _barriers: dict[tuple[int, int], _Barrier] = field(default_factory=dict)

    def meet(self, core: int, group: int, arrival: int) -> Generator[Wait, None, int]:
        """Let a core wait at a barrier from ``arrival`` on; return the time at which all have arrived."""
        number = self._count[core, group]
        self._count[core, group] += 1
        barrier = self._barriers.setdefault((group, number), _Barrier(group.bit_count()))
        barrier.missing -= 1
        barrier.latest = max(barrier.latest, arrival)
        if not barrier.missing:
            self.agenda.fire(barrier.complete)
        while barrier.missing:
            yield barrier.complete
        return barrier.latest + OVERHEADS.barrier
