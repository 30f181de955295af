"""LOAD against the clock: asking for its bursts."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass

from ....golden.config import Config
from ....golden.isa import Opcode
from ....golden.timing.latencies import BEATS_AHEAD, CHUNKS_AHEAD, LOAD_RUNS_AHEAD, burst_beats, fill_cycles, load_beats
from ....golden.timing.overheads import OVERHEADS
from ..data.command import Command
from .agenda import Agenda, Events, Process, Signal, Wait
from .bus import Reads
from .chunks import Run, runs
from .local_write import WriteClock
from .port import Port


@dataclass(frozen=True, slots=True)
class Found:
    """A burst of a run.

    Attributes
    ----------
    run : Run
    begin, beats : int
        Its first beat in the run, and how many there are.
    beats_before, chunks_before : int
        Beats of all bursts before it, and chunks of all runs and FILLs before its run.
    """

    run: Run
    begin: int
    beats: int
    beats_before: int
    chunks_before: int


class LoadClock:
    """The unit of LOAD and FILL: it asks for the bursts of later commands while those of earlier ones are written.

    Parameters
    ----------
    agenda : Agenda
    config : Config
    bus : Reads
    writes : Port
        Of the feature memory.
    completed : Events
        Commands of the DMA queue.
    """

    def __init__(self, agenda: Agenda, config: Config, bus: Reads, writes: Port, completed: Events):
        self.agenda, self.config, self.bus = agenda, config, bus
        self.write = WriteClock(agenda, config, writes, completed)
        #: When the last command could be walked if nothing were in its way, the run that must be split before that, and
        #: the runs of all LOADs so far.
        self.walked, self.after, self.runs = 0, -1, 0
        self.waiting: deque[tuple[Command, int]] = deque()
        self.comes = Signal()
        #: Runs that begin to be split; bursts that are found in them, asked for, and begin on the bus.
        self.split, self.found, self.asked, self.begins = (Events(agenda) for _ in range(4))
        #: Those that somebody may still ask about, by their numbers; how many are found in all.
        self.bursts: dict[int, Found] = {}
        self.count = 0
        #: The first burst of which some beat may be in its queue, and the next one to be brought.
        self.queued = self.brought = 0

    def start(self) -> None:
        """Wait for commands."""
        for process in (self._split(), self._ask(), self._bring()):
            self.agenda.start(process, 3)
        self.agenda.start(self.write.run(), 4)

    def accept(self, command: Command, begin: int) -> None:
        """Take a command."""
        fields = command.fields
        self.waiting.append((command, begin))
        self.agenda.fire(self.comes)
        self.walked, self.after = begin + OVERHEADS.load - 6, -1
        if command.opcode is Opcode.LOAD:
            self.walked += fields["row_pieces"].bit_length()
            self.after = self.runs - LOAD_RUNS_AHEAD
            self.runs += fields["rows"] * fields["folds"]

    def accepts(self) -> Generator[Wait, None, int]:
        """Wait until it is known when the next command can be taken."""
        if self.after < 0:
            return self.walked
        return max(self.walked, (yield from self.split.of(self.after)) + 3)

    def _split(self) -> Process:
        """Split all runs into bursts."""
        now = beats = chunks = 0
        while True:
            while not self.waiting:
                yield self.comes
            command, begin = self.waiting.popleft()
            self.write.accept(command, begin)
            fields = command.fields
            if command.opcode is Opcode.FILL:
                chunks += fill_cycles(self.config, fields["rows"], fields["piece_bytes"])
                continue
            after = len(self.split.times) - LOAD_RUNS_AHEAD
            before = self.split.times[after] if after >= 0 else 0
            now = max(now, max(begin + OVERHEADS.load - 7 + fields["row_pieces"].bit_length(), before + 2) + 3)
            for run in runs(self.config, fields):
                self.split.add(now)
                come = 0
                for count in burst_beats(self.config, run.address, run.size):
                    # Two are found ahead.
                    now = max(now, (yield from self.asked.of(self.count - 2))) + 1
                    self.bursts[self.count] = Found(run, come, count, beats, chunks)
                    self.count += 1
                    self.found.add(now)
                    come, beats = come + count, beats + count
                chunks += run.ended(come)
                now += 1

    def _ask(self) -> Process:
        """Ask for the bursts that are found."""
        kept = 0
        for number in itertools.count():
            found = yield from self.found.of(number)
            burst = self.bursts[number]
            now = max(found + 1, (yield from self._ended(number - self.config.axi.outstanding)) + OVERHEADS.reload - 2)
            now = max(now, (yield from self._room(burst.beats_before)))
            taken = yield from self.bus.take(now + 1, burst.beats, self.begins)
            self.asked.add(max(now, taken - 2))
            while kept < min(self.queued, self.brought, number + 1 - self.config.axi.outstanding):
                del self.bursts[kept]
                kept += 1

    def _bring(self) -> Process:
        """Tell who writes what comes."""
        for number in itertools.count():
            first = yield from self.begins.of(number)
            self.write.bring(first, self.bursts[number].beats)
            self.brought = number + 1

    def _ended(self, number: int) -> Generator[Wait, None, int]:
        """Wait until it is known when a burst ends on the bus; zero if there is none of this number."""
        return 0 if number < 0 else (yield from self.begins.of(number)) + self.bursts[number].beats

    def _room(self, beats: int) -> Generator[Wait, None, int]:
        """When the ``beats`` that have been asked for leave room for two bursts more, which is asked of their queue."""
        leaves = beats - (load_beats(self.config) - 2 * self.config.axi.BURST_BEATS)
        if leaves <= 0:
            return 0
        while self.bursts[self.queued].beats_before + self.bursts[self.queued].beats < leaves:
            self.queued += 1
        burst, first = self.bursts[self.queued], (yield from self.begins.of(self.queued))
        beats = leaves - burst.beats_before
        # It leaves when the beat that is so many before it is used up, by a chunk for which there is a place.
        used = burst.begin + beats - BEATS_AHEAD - 1
        chunk = burst.chunks_before + burst.run.begun(used) - CHUNKS_AHEAD
        written = yield from self.write.written(chunk)
        return max(first + beats + OVERHEADS.leave, written + OVERHEADS.leave_late)
