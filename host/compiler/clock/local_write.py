"""LOAD and FILL against the clock: what they write."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from operator import attrgetter

from ....golden.config import Config
from ....golden.isa import Opcode
from ....golden.memories import LocalMemory
from ....golden.timing.latencies import PIECES_AHEAD, burst_beats, fill_cycles
from ....golden.timing.overheads import OVERHEADS
from ..data.command import Command
from .agenda import Agenda, Events, Process, Signal, Wait
from .chunks import runs
from .port import Port, free_cycles


@dataclass(frozen=True, slots=True)
class Stretch:
    """Chunks that are written one after the other, as far as they are not held up.

    Attributes
    ----------
    before : int
        Chunks before them.
    begin : int
    is_feature : bool
        They wait for results.
    """

    before: int
    begin: int
    is_feature: bool


class WriteClock:
    """What LOAD and FILL write, command by command: to the feature memory in the cycles in which no result is written.

    Parameters
    ----------
    agenda : Agenda
    config : Config
    writes : Port
        Of the feature memory.
    completed : Events
        Commands of the DMA queue.
    """

    def __init__(self, agenda: Agenda, config: Config, writes: Port, completed: Events):
        self.agenda, self.config, self.writes, self.completed = agenda, config, writes, completed
        self.commands: deque[tuple[Command, int]] = deque()
        self.bursts: deque[tuple[int, int]] = deque()
        self.comes = Signal()
        #: When the next chunk may be written; when the last piece of a LOAD or FILL has been found, as the time at
        #: which it could be written at once.
        self.now, self.found = 0, 0
        #: All chunks so far, and when those are written that somebody may still ask about.
        self.chunks = 0
        self.stretches: list[Stretch] = []
        self.begins = Signal()

    def accept(self, command: Command, begin: int) -> None:
        """Take a command."""
        self.commands.append((command, begin))
        self.agenda.fire(self.comes)

    def bring(self, first: int, beats: int) -> None:
        """The next burst of a LOAD: when its first beat comes, and how many there are."""
        self.bursts.append((first, beats))
        self.agenda.fire(self.comes)

    def written(self, chunks: int) -> Generator[Wait, None, int]:
        """Wait until it is known when so many chunks have been written, not fewer than were asked about before."""
        if chunks <= 0:
            return 0
        while self.chunks < chunks:
            yield self.begins
        # Later questions are about later chunks.
        del self.stretches[: bisect.bisect_left(self.stretches, chunks, key=attrgetter("before")) - 1]
        stretch = self.stretches[0]
        self.writes.forget(stretch.begin + OVERHEADS.write_lead)
        return (yield from self._end(stretch, chunks - stretch.before))

    def run(self) -> Process:
        """Write what comes."""
        while True:
            while not self.commands:
                yield self.comes
            command, begin = self.commands.popleft()
            if command.opcode is Opcode.LOAD:
                end = yield from self._load(command.fields, begin)
            else:
                end = yield from self._fill(command.fields, begin)
            command.begin, command.end = begin, max(end + OVERHEADS.write_finish, self.completed.last + 1)
            self.completed.add(command.end)

    def _load(self, fields: dict[str, int], begin: int) -> Generator[Wait, None, int]:
        prepared = begin + OVERHEADS.load - 2 + fields["row_pieces"].bit_length()
        finds = max(prepared, self.found + OVERHEADS.next_pieces)
        self.now = max(self.now, finds)
        is_feature, end = fields["memory"] == LocalMemory.FEATURE, 0
        for run in runs(self.config, fields):
            come = 0
            for _ in burst_beats(self.config, run.address, run.size):
                while not self.bursts:
                    yield self.comes
                first, count = self.bursts.popleft()
                before, come = come, come + count
                arrives = first + OVERHEADS.load_write
                # A chunk that has begun in the burst before needs no more than that the next beat is there.
                now = max(self.now, arrives - (run.begun(before) > run.ended(before)))
                yield from self._write(now, run.ended(come) - run.ended(before), is_feature)
                self.now = max(self.now, arrives + count - run.crosses(come))
            end = self.now
            self._find(finds, fields["row_pieces"], run.ended(come), end)
            finds = self.found + 1
            # A beat that has no place of its own goes before the next run's first one comes.
            self.now += run.crosses(come)
        return end

    def _fill(self, fields: dict[str, int], begin: int) -> Generator[Wait, None, int]:
        rows = fields["rows"]
        cycles = fill_cycles(self.config, rows, fields["piece_bytes"])
        finds = max(begin + OVERHEADS.fill_write, self.found + OVERHEADS.next_pieces)
        yield from self._write(max(self.now, finds), cycles, is_feature=True)
        self._find(finds, rows, cycles, self.now)
        return self.now

    def _write(self, begin: int, chunks: int, is_feature: bool) -> Generator[Wait, None, None]:
        stretch = Stretch(self.chunks, begin, is_feature)
        self.stretches.append(stretch)
        self.chunks += chunks
        self.agenda.fire(self.begins)
        self.now = yield from self._end(stretch, chunks)

    def _end(self, stretch: Stretch, chunks: int) -> Generator[Wait, None, int]:
        """When the first ``chunks`` of a stretch are written."""
        if not stretch.is_feature:
            return stretch.begin + chunks
        end = yield from free_cycles(self.agenda, self.writes, stretch.begin + OVERHEADS.write_lead, chunks)
        return end - OVERHEADS.write_lead

    def _find(self, begin: int, pieces: int, cycles: int, written: int) -> None:
        """Find a piece a cycle from ``begin`` on, where there is room for it: a few are found ahead."""
        ahead = min(PIECES_AHEAD, pieces - 1) * cycles // pieces
        self.found = max(begin + pieces - 1, written - cycles // pieces - ahead)
