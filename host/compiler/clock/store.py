"""STORE against the clock."""

from __future__ import annotations

import bisect
import itertools
from array import array
from collections import deque
from collections.abc import Callable, Generator

from ....golden.config import Config
from ....golden.timing.latencies import BEATS_OUTGOING, COLLECTED_BURSTS, burst_beats
from ....golden.timing.overheads import OVERHEADS
from ..data.command import Command
from .agenda import Agenda, Events, Process, Signal, Wait
from .port import Port, free_cycles

#: Takes when a burst is there with all its beats, and how many these are; gives when the first one goes and when it is
#: answered.
Send = Callable[[int, int], Generator[Wait, None, tuple[int, int]]]


class StoreClock:
    """The unit of STORE: it reads in the cycles in which no step does.

    Rows, their runs and the bursts of these wait in stages one after the other, each for room in the next one.

    Parameters
    ----------
    agenda : Agenda
    config : Config
    reads : Port
        Of the feature memory.
    completed : Events
        Commands of the DMA queue.
    send : Send or None
        Where cores share the pins.
    """

    def __init__(self, agenda: Agenda, config: Config, reads: Port, completed: Events, send: Send | None = None):
        self.agenda, self.config, self.reads, self.completed, self.send = agenda, config, reads, completed, send
        #: Of the commands that the unit has taken, and of those before the last one, which must be walked first.
        self.rows, self.after = 0, -1
        self.waiting: deque[tuple[Command, int]] = deque()
        self.comes = Signal()
        #: Of rows: walked. Of bursts: found, begun, read to their last beat, begun at the pins behind an arbiter,
        #: answered.
        self.walked, self.found, self.begun, self.read, self.sent, self.answered = (Events(agenda) for _ in range(6))
        #: Beats of each burst that is found; beats of all before it; the command that ends with a burst.
        self.bursts, self.firsts = array("q"), array("q")
        self.ends: dict[int, tuple[Command, int]] = {}
        #: Beats that are read.
        self.beats = 0

    def start(self) -> None:
        """Wait for commands."""
        for process in (self._find(), self._begin(), self._read(), self._answer()):
            self.agenda.start(process, 4)

    def accept(self, command: Command, begin: int) -> None:
        """Take a command."""
        self.waiting.append((command, begin))
        self.agenda.fire(self.comes)
        self.after, self.rows = self.rows - 1, self.rows + command.fields["rows"]

    def accepts(self) -> Generator[Wait, None, int]:
        """Wait until it is known when the next command can be taken: the last one is walked, as all rows before its own
        are."""
        return (yield from self.walked.of(self.after)) + OVERHEADS.store_room

    def _find(self) -> Process:
        """Walk rows, and find the bursts of each."""
        split = beats = 0
        while True:
            while not self.waiting:
                yield self.comes
            command, begin = self.waiting.popleft()
            fields = command.fields
            walked = max(begin + OVERHEADS.store - 5, self.walked.last + 3 if self.walked.times else 0)
            for row in range(fields["rows"]):
                # One row waits to be split.
                walked = max(walked, split + 1)
                self.walked.add(walked)
                split = max(walked, self.found.last) + 1
                now, last = split, row == fields["rows"] - 1
                sizes = burst_beats(self.config, fields["external"] + row * fields["external_row"], fields["row_bytes"])
                for number, count in enumerate(sizes):
                    now = max(now, (yield from self.begun.of(len(self.bursts) - 2))) + 1
                    if last and number == len(sizes) - 1:
                        self.ends[len(self.bursts)] = command, begin
                    self.bursts.append(count)
                    self.firsts.append(beats)
                    beats += count
                    self.found.add(now)
                walked += 1

    def _begin(self) -> Process:
        """Begin bursts: two wait for the reader, and so many for their answer."""
        for number in itertools.count():
            now = max((yield from self.found.of(number)), (yield from self.begun.of(number - 1))) + 1
            now = max(now, (yield from self.read.of(number - 3)))
            answer = yield from self.answered.of(number - self.config.axi.outstanding)
            self.begun.add(max(now, answer + OVERHEADS.restore - 2))

    def _read(self) -> Process:
        """Read the beats of bursts."""
        end = 0
        for number in itertools.count():
            end = max((yield from self.begun.of(number)) + 2, end)
            left = self.bursts[number]
            while left:
                room, count = yield from self._room(left)
                begin = max(end, room) - OVERHEADS.read_lead
                end = OVERHEADS.read_lead + (yield from free_cycles(self.agenda, self.reads, begin, count))
                left, self.beats = left - count, self.beats + count
            self.read.add(end)
            self.reads.forget(end - OVERHEADS.read_lead)

    def _room(self, most: int) -> Generator[Wait, None, tuple[int, int]]:
        """When the next beat may be read, and of how many, ``most`` at most, this is true at one beat a cycle."""
        if self.send is None:
            return 0, most
        # An arbiter's queue holds so many: this one has to have left it.
        before = self.beats - BEATS_OUTGOING - COLLECTED_BURSTS * self.config.axi.BURST_BEATS
        if before < 0:
            return 0, min(most, -before)
        number = bisect.bisect_right(self.firsts, before) - 1
        # Its beats leave one a cycle.
        sent = yield from self.sent.of(number)
        return sent + OVERHEADS.shared_room, min(most, self.firsts[number] + self.bursts[number] - before)

    def _answer(self) -> Process:
        """Send the bursts that are read, and complete the commands whose last one is answered."""
        for number in itertools.count():
            last = (yield from self.read.of(number)) + OVERHEADS.store_beat
            beats, ends = self.bursts[number], self.ends.pop(number, None)
            if self.send is None:
                answered = last + OVERHEADS.write_latency
            else:
                begin, answered = yield from self.send(last, beats)
                self.sent.add(begin)
            self.answered.add(answered)
            if ends is not None:
                command, command.begin = ends
                command.end = max(answered + OVERHEADS.store_finish, self.completed.last + 1)
                self.completed.add(command.end)
