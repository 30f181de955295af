"""The DMA queue against the clock: LOAD, STORE, and what they write and read of memories on the chip."""

from __future__ import annotations

import bisect
import itertools
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from operator import attrgetter

from ....golden.config import Config
from ....golden.engines import find_memory
from ....golden.isa import Fill, Load, Store
from ....golden.memories import LocalMemory
from ....golden.timing.latencies import (
    BEATS_AHEAD,
    BEATS_OUTGOING,
    CHUNKS_AHEAD,
    COLLECTED_BURSTS,
    LOAD_RUNS_AHEAD,
    PIECES_AHEAD,
    burst_beats,
    fill_cycles,
    load_beats,
)
from ....golden.timing.overheads import OVERHEADS
from ..operation import Command
from .buses import Agenda, Events, Port, Process, Reads, Signal, Wait, free_cycles

# STORE against the clock.

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
        assert isinstance(command.fields, Store), "what the unit executes"
        self.after, self.rows = self.rows - 1, self.rows + command.fields.rows

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
            assert isinstance(fields, Store), "what the unit executes"
            walked = max(begin + OVERHEADS.store - 5, self.walked.last + 3 if self.walked.times else 0)
            for row in range(fields.rows):
                # One row waits to be split.
                walked = max(walked, split + 1)
                self.walked.add(walked)
                split = max(walked, self.found.last) + 1
                now, last = split, row == fields.rows - 1
                sizes = burst_beats(self.config, fields.external + row * fields.external_row, fields.row_bytes)
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
                command, begun = ends
                command.begin = begun
                command.end = max(answered + OVERHEADS.store_finish, self.completed.last + 1)
                self.completed.add(command.end)


# The chunks in which a LOAD is written, and the beats that bring them.


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a LOAD: pieces without a gap between them on the bus, each of chunks and what is left after the last
    whole one.

    Attributes
    ----------
    address, size : int
        Of its bytes outside.
    beat_bytes, piece_bytes, chunk_bytes : int
    """

    address: int
    size: int
    beat_bytes: int
    piece_bytes: int
    chunk_bytes: int

    def ended(self, beats: int) -> int:
        """Chunks that lie in the first beats with their last byte."""
        pieces, rest = divmod(self._position(beats), self.piece_bytes)
        return pieces * -(-self.piece_bytes // self.chunk_bytes) + rest // self.chunk_bytes

    def begun(self, beats: int) -> int:
        """Chunks that lie in the first beats with their first byte."""
        return self.ended(beats) + (self._position(beats) % self.piece_bytes % self.chunk_bytes > 0)

    def crosses(self, beats: int) -> bool:
        """The last chunk that ends in the first beats has begun before the last one of these: it is written as soon as
        that comes, without a place of its own for it."""
        return self.begun(beats - 1) >= self.ended(beats)

    def _position(self, beats: int) -> int:
        return max(min(beats * self.beat_bytes - self.address % self.beat_bytes, self.size), 0)


def runs(config: Config, fields: Load) -> Iterator[Run]:
    """The runs of a LOAD."""
    memory, beat_bytes, chunk_bytes = find_memory(fields.memory), config.axi.data_bytes, config.axi.data_bytes
    if memory is not LocalMemory.FEATURE:
        chunk_bytes = min(chunk_bytes, memory.write_bytes(config.array.lanes))
    size = fields.row_pieces * fields.piece_bytes
    for row in range(fields.rows):
        for fold in range(fields.folds):
            address = fields.external + row * fields.external_row + fold * fields.external_fold
            yield Run(address, size, beat_bytes, fields.piece_bytes, chunk_bytes)


# LOAD and FILL against the clock: what they write.


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
            if isinstance(command.fields, Fill):
                end = yield from self._fill(command.fields, begin)
            else:
                assert isinstance(command.fields, Load), "what the unit executes"
                end = yield from self._load(command.fields, begin)
            command.begin, command.end = begin, max(end + OVERHEADS.write_finish, self.completed.last + 1)
            self.completed.add(command.end)

    def _load(self, fields: Load, begin: int) -> Generator[Wait, None, int]:
        prepared = begin + OVERHEADS.load - 2 + fields.row_pieces.bit_length()
        finds = max(prepared, self.found + OVERHEADS.next_pieces)
        self.now = max(self.now, finds)
        is_feature, end = fields.memory == LocalMemory.FEATURE, 0
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
            self._find(finds, fields.row_pieces, run.ended(come), end)
            finds = self.found + 1
            # A beat that has no place of its own goes before the next run's first one comes.
            self.now += run.crosses(come)
        return end

    def _fill(self, fields: Fill, begin: int) -> Generator[Wait, None, int]:
        rows = fields.rows
        cycles = fill_cycles(self.config, rows, fields.piece_bytes)
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
        if isinstance(fields, Load):
            self.walked += fields.row_pieces.bit_length()
            self.after = self.runs - LOAD_RUNS_AHEAD
            self.runs += fields.rows * fields.folds

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
            if isinstance(fields, Fill):
                chunks += fill_cycles(self.config, fields.rows, fields.piece_bytes)
                continue
            assert isinstance(fields, Load), "what the unit executes"
            after = len(self.split.times) - LOAD_RUNS_AHEAD
            before = self.split.times[after] if after >= 0 else 0
            now = max(now, max(begin + OVERHEADS.load - 7 + fields.row_pieces.bit_length(), before + 2) + 3)
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
