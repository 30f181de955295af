"""STORE against the clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field

from ....golden import timing
from ....golden.config import Config
from ....golden.timing import OVERHEADS
from ..plan import Command
from .agenda import Agenda, Process, Signal, Wait
from .bus import held
from .port import Port, free_cycles


@dataclass
class StoreClock:
    """The unit of STORE: it reads in the cycles in which no step does.

    Attributes
    ----------
    reads : Port
        Of the feature memory.
    completed : list of int
        When each command of the DMA queue completes.
    done : Signal
        Of ``completed``.
    accepts : int
        When the unit takes the next command.
    """

    agenda: Agenda
    config: Config
    reads: Port
    completed: list[int]
    done: Signal
    accepts: int = 0
    #: Runs of the STOREs that the unit has taken, and when each has been read, as far as that is known.
    rows: int = 0
    runs: list[int] = field(default_factory=list)
    #: When the memory has answered each burst, and when the next beat may be read.
    answers: list[int] = field(default_factory=list)
    read: int = 0
    taken: Signal = field(default_factory=Signal)
    comes: Signal = field(default_factory=Signal)
    waiting: deque[tuple[Command, int]] = field(default_factory=deque)

    def start(self) -> None:
        """Wait for commands."""
        self.agenda.start(self._run(), 4)

    def accept(self, command: Command, begin: int) -> Generator[Wait, None, None]:
        """Take a command, and go on when the unit can take the next one: this one is walked, as all runs before its own
        have room."""
        self.waiting.append((command, begin))
        self.agenda.fire(self.comes)
        behind = self.rows - timing.RUNS_AHEAD
        self.rows += command.fields["rows"]
        if behind >= 0:
            while len(self.runs) <= behind:
                yield self.taken
            self.accepts = self.runs[behind] + OVERHEADS.store_room

    def _run(self) -> Process:
        while True:
            while not self.waiting:
                yield self.comes
            command, begin = self.waiting.popleft()
            fields = command.fields
            self.read = max(begin + OVERHEADS.store, self.read)
            for row in range(fields["rows"]):
                address = fields["external"] + row * fields["external_row"]
                for beats in timing.burst_beats(self.config, address, fields["row_bytes"]):
                    yield from self._burst(beats)
                self.runs.append(self.read)
                self.agenda.fire(self.taken)
            earlier = self.completed[-1] if self.completed else 0
            command.begin, command.end = begin, max(self.answers[-1] + OVERHEADS.store_finish, earlier + 1)
            self.completed.append(command.end)
            self.agenda.fire(self.done)

    def _burst(self, beats: int) -> Generator[Wait, None, None]:
        begin = max(self.read, held(self.answers, self.config.axi.outstanding) + OVERHEADS.restore)
        end = yield from free_cycles(self.agenda, self.reads, begin - OVERHEADS.read_lead, beats)
        self.read = end + OVERHEADS.read_lead
        self.answers.append(self.read + OVERHEADS.store_beat + OVERHEADS.write_latency)
