"""LOAD and FILL against the clock."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from ....golden import timing
from ....golden.config import Config
from ....golden.isa import LocalMemory, Opcode
from ....golden.memories import MEMORIES
from ....golden.timing import OVERHEADS
from ..plan import Command
from .agenda import Agenda, Process, Signal, Wait
from .bus import ReadBus, held
from .port import Port, free_cycles

#: The first beat of a burst, and how many there are.
Burst = tuple[int, int]


@dataclass
class LoadClock:
    """The unit of LOAD and FILL: it asks for the bursts of later commands while those of earlier ones are written.

    Attributes
    ----------
    writes : Port
        Of the feature memory: LOAD and FILL write in the cycles in which no result is written.
    completed : list of int
        When each command of the DMA queue completes.
    done : Signal
        Of ``completed``.
    accepts : int
        When the unit takes the next command.
    runs : int
        Runs of the LOADs that the unit has taken.
    split : list of int
        When each run begins to be split into bursts, as far as that is known.
    """

    agenda: Agenda
    config: Config
    bus: ReadBus
    writes: Port
    completed: list[int]
    done: Signal
    accepts: int = 0
    runs: int = 0
    split: list[int] = field(default_factory=list)
    #: When each burst is asked for, and when it ends.
    asked: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    #: When the next chunk may be written; when the last piece of a LOAD or FILL has been found, as the time at which it
    #: could be written at once.
    write: int = 0
    found: int = 0
    taken: Signal = field(default_factory=Signal)
    asks: Signal = field(default_factory=Signal)
    arrives: Signal = field(default_factory=Signal)
    to_ask: deque[tuple[Command, int]] = field(default_factory=deque)
    to_write: deque[tuple[Command, int]] = field(default_factory=deque)
    bursts: deque[Burst] = field(default_factory=deque)
    #: Beats of the bursts that have been asked for, and when those of each that are written have left their queue.
    beats: deque[int] = field(default_factory=deque)
    left: deque[int] = field(default_factory=deque)
    leaves: Signal = field(default_factory=Signal)
    #: Chunks that are written, and when the last one was, behind each stretch of them.
    written: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    def start(self) -> None:
        """Wait for commands."""
        self.agenda.start(self._ask(), 3)
        self.agenda.start(self._write(), 4)

    def accept(self, command: Command, begin: int) -> Generator[Wait, None, None]:
        """Take a command, and go on when the unit can take the next one."""
        fields = command.fields
        self.to_ask.append((command, begin))
        self.agenda.fire(self.asks)
        self.accepts = begin + OVERHEADS.load - 6
        if command.opcode is Opcode.LOAD:
            behind = self.runs - timing.LOAD_RUNS_AHEAD
            self.runs += fields["rows"] * fields["folds"]
            self.accepts += fields["row_pieces"].bit_length()
            if behind >= 0:
                while len(self.split) <= behind:
                    yield self.taken
                self.accepts = max(self.accepts, self.split[behind] + 3)

    def _ask(self) -> Process:
        """Ask for the bursts of all runs."""
        while True:
            while not self.to_ask:
                yield self.asks
            command, begin = self.to_ask.popleft()
            self.to_write.append((command, begin))
            self.agenda.fire(self.arrives)
            if command.opcode is Opcode.LOAD:
                fields = command.fields
                offered = begin + OVERHEADS.load - 7 + fields["row_pieces"].bit_length()
                behind = len(self.split) - timing.LOAD_RUNS_AHEAD
                if behind >= 0:
                    offered = max(offered, self.split[behind] + 2)
                ready = offered + 3
                for address in _addresses(fields):
                    ready = yield from self._ask_run(fields, address, ready)

    def _ask_run(self, fields: dict[str, int], address: int, ready: int) -> Generator[Wait, None, int]:
        """Ask for the bursts of a run from when it is ``ready`` on; gives when the next run is."""
        self.split.append(ready)
        self.agenda.fire(self.taken)
        for beats in timing.burst_beats(self.config, address, fields["row_pieces"] * fields["piece_bytes"]):
            # Two are found ahead.
            ready = max(ready, held(self.asked, 2)) + 1
            asked = max(ready + 1, held(self.ends, self.config.axi.outstanding) + OVERHEADS.reload - 2)
            asked = max(asked, (yield from self._room()))
            taken, first = yield from self.bus.take(asked + 1, beats)
            self.asked.append(max(asked, taken - 2))
            self.ends.append(first + beats)
            self.beats.append(beats)
            self.bursts.append((first, beats))
            self.agenda.fire(self.arrives)
        return ready + 1

    def _room(self) -> Generator[Wait, None, int]:
        """When the beats that have been asked for leave room for two bursts more, which is asked of their queue."""
        most, since = timing.load_beats(self.config) - 2 * self.config.axi.BURST_BEATS, 0
        while sum(self.beats) > most:
            while not self.left:
                yield self.leaves
            since = self.left.popleft()
            self.beats.popleft()
        return since

    def _write(self) -> Process:
        """Write what comes, command by command."""
        while True:
            while not self.to_write:
                yield self.arrives
            command, begin = self.to_write.popleft()
            if command.opcode is Opcode.LOAD:
                yield from self._write_runs(command.fields, begin)
            else:
                yield from self._fill(command.fields, begin)
            earlier = self.completed[-1] if self.completed else 0
            command.begin, command.end = begin, max(self.write + OVERHEADS.write_finish, earlier + 1)
            self.completed.append(command.end)
            self.agenda.fire(self.done)

    def _write_runs(self, fields: dict[str, int], begin: int) -> Generator[Wait, None, None]:
        memory, pieces, piece_bytes = LocalMemory(fields["memory"]), fields["row_pieces"], fields["piece_bytes"]
        is_feature = memory is LocalMemory.FEATURE
        if is_feature:
            chunk_bytes = self.config.axi.data_bytes
            cycles = timing.chunk_cycles(self.config, pieces, piece_bytes)
        else:
            chunk_bytes = min(self.config.axi.data_bytes, MEMORIES[memory].write_bytes(self.config.array.lanes))
            cycles = timing.unit_cycles(self.config, chunk_bytes, piece_bytes)
        prepared = begin + OVERHEADS.load - 2 + pieces.bit_length()
        self.write = max(self.write, prepared, self.found + OVERHEADS.next_pieces)
        for address in _addresses(fields):
            beats = timing.burst_beats(self.config, address, pieces * piece_bytes)
            start, come, written = None, 0, 0
            for count in beats:
                while not self.bursts:
                    yield self.arrives
                first, _ = self.bursts.popleft()
                come += count
                chunks = -(-cycles * come // sum(beats)) - written
                written += chunks
                now = max(self.write, first + OVERHEADS.load_write)
                start = now if start is None else start
                ahead = timing.chunks_ahead(chunks, count)
                if chunks > ahead:
                    self.write = (yield from self._free(now, chunks - ahead)) if is_feature else now + chunks - ahead
                    self._count(chunks - ahead)
                    now, chunks, ahead = self.write, ahead, 0
                    waits = now
                else:
                    waits = self._written(ahead - chunks)
                # Before its last beat leaves, all chunks but those ahead are written.
                self.left.append(max(first + count + OVERHEADS.leave, waits + OVERHEADS.leave_late))
                self.agenda.fire(self.leaves)
                self.write = (yield from self._free(now, chunks)) if is_feature else now + chunks
                self.write = max(self.write, first + count + OVERHEADS.load_write)
                self._count(chunks)
            self._find(start, pieces, cycles, self.write)
            self.write += timing.spill_cycles(self.config, chunk_bytes, address, pieces, piece_bytes)

    def _fill(self, fields: dict[str, int], begin: int) -> Generator[Wait, None, None]:
        rows = fields["rows"]
        cycles = timing.fill_cycles(self.config, rows, fields["piece_bytes"])
        start = max(self.write, begin + OVERHEADS.fill_write, self.found + OVERHEADS.next_pieces)
        self.write = yield from self._free(start, cycles)
        self._count(cycles)
        self._find(start, rows, cycles, self.write)

    def _free(self, begin: int, count: int) -> Generator[Wait, None, int]:
        end = yield from free_cycles(self.agenda, self.writes, begin + OVERHEADS.write_lead, count)
        return end - OVERHEADS.write_lead

    def _count(self, chunks: int) -> None:
        """So many chunks more have been written up to now."""
        self.written.append((self.written[-1][0] + chunks, self.write))

    def _written(self, behind: int) -> int:
        """When all chunks but the last ``behind`` of those so far were written."""
        total = self.written[-1][0] - behind
        count, end = self.written[bisect.bisect_left(self.written, (total,))] if total > 0 else (total, 0)
        return end - (count - total)

    def _find(self, begin: int, pieces: int, cycles: int, written: int) -> None:
        """Find a piece a cycle from ``begin`` on, where there is room for it: a few are found ahead."""
        ahead = min(timing.PIECES_AHEAD, pieces - 1) * cycles // pieces
        self.found = max(begin + pieces - 1, written - cycles // pieces - ahead)


def _addresses(fields: dict[str, int]) -> Iterator[int]:
    """Where the runs of a LOAD begin."""
    for row in range(fields["rows"]):
        for fold in range(fields["folds"]):
            yield fields["external"] + row * fields.get("external_row", 0) + fold * fields.get("external_fold", 0)
