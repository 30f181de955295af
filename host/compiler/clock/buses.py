"""The buses against the clock: the external port, the memory and the arbiter before it, and who waits for whom."""

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

# What happens when: processes that go on in the order of time.


@dataclass(eq=False)
class Signal:
    """Something that processes wait for."""

    waiting: list[tuple[int, Process]] = field(default_factory=list)


#: What a process waits for: a time, or a signal.
Wait = int | Signal
#: A process gives back nothing; its parts may give back what they have waited for.
Process = Generator[Wait, None, None]


@dataclass
class Agenda:
    """Resume processes in the order of time. What a process knows is true up to the time in which it is resumed, so
    that it may rely on all that others have said, and say of its own future what nobody can change any more.

    Attributes
    ----------
    now : int
    """

    now: int = 0
    _heap: list[tuple[int, int, int, Process]] = field(default_factory=list)
    _number: Iterator[int] = field(default_factory=itertools.count)

    def start(self, process: Process, rank: int) -> None:
        """Begin a process; of those that are due at the same time the lowest rank goes first."""
        self._push(self.now, rank, process)

    def fire(self, signal: Signal) -> None:
        """Resume all that wait for a signal."""
        waiting, signal.waiting = signal.waiting, []
        for rank, process in waiting:
            self._push(self.now, rank, process)

    def is_next(self, time: int) -> bool:
        """Whether nothing else happens up to a time: the caller may go on there at once."""
        if self._heap and self._heap[0][0] <= time:
            return False
        self.now = max(self.now, time)
        return True

    def settle(self, when: Callable[[], int]) -> Generator[Wait, None, int]:
        """Wait for a time that others may put off until then; gives it."""
        time = when()
        while not self.is_next(time):
            yield time
            before, time = time, when()
            if time == before:
                break
        return time

    def run(self) -> None:
        """Until nothing is left to do, or all wait for one another."""
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
    """When each of a sequence happens, as far as that is known.

    Attributes
    ----------
    times : array of int
        Hundreds of thousands of them: objects of their own would take five times the memory.
    changed : Signal
        Of ``times``.
    """

    agenda: Agenda
    times: array[int] = field(default_factory=lambda: array("q"))
    changed: Signal = field(default_factory=Signal)

    def add(self, *times: int) -> None:
        """What happens next."""
        self.times.extend(times)
        self.agenda.fire(self.changed)

    def of(self, index: int | None) -> Generator[Wait, None, int]:
        """Wait until it is known when one happens; at once and at zero if there is none of this number."""
        if index is None or index < 0:
            return 0
        while len(self.times) <= index:
            yield self.changed
        return self.times[index]

    @property
    def last(self) -> int:
        """When the last one so far happens; zero if there is none."""
        return self.times[-1] if self.times else 0


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


# An arbiter against the clock: whose burst is next at the pins that cores share.
#
# Twin of :mod:`lutterfly.hdl.bus.axi_arbiter`.


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


# A port of the feature memory against the clock: the cycles that COMPUTE commands take, and those that they leave.

#: Cycles one after the other that are taken: the first of them, and how many there are.
Run = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rounds:
    """What repeats itself: ``count`` times ``period`` cycles from ``begin`` on, of each of which ``runs`` are taken."""

    begin: int
    period: int
    count: int
    runs: tuple[Run, ...]

    def after(self, now: int, count: int) -> tuple[int, int]:
        """Go on from ``now``, not before ``begin``, for ``count`` free cycles; gives the time after the last of them
        that lies in here, and how many are missing then."""
        free = self.period - sum(length for _, length in self.runs)
        number, offset = divmod(now - self.begin, self.period)
        while number < self.count and count:
            if free and not offset:
                # Whole rounds, all but the last one.
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
class Port:
    """The cycles that COMPUTE commands take, in order.

    Each part of a command is worked out when somebody asks, and kept as long as somebody may ask again.
    """

    _ends: list[int] = field(default_factory=list)
    _parts: list[Callable[[], Iterable[Rounds]] | list[Rounds]] = field(default_factory=list)

    def take(self, end: int, part: Callable[[], Iterable[Rounds]]) -> None:
        """Some cycles before ``end`` are taken, after those that were taken before."""
        self._ends.append(end)
        self._parts.append(part)

    def forget(self, time: int) -> None:
        """Nobody asks for cycles before ``time`` any more."""
        over = bisect.bisect_right(self._ends, time)
        del self._ends[:over], self._parts[:over]

    def after(self, begin: int, count: int) -> int:
        """The time after ``count`` cycles that nothing takes, the first of them not before ``begin``."""
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


def free_cycles(agenda: Agenda, port: Port, begin: int, count: int) -> Generator[Wait, None, int]:
    """Wait for ``count`` cycles that nothing takes, as :meth:`Port.after`: commands that begin meanwhile take more."""
    return (yield from agenda.settle(lambda: port.after(begin, count)))


# Barriers against the clock: where cores meet.


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
