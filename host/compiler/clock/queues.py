"""The two queues against the clock."""

from __future__ import annotations

from collections.abc import Sequence

from ....golden.config import Config
from ....golden.isa import Opcode
from ....golden.timing.bus import command_cycles
from ....golden.timing.overheads import OVERHEADS
from ....golden.units import Queue
from ..data.command import Command
from .agenda import Agenda, Events, Process
from .bus import ReadBus
from .compute import ComputeClock
from .fetch import Fetch
from .load import LoadClock
from .store import StoreClock


class Queues:
    """Both queues and their units. Times are cycles from the start of the run.

    Parameters
    ----------
    config : Config
    commands : sequence of Command
        Of both queues, in an order in which they could run one by one.
    last : Queue
        The queue whose commands the run before this one fetched last.
    """

    def __init__(self, config: Config, commands: Sequence[Command], *, last: Queue):
        self.config = config
        self.commands: dict[Queue, list[Command]] = {queue: [] for queue in Queue}
        for command in commands:
            self.commands[command.queue].append(command)
        counts = {queue: len(own) + 1 for queue, own in self.commands.items()}
        self.agenda = agenda = Agenda()
        self.bus = ReadBus(agenda, shared=max(counts.values()) > config.resident_commands)
        self.fetch = Fetch(agenda, self.bus, config, counts, last=last)
        self.done = {queue: Events(agenda) for queue in Queue}
        self.compute = ComputeClock(config, self.done[Queue.COMPUTE])
        self.load = LoadClock(agenda, config, self.bus, self.compute.writes, self.done[Queue.DMA])
        self.store = StoreClock(agenda, config, self.compute.reads, self.done[Queue.DMA])
        self.ends: list[int] = []

    def run(self) -> int:
        """Run all commands; gives when the last one completes."""
        self.fetch.start()
        self.load.start()
        self.store.start()
        self.agenda.start(self._run_compute(), 2)
        self.agenda.start(self._run_dma(), 2)
        self.agenda.run()
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
        before, was_store = OVERHEADS.start, False
        for index, command in enumerate(self.commands[Queue.DMA]):
            arrival = yield from self.fetch.arrival(Queue.DMA, index, before if index else 0)
            allowed, is_store = 0, command.opcode is Opcode.STORE
            if command.waits_for is not None:
                allowed = (yield from self.done[Queue.COMPUTE].of(command.waits_for)) + OVERHEADS.token
            if index and (command.after or is_store != was_store):
                # LOAD and FILL never work beside STORE.
                allowed = max(allowed, (yield from self.done[Queue.DMA].of(index - 1)) + OVERHEADS.turn)
            was_store = is_store
            unit = self.store if is_store else self.load
            allowed = max(allowed, (yield from unit.accepts()))
            before = max(before + command_cycles(self.config), allowed, arrival)
            if not self.agenda.is_next(before):
                yield before
            unit.accept(command, before)
        yield from self._end(Queue.DMA, before)

    def _end(self, queue: Queue, before: int) -> Process:
        """END, and what it waits for."""
        count = len(self.commands[queue])
        arrival = yield from self.fetch.arrival(queue, count, before if count else 0)
        completed = yield from self.done[queue].of(count - 1)
        self.ends.append(max(arrival - 2, completed))
