"""The DMA queue against the clock."""
from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass, field

from ...golden import timing
from ...golden.config import Config
from ...golden.dma import local_unit_bytes
from ...golden.isa import LocalMemory, Opcode
from ...golden.timing import OVERHEADS
from .clock_bus import ReadBus
from .clock_compute import ComputeClock, Span
from .plan import Command


@dataclass
class DmaClock:
    """The DMA queue and its units. Times are cycles from the start of the run.

    A STORE reads in the cycles in which no step does, LOAD and FILL write in those in which no result is written. How
    long they take is known only when the COMPUTE commands beside them are, so that commands are worked out when
    somebody asks for their completion.
    """

    config: Config
    compute: ComputeClock
    bus: ReadBus
    #: When the next command may be given to its unit, the next burst requested, the next chunk be written, the next
    #: beat of a STORE be read.
    ready: int
    request: int = 0
    write: int = 0
    read: int = 0
    completed: list[int] = field(default_factory=list)
    waiting: deque[Command] = field(default_factory=deque)
    last_opcode: Opcode = Opcode.LOAD

    def completion(self, index: int) -> int:
        """When the command of this index completes; every COMPUTE command that is issued before must be known."""
        while len(self.completed) <= index:
            command = self.waiting.popleft()
            allowed = 0 if command.waits_for is None else self.compute.completed[command.waits_for] + OVERHEADS.token
            self._run(command, allowed)
        return self.completed[index]

    def _run(self, command: Command, allowed: int) -> None:
        """Take the next command, which may begin when it is ``allowed`` to."""
        is_store = command.opcode is Opcode.STORE
        if self.completed and (command.after or is_store != (self.last_opcode is Opcode.STORE)):
            allowed = max(allowed, self.completed[-1] + 1)
        begin = max(self.ready, allowed, self.bus.arrival("dma", len(self.completed)))
        self.ready, self.last_opcode = begin + timing.command_cycles(self.config), command.opcode
        self.bus.taken("dma", begin)
        earlier = self.completed[-1] if self.completed else 0
        run = {Opcode.LOAD: self._load, Opcode.FILL: self._fill, Opcode.STORE: self._store}[command.opcode]
        self.completed.append(max(run(command.fields, begin), earlier + 1))
        command.begin, command.end = begin, self.completed[-1]

    def _load(self, fields: dict[str, int], begin: int) -> int:
        prepared = begin + OVERHEADS.load + fields["row_pieces"].bit_length()
        self.ready = max(self.ready, prepared)
        self.request = max(self.request, prepared)
        self.write = max(self.write, prepared)
        run_bytes = fields["row_pieces"] * fields["piece_bytes"]
        for row in range(fields["rows"]):
            for fold in range(fields["folds"]):
                address = (
                    fields["external"] + row * fields.get("external_row", 0) + fold * fields.get("external_fold", 0)
                )
                first_beat = None
                for beats in timing.burst_beats(self.config, address, run_bytes):
                    first = self.bus.load(self.request, beats)
                    # The next one is asked for when the memory has taken this one.
                    self.request = max(self.request, self.bus.taken_at) + 1
                    first_beat = first if first_beat is None else first_beat
                begin_write = max(self.write, first_beat + OVERHEADS.load_write)
                self.write = max(self._written(fields, begin_write), self.bus.free + OVERHEADS.load_write)
        return self.write + OVERHEADS.write_finish

    def _written(self, fields: dict[str, int], begin: int) -> int:
        """When the bytes of a run are in their memory."""
        memory = LocalMemory(fields["memory"])
        if memory is LocalMemory.FEATURE:
            cycles = timing.chunk_cycles(self.config, fields["row_pieces"], fields["piece_bytes"])
            return _after_free_cycles(self.compute.writes, begin, cycles)
        unit = local_unit_bytes(memory, lanes=self.config.array.lanes)
        return begin + timing.unit_cycles(self.config, unit, fields["piece_bytes"])

    def _fill(self, fields: dict[str, int], begin: int) -> int:
        cycles = timing.fill_cycles(self.config, fields["rows"], fields["piece_bytes"])
        begin_write = max(self.write, begin + OVERHEADS.fill_write)
        self.write = _after_free_cycles(self.compute.writes, begin_write, cycles)
        return self.write + OVERHEADS.write_finish

    def _store(self, fields: dict[str, int], begin: int) -> int:
        bursts = [
            beats
            for row in range(fields["rows"])
            for beats in timing.burst_beats(
                self.config, fields["external"] + row * fields["external_row"], fields["row_bytes"]
            )
        ]
        first = max(begin, self.read)
        self.read = max(_after_free_cycles(self.compute.issues, first, sum(bursts)),
                        first + timing.write_cycles(self.config, bursts))
        return self.read + OVERHEADS.store + OVERHEADS.write_latency


def _after_free_cycles(spans: list[Span], begin: int, count: int) -> int:
    """The cycle behind ``count`` cycles that no span takes, the first of them not before ``begin``."""
    now = begin
    for first, last, taken in spans[bisect.bisect_left(spans, begin, key=lambda span: span[1]):]:
        gap = max(first - now, 0)
        if gap >= count:
            break
        now, count = now + gap, count - gap
        # The cycles that are left free lie all over the span.
        free = (last + 1 - now) * (last + 1 - first - taken) // (last + 1 - first)
        if free >= count:
            return now + -(-count * (last + 1 - now) // free)
        now, count = last + 1, count - free
    return now + count
