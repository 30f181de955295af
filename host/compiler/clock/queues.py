"""The two queues of a core against the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....golden.config import Config
from ....golden.isa import Opcode
from ....golden.timing.latencies import command_cycles
from ....golden.timing.overheads import OVERHEADS
from ....golden.units import Queue
from ..data.command import Command
from .agenda import Agenda, Events, Process
from .barriers import Barriers
from .bus import Reads
from .compute import ComputeClock
from .fetch import Fetch
from .load import LoadClock
from .store import Send, StoreClock


@dataclass(frozen=True)
class Surroundings:
    """What is around a core.

    Attributes
    ----------
    agenda : Agenda
    bus : Reads
    send : Send or None
        Where cores share the pins of the write channels.
    barriers : Barriers
    """

    agenda: Agenda
    bus: Reads
    send: Send | None
    barriers: Barriers


class Queues:
    """Both queues of a core, and their units. Times are cycles from the start of the run.

    Parameters
    ----------
    config : Config
    number : int
        Of the core.
    commands : sequence of Command
        Of both queues, in an order in which they could run one by one.
    around : Surroundings
    last : Queue
        The queue whose commands the run before this one fetched last.
    """

    def __init__(self, config: Config, number: int, commands: Sequence[Command], around: Surroundings, *, last: Queue):
        self.config, self.number = config, number
        self.commands: dict[Queue, list[Command]] = {queue: [] for queue in Queue}
        for command in commands:
            self.commands[command.queue].append(command)
        counts = {queue: len(own) + 1 for queue, own in self.commands.items()}
        self.agenda, self.barriers = around.agenda, around.barriers
        self.fetch = Fetch(self.agenda, around.bus, config, counts, last=last)
        self.done = {queue: Events(self.agenda) for queue in Queue}
        self.compute = ComputeClock(config, self.done[Queue.COMPUTE])
        self.load = LoadClock(self.agenda, config, around.bus, self.compute.writes, self.done[Queue.DMA])
        self.store = StoreClock(self.agenda, config, self.compute.reads, self.done[Queue.DMA], around.send)
        self.ends: list[int] = []

    def start(self) -> None:
        """Begin the run."""
        self.fetch.start()
        self.load.start()
        self.store.start()
        self.agenda.start(self._run_compute(), 2)
        self.agenda.start(self._run_dma(), 2)

    @property
    def end(self) -> int:
        """When the last command has completed."""
        assert len(self.ends) == len(Queue), f"core {self.number} waits for ever"
        return max(self.ends)

    def _run_compute(self) -> Process:
        unit, before = self.compute, OVERHEADS.start
        for index, command in enumerate(self.commands[Queue.COMPUTE]):
            arrival = yield from self.fetch.arrival(Queue.COMPUTE, index, before if index else 0)
            allowed = 0
            if command.waits_for is not None:
                allowed = (yield from self.done[Queue.DMA].of(command.waits_for)) + OVERHEADS.token
            before = max(before + command_cycles(self.config), unit.accepts, allowed, arrival)
            if not self.agenda.is_next(before):
                yield before
            unit.run(command, before)
        yield from self._end(Queue.COMPUTE, before)

    def _run_dma(self) -> Process:
        before, kind = OVERHEADS.start, None
        for index, command in enumerate(self.commands[Queue.DMA]):
            arrival = yield from self.fetch.arrival(Queue.DMA, index, before if index else 0)
            allowed, last = 0, kind
            kind = Opcode.LOAD if command.opcode is Opcode.FILL else command.opcode
            if command.waits_for is not None:
                allowed = (yield from self.done[Queue.COMPUTE].of(command.waits_for)) + OVERHEADS.token
            if index and (command.after or kind is not last or kind is Opcode.BARRIER):
                # LOAD and FILL never work beside STORE, and nothing beside a BARRIER.
                allowed = max(allowed, (yield from self.done[Queue.DMA].of(index - 1)) + OVERHEADS.turn)
            unit = {Opcode.LOAD: self.load, Opcode.STORE: self.store}.get(kind)
            if unit is not None:
                allowed = max(allowed, (yield from unit.accepts()))
            before = max(before + command_cycles(self.config), allowed, arrival)
            if not self.agenda.is_next(before):
                yield before
            if unit is not None:
                unit.accept(command, before)
                continue
            command.begin = before
            command.end = yield from self.barriers.meet(self.number, command.fields["group"], before)
            self.done[Queue.DMA].add(command.end)
        yield from self._end(Queue.DMA, before)

    def _end(self, queue: Queue, before: int) -> Process:
        """END, and what it waits for."""
        count = len(self.commands[queue])
        arrival = yield from self.fetch.arrival(queue, count, before if count else 0)
        completed = yield from self.done[queue].of(count - 1)
        self.ends.append(max(arrival - 2, completed))
