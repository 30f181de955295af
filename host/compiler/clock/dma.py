"""The DMA queue against the clock."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from dataclasses import dataclass, field

from ....golden import timing
from ....golden.config import Config
from ....golden.isa import LocalMemory, Opcode
from ....golden.memories import MEMORIES
from ....golden.timing import OVERHEADS
from ..plan import Command
from .bus import ReadBus, held
from .compute import Busy, ComputeClock

#: Commands that begin while the bursts of an earlier one are asked for, at most.
_BEGUN_AHEAD = 4


@dataclass
class DmaClock:
    """The DMA queue and its units. Times are cycles from the start of the run.

    A STORE reads in the cycles in which no step does, LOAD and FILL write in those in which no result is written. How
    long they take is known only when the COMPUTE commands beside them are, so that commands are worked out when
    somebody asks for their completion. What is shared with somebody is shared evenly: times are fractions there.
    """

    config: Config
    compute: ComputeClock
    bus: ReadBus
    #: When the next command may be given to its unit, the next burst requested, the next chunk be written, the next
    #: beat of a STORE be read.
    ready: int
    request: int = 0
    write: float = 0
    read: float = 0
    #: When the last piece of a LOAD or FILL has been found, as the time at which it could be written at once.
    found: float = 0
    completed: list[int] = field(default_factory=list)
    waiting: deque[Command] = field(default_factory=deque)
    #: When those that wait began, as far as they have: the one at hand, and some behind it.
    begun: deque[int] = field(default_factory=deque)
    #: When the memory has answered each burst of a STORE.
    answers: list[float] = field(default_factory=list)
    #: When each run of a STORE has been read, and when their unit has room for the next STORE.
    runs: list[float] = field(default_factory=list)
    room: int = 0
    last_opcode: Opcode = Opcode.LOAD

    def completion(self, index: int) -> int:
        """When the command of this index completes; every COMPUTE command that is issued before must be known."""
        while len(self.completed) <= index:
            self._run(self.waiting[0])
            self.waiting.popleft()
            self.begun.popleft()
        return self.completed[index]

    def _run(self, command: Command) -> None:
        """Complete the next command."""
        if not self.begun:
            self._begin(command)
        begin = self.begun[0]
        earlier = self.completed[-1] if self.completed else 0
        run = {Opcode.LOAD: self._load, Opcode.FILL: self._fill, Opcode.STORE: self._store}[command.opcode]
        self.completed.append(max(math.ceil(run(command.fields, begin)), earlier + 1))
        command.begin, command.end = begin, self.completed[-1]

    def _begin(self, command: Command, before: float = math.inf) -> bool:
        """Begin the next command that has not begun; returns whether it does so ``before`` a time."""
        allowed = 0
        if command.waits_for is not None:
            allowed = self.compute.completed[command.waits_for] + OVERHEADS.token
        if self.completed and self._is_behind(command):
            allowed = max(allowed, self.completed[-1] + 1)
        if command.opcode is Opcode.STORE:
            allowed = max(allowed, self.room)
        begin = max(self.ready, allowed, self.bus.arrival("dma", self._index))
        if begin >= before:
            return False
        self.begun.append(begin)
        self.ready, self.last_opcode = begin + timing.command_cycles(self.config), command.opcode
        if command.opcode is Opcode.LOAD:
            self.ready = max(self.ready, _prepared(command.fields, begin))
        self.bus.taken("dma", begin)
        return True

    @property
    def _index(self) -> int:
        """Of the next command that has not begun."""
        return len(self.completed) + len(self.begun)

    def _is_behind(self, command: Command) -> bool:
        """Whether a command begins only behind the completion of those before it."""
        return command.after or (command.opcode is Opcode.STORE) != (self.last_opcode is Opcode.STORE)

    def _begin_others(self, now: float) -> None:
        """Begin the commands behind the one at hand that do so before its next request: they leave room for commands,
        which are asked for before it."""
        for command in itertools.islice(self.waiting, len(self.begun), 1 + _BEGUN_AHEAD):
            waits_for = command.waits_for
            if (
                self._is_behind(command)
                or (waits_for is not None and waits_for >= len(self.compute.completed))
                or not self.bus.has_arrived("dma", self._index)
                or not self._begin(command, now)
            ):
                break

    def _load(self, fields: dict[str, int], begin: int) -> float:
        prepared = _prepared(fields, begin)
        self.request = max(self.request, prepared)
        self.write = max(self.write, prepared, self.found + OVERHEADS.next_pieces)
        for row in range(fields["rows"]):
            for fold in range(fields["folds"]):
                address = (
                    fields["external"] + row * fields.get("external_row", 0) + fold * fields.get("external_fold", 0)
                )
                self._load_run(fields, address)
        return self.write + OVERHEADS.write_finish

    def _load_run(self, fields: dict[str, int], address: int) -> None:
        """Request the bursts of a run, and write its chunks."""
        memory, pieces, piece_bytes = LocalMemory(fields["memory"]), fields["row_pieces"], fields["piece_bytes"]
        first_beat = None
        for beats in timing.burst_beats(self.config, address, pieces * piece_bytes):
            self._begin_others(max(self.request, self.bus.pins))
            first = self.bus.load(self.request, beats)
            # The next one is asked for when the memory has taken this one.
            self.request = max(self.request, self.bus.taken_at) + 1
            first_beat = first if first_beat is None else first_beat
        begin = max(self.write, first_beat + OVERHEADS.load_write)
        if memory is LocalMemory.FEATURE:
            chunk_bytes = self.config.axi.data_bytes
            cycles = timing.chunk_cycles(self.config, pieces, piece_bytes)
            written = _after_free_cycles(self.compute.writes, begin, cycles)
        else:
            chunk_bytes = min(self.config.axi.data_bytes, MEMORIES[memory].write_bytes(self.config.array.lanes))
            cycles = timing.unit_cycles(self.config, chunk_bytes, piece_bytes)
            written = begin + cycles
        self._find(begin, pieces, cycles, written)
        spilt = timing.spill_cycles(self.config, chunk_bytes, address, pieces, piece_bytes)
        self.write = max(written, self.bus.free + OVERHEADS.load_write) + spilt

    def _fill(self, fields: dict[str, int], begin: int) -> float:
        rows = fields["rows"]
        cycles = timing.fill_cycles(self.config, rows, fields["piece_bytes"])
        begin_write = max(self.write, begin + OVERHEADS.fill_write, self.found + OVERHEADS.next_pieces)
        self.write = _after_free_cycles(self.compute.writes, begin_write, cycles)
        self._find(begin_write, rows, cycles, self.write)
        return self.write + OVERHEADS.write_finish

    def _find(self, begin: float, pieces: int, cycles: int, written: float) -> None:
        """Find a piece a cycle from ``begin`` on, where there is room for it: a few are found ahead."""
        ahead = min(timing.PIECES_AHEAD, pieces - 1) * cycles // pieces
        self.found = max(begin + pieces - 1, written - cycles // pieces - ahead)

    def _store(self, fields: dict[str, int], begin: int) -> float:
        self.read = max(begin + OVERHEADS.store, self.read)
        for row in range(fields["rows"]):
            address = fields["external"] + row * fields["external_row"]
            for beats in timing.burst_beats(self.config, address, fields["row_bytes"]):
                begin_read = max(self.read, held(self.answers, self.config.axi.outstanding) + OVERHEADS.restore)
                self.read = _after_free_cycles(self.compute.reads, begin_read, beats)
                self.answers.append(self.read + OVERHEADS.store_beat + OVERHEADS.write_latency)
            self.runs.append(self.read)
        # The next one begins when this one is walked, as all runs before its own have room.
        self.room = math.ceil(held(self.runs, fields["rows"] + timing.RUNS_AHEAD)) + OVERHEADS.store_room
        return self.answers[-1] + OVERHEADS.store_finish


def _prepared(fields: dict[str, int], begin: int) -> int:
    """When a LOAD may ask for its first burst."""
    return begin + OVERHEADS.load + fields["row_pieces"].bit_length()


def _after_free_cycles(times: list[Busy], begin: float, count: float) -> float:
    """The time behind ``count`` cycles that nothing takes, the first of them not before ``begin``."""
    now = begin
    for first, last, taken in times[bisect.bisect_left(times, begin, key=lambda busy: busy[1]) :]:
        gap = max(first - now, 0)
        if gap >= count:
            break
        now, count = now + gap, count - gap
        # The cycles that are left free lie all over that time.
        share = 1 - taken / (last + 1 - first)
        free = (last + 1 - now) * share
        if free >= count:
            return now + count / share
        now, count = last + 1, count - free
    return now + count
