"""Timing of the DMA queue: LOAD, FILL and STORE, and their accesses to memories on the chip."""

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
from .buses import Agenda, Events, MemoryPort, Process, Reads, Signal, Wait, free_cycles

# Timing of STORE.

#: Sends a burst: from the time at which all its beats are collected, and their number, to the times of the first beat
#: and of the answer.
Send = Callable[[int, int], Generator[Wait, None, tuple[int, int]]]


class StoreClock:
    """The unit of STORE, which reads in cycles in which no step does.

    Rows, and then their bursts, pass through stages, each of which waits for room in the next one.

    Parameters
    ----------
    agenda : Agenda
    config : Config
    reads : MemoryPort
        Read port of the feature memory.
    completed : Events
        Commands of the DMA queue.
    send : Send or None
        Sends bursts where cores share the pins.
    """

    def __init__(self, agenda: Agenda, config: Config, reads: MemoryPort, completed: Events, send: Send | None = None):
        self.agenda, self.config, self.reads, self.completed, self.send = agenda, config, reads, completed, send
        #: Number of rows of all commands so far, and the last row before those of the latest command.
        self.rows, self.after = 0, -1
        self.waiting: deque[tuple[Command, int]] = deque()
        self.comes = Signal()
        #: Times at which each row is walked, and at which each burst is found, begun, read to its last beat, begun at
        #: the pins behind an arbiter, and answered.
        self.walked, self.found, self.begun, self.read, self.sent, self.answered = (Events(agenda) for _ in range(6))
        #: Beats of each burst that is found; beats of all before it; the last burst of each command.
        self.bursts, self.firsts = array("q"), array("q")
        self.ends: deque[int] = deque()
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
        """Wait until the time is known at which the next command can be accepted, and return it: all rows before those
        of the latest command have been walked."""
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
                # One row may wait to be split.
                walked = max(walked, split + 1)
                self.walked.add(walked)
                split = max(walked, self.found.last) + 1
                now, last = split, row == fields.rows - 1
                sizes = burst_beats(self.config, fields.external + row * fields.external_row, fields.row_bytes)
                for number, count in enumerate(sizes):
                    now = max(now, (yield from self.begun.of(len(self.bursts) - 2))) + 1
                    if last and number == len(sizes) - 1:
                        self.ends.append(len(self.bursts))
                    self.bursts.append(count)
                    self.firsts.append(beats)
                    beats += count
                    self.found.add(now)
                walked += 1

    def _begin(self) -> Process:
        """Begin bursts; two may wait for the reader, and ``outstanding`` of the configuration for their answer."""
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
        """Return the time at which the next beat may be read, and the number of beats, at most ``most``, that may
        follow at one a cycle."""
        if self.send is None:
            return 0, most
        # An arbiter's queue is full until the beat with this number has left it.
        before = self.beats - BEATS_OUTGOING - COLLECTED_BURSTS * self.config.axi.BURST_BEATS
        if before < 0:
            return 0, min(most, -before)
        number = bisect.bisect_right(self.firsts, before) - 1
        # The beats of a burst leave one a cycle.
        sent = yield from self.sent.of(number)
        return sent + OVERHEADS.shared_room, min(most, self.firsts[number] + self.bursts[number] - before)

    def _answer(self) -> Process:
        """Send the bursts that have been read, and complete commands whose last burst is answered."""
        for number in itertools.count():
            last = (yield from self.read.of(number)) + OVERHEADS.store_beat
            beats = self.bursts[number]
            if self.send is None:
                answered = last + OVERHEADS.write_latency
            else:
                begin, answered = yield from self.send(last, beats)
                self.sent.add(begin)
            self.answered.add(answered)
            if self.ends and self.ends[0] == number:
                self.ends.popleft()
                self.completed.add(max(answered + OVERHEADS.store_finish, self.completed.last + 1))


# A LOAD is written in chunks, which beats of the bus bring.


@dataclass(frozen=True, slots=True)
class LoadRun:
    """A run of a LOAD: pieces without a gap between them on the bus. Each piece is written in whole chunks and a rest.

    Attributes
    ----------
    address, size : int
        Address and size of the run in external memory, in bytes.
    beat_bytes, piece_bytes, chunk_bytes : int
    """

    address: int
    size: int
    beat_bytes: int
    piece_bytes: int
    chunk_bytes: int

    def ended(self, beats: int) -> int:
        """Return the number of chunks whose last byte lies within the first ``beats`` beats."""
        pieces, rest = divmod(self._position(beats), self.piece_bytes)
        return pieces * -(-self.piece_bytes // self.chunk_bytes) + rest // self.chunk_bytes

    def begun(self, beats: int) -> int:
        """Return the number of chunks whose first byte lies within the first ``beats`` beats."""
        return self.ended(beats) + (self._position(beats) % self.piece_bytes % self.chunk_bytes > 0)

    def crosses(self, beats: int) -> bool:
        """Return whether the last chunk that ends within the first beats has begun before the last of these beats. It
        is written as soon as that beat comes, which then needs no place in the queue."""
        return self.begun(beats - 1) >= self.ended(beats)

    def _position(self, beats: int) -> int:
        return max(min(beats * self.beat_bytes - self.address % self.beat_bytes, self.size), 0)


def runs(config: Config, fields: Load) -> Iterator[LoadRun]:
    """Yield the runs of a LOAD."""
    memory, beat_bytes, chunk_bytes = find_memory(fields.memory), config.axi.data_bytes, config.axi.data_bytes
    if memory is not LocalMemory.FEATURE:
        chunk_bytes = min(chunk_bytes, memory.write_bytes(config.array.lanes))
    size = fields.row_pieces * fields.piece_bytes
    for row in range(fields.rows):
        for fold in range(fields.folds):
            address = fields.external + row * fields.external_row + fold * fields.external_fold
            yield LoadRun(address, size, beat_bytes, fields.piece_bytes, chunk_bytes)


# Timing of the writes of LOAD and FILL.


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive chunks that are written one each cycle, unless they are held up.

    Attributes
    ----------
    before : int
        Number of chunks before them.
    begin : int
    is_feature : bool
        Whether they go to the feature memory, where results are written first.
    """

    before: int
    begin: int
    is_feature: bool


class WriteClock:
    """The writes of LOAD and FILL, in order; to the feature memory in cycles in which no result is written.

    Parameters
    ----------
    agenda : Agenda
    config : Config
    writes : MemoryPort
        Write port of the feature memory.
    completed : Events
        Commands of the DMA queue.
    """

    def __init__(self, agenda: Agenda, config: Config, writes: MemoryPort, completed: Events):
        self.agenda, self.config, self.writes, self.completed = agenda, config, writes, completed
        self.commands: deque[tuple[Command, int]] = deque()
        self.bursts: deque[tuple[int, int]] = deque()
        self.comes = Signal()
        #: Time at which the next chunk may be written; time at which the last piece of a LOAD or FILL was found, given
        #: as the earliest time of its write.
        self.now, self.found = 0, 0
        #: Number of chunks so far, and stretches that later queries may need.
        self.chunks = 0
        self.stretches: list[Stretch] = []
        self.begins = Signal()

    def accept(self, command: Command, begin: int) -> None:
        """Take a command."""
        self.commands.append((command, begin))
        self.agenda.fire(self.comes)

    def bring(self, first: int, beats: int) -> None:
        """Add the next burst of a LOAD: time of its first beat, and number of beats."""
        self.bursts.append((first, beats))
        self.agenda.fire(self.comes)

    def written(self, chunks: int) -> Generator[Wait, None, int]:
        """Wait until the time is known at which so many chunks have been written; the number must not decrease from
        call to call."""
        if chunks <= 0:
            return 0
        while self.chunks < chunks:
            yield self.begins
        # Later calls are about later chunks.
        del self.stretches[: bisect.bisect_left(self.stretches, chunks, key=attrgetter("before")) - 1]
        stretch = self.stretches[0]
        self.writes.forget(stretch.begin + OVERHEADS.write_lead)
        return (yield from self._end(stretch, chunks - stretch.before))

    def run(self) -> Process:
        """Write the chunks of all commands."""
        while True:
            while not self.commands:
                yield self.comes
            command, begin = self.commands.popleft()
            if isinstance(command.fields, Fill):
                end = yield from self._fill(command.fields, begin)
            else:
                assert isinstance(command.fields, Load), "what the unit executes"
                end = yield from self._load(command.fields, begin)
            self.completed.add(max(end + OVERHEADS.write_finish, self.completed.last + 1))

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
                # A chunk that has begun in the burst before is complete with the next beat.
                now = max(self.now, arrives - (run.begun(before) > run.ended(before)))
                yield from self._write(now, run.ended(come) - run.ended(before), is_feature)
                self.now = max(self.now, arrives + count - run.crosses(come))
            end = self.now
            self._find(finds, fields.row_pieces, run.ended(come), end)
            finds = self.found + 1
            # A beat without a place in the queue leaves before the first beat of the next run comes.
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
        """Return the time at which the first ``chunks`` of a stretch are written."""
        if not stretch.is_feature:
            return stretch.begin + chunks
        end = yield from free_cycles(self.agenda, self.writes, stretch.begin + OVERHEADS.write_lead, chunks)
        return end - OVERHEADS.write_lead

    def _find(self, begin: int, pieces: int, cycles: int, written: int) -> None:
        """Find a piece each cycle from ``begin`` on, as far as there is room; a few are found ahead."""
        ahead = min(PIECES_AHEAD, pieces - 1) * cycles // pieces
        self.found = max(begin + pieces - 1, written - cycles // pieces - ahead)


@dataclass(frozen=True, slots=True)
class Found:
    """A burst of a run.

    Attributes
    ----------
    run : LoadRun
    begin, beats : int
        First beat within the run, and number of beats.
    beats_before, chunks_before : int
        Number of beats of all bursts before it, and of chunks of all runs and FILLs before its run.
    """

    run: LoadRun
    begin: int
    beats: int
    beats_before: int
    chunks_before: int


class LoadClock:
    """The unit of LOAD and FILL, which requests bursts of later commands while those of earlier ones are written.

    Parameters
    ----------
    agenda : Agenda
    config : Config
    bus : Reads
    writes : MemoryPort
        Write port of the feature memory.
    completed : Events
        Commands of the DMA queue.
    """

    def __init__(self, agenda: Agenda, config: Config, bus: Reads, writes: MemoryPort, completed: Events):
        self.agenda, self.config, self.bus = agenda, config, bus
        self.write = WriteClock(agenda, config, writes, completed)
        #: Earliest time at which the last command could be walked, the run that must be split before that, and the
        #: number of runs of all LOADs so far.
        self.walked, self.after, self.runs = 0, -1, 0
        self.waiting: deque[tuple[Command, int]] = deque()
        self.comes = Signal()
        #: Times at which runs begin to be split, and at which their bursts are found, requested, and begin on the bus.
        self.split, self.found, self.asked, self.begins = (Events(agenda) for _ in range(4))
        #: Bursts that later calls may need, by their numbers; the number of all bursts found.
        self.bursts: dict[int, Found] = {}
        self.count = 0
        #: The first burst with beats that may be in the queue, and the next one to arrive.
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
        """Wait until the time is known at which the next command can be accepted, and return it."""
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
                    # Two bursts are found ahead.
                    now = max(now, (yield from self.asked.of(self.count - 2))) + 1
                    self.bursts[self.count] = Found(run, come, count, beats, chunks)
                    self.count += 1
                    self.found.add(now)
                    come, beats = come + count, beats + count
                chunks += run.ended(come)
                now += 1

    def _ask(self) -> Process:
        """Request the bursts that are found."""
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
        """Hand arriving bursts on to the writer."""
        for number in itertools.count():
            first = yield from self.begins.of(number)
            self.write.bring(first, self.bursts[number].beats)
            self.brought = number + 1

    def _ended(self, number: int) -> Generator[Wait, None, int]:
        """Wait until the end of a burst on the bus is known, and return it; zero if there is no such burst."""
        return 0 if number < 0 else (yield from self.begins.of(number)) + self.bursts[number].beats

    def _room(self, beats: int) -> Generator[Wait, None, int]:
        """Return the time at which the ``beats`` requested so far leave room for two more bursts in their queue."""
        leaves = beats - (load_beats(self.config) - 2 * self.config.axi.BURST_BEATS)
        if leaves <= 0:
            return 0
        while self.bursts[self.queued].beats_before + self.bursts[self.queued].beats < leaves:
            self.queued += 1
        burst, first = self.bursts[self.queued], (yield from self.begins.of(self.queued))
        beats = leaves - burst.beats_before
        # The last of these beats leaves the queue when the beat that is BEATS_AHEAD before it is used up, by a chunk
        # for which there is a place.
        used = burst.begin + beats - BEATS_AHEAD - 1
        chunk = burst.chunks_before + burst.run.begun(used) - CHUNKS_AHEAD
        written = yield from self.write.written(chunk)
        return max(first + beats + OVERHEADS.leave, written + OVERHEADS.leave_late)
