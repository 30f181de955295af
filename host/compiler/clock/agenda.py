"""What happens when: processes that go on in the order of time."""

from __future__ import annotations

import heapq
import itertools
from array import array
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field


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
    _number: Iterable[int] = field(default_factory=itertools.count)

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
