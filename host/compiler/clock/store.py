"""STORE against the clock."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Generator

from ....golden.config import Config
from ....golden.timing.bus import burst_beats
from ....golden.timing.depths import COLLECTED_BURSTS
from ....golden.timing.overheads import OVERHEADS
from ..data.command import Command
from .agenda import Agenda, Events, Process, Signal, Wait
from .bus import WriteBus
from .port import Port, free_cycles


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
    bus : WriteBus or None
        Where cores share one.
    """

    def __init__(self, agenda: Agenda, config: Config, reads: Port, completed: Events, bus: WriteBus | None = None):
        self.agenda, self.config, self.reads, self.completed, self.bus = agenda, config, reads, completed, bus
        #: Of the commands that the unit has taken, and of those before the last one, which must be walked first.
        self.rows, self.after = 0, -1
        self.waiting: deque[tuple[Command, int]] = deque()
        self.comes = Signal()
        #: Of rows: walked. Of bursts: found, begun, read to their last beat, sent by an arbiter, answered.
        self.walked, self.found, self.begun, self.read, self.sent, self.answered = (Events(agenda) for _ in range(6))
        #: Beats of each burst that is found, and the command that ends with it.
        self.bursts: list[tuple[int, tuple[Command, int] | None]] = []

    def start(self) -> None:
        """Wait for commands."""
        for process in (self._find(), self._begin(), self._read()):
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
        split = 0
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
                beats = burst_beats(self.config, fields["external"] + row * fields["external_row"], fields["row_bytes"])
                for number, count in enumerate(beats):
                    ends = last and number == len(beats) - 1
                    now = max(now, (yield from self.begun.of(len(self.bursts) - 2))) + 1
                    self.bursts.append((count, (command, begin) if ends else None))
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
        """Read and send the beats of bursts."""
        end = 0
        for number in itertools.count():
            begin = max((yield from self.begun.of(number)) + 2, end)
            if self.bus is not None:
                # Each burst has its place in the arbiter.
                begin = max(begin, (yield from self.sent.of(number - COLLECTED_BURSTS)))
            beats, ends = self.bursts[number]
            end = yield from free_cycles(self.agenda, self.reads, begin - OVERHEADS.read_lead, beats)
            end += OVERHEADS.read_lead
            self.read.add(end)
            answered = yield from self._send(number, end + OVERHEADS.store_beat, beats)
            self.answered.add(answered)
            if ends is not None:
                command, command.begin = ends
                command.end = max(answered + OVERHEADS.store_finish, self.completed.last + 1)
                self.completed.add(command.end)

    def _send(self, number: int, last: int, beats: int) -> Generator[Wait, None, int]:
        """When a burst is answered whose last beat goes out at ``last``."""
        if self.bus is None:
            return last + OVERHEADS.write_latency
        sent, answered = yield from self.bus.send(last, beats)
        self.sent.add(sent)
        return answered
