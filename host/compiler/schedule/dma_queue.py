"""The DMA queue while commands are put in order: what stands in it, and about when the DMA is done with that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ....golden.isa import Opcode
from ....golden.timing.latencies import chunk_cycles, fill_cycles, run_cycles, stored_run_cycles
from ..data.command import Command
from ..data.plan import Plan
from ..data.units import unit_count
from .tasks import Task


class DmaQueue:
    """Appends to the plan's commands, and estimates the time at which DMA and array are with them."""

    def __init__(self, plan: Plan, urgent: Sequence[int]):
        self.plan = plan
        #: When the DMA is done with what has been appended; when each job begins, at least, and ends.
        self.moved = 0
        self.begin = [0] * (len(plan.jobs) + 1)
        self.ends: list[int] = []
        #: The code that each byte of the feature memory holds because it was filled, -1 where it may be anything.
        self.filled = np.full(unit_count(plan.config), -1, np.int16)
        #: The jobs that end with what other cores wait for, in order.
        self.urgent = urgent

    def compute(self, job: int) -> None:
        """Append the COMPUTE commands of the next job."""
        self.ends.append(max(self.begin[job], self._end_of(job - 1)) + self._cycles(job))
        for command in self.plan.computes[job]:
            self.filled[command.writes] = -1
            self.plan.commands.append(command)

    def append(self, task: Task) -> None:
        """Append a task, and before it what it depends on."""
        if task.is_done:
            return
        task.is_done = True
        for earlier in task.after:
            self.append(earlier)
        self.moved = max(self.moved, self._end_of(task.release))
        for command in self._needed(task.commands):
            self.moved += self._moving(command)
            self.plan.commands.append(command)
        if task.is_barrier:
            self._let_store(task)
        if task.deadline < len(self.begin):
            self.begin[task.deadline] = max(self.begin[task.deadline], self.moved)

    def _let_store(self, barrier: Task) -> None:
        """Let the job after a barrier wait for the STOREs before it, if it left no time to read for them."""
        stores, job = [task for task in barrier.after if task.is_store], barrier.release + 1
        if job < len(self.plan.jobs) and any(not self.is_quick_during(job, store) for store in stores):
            self.plan.computes[job][0].follows = stores[-1].commands[-1]

    def is_idle_during(self, job: int, task: Task | None) -> bool:
        """Whether the DMA is done before a job, the next one, ends; after the last job it always is.

        Before a job that ends with what other cores wait for, a task is begun only if it is done by then.
        """
        if job >= len(self.plan.jobs):
            return True
        end = max(self.begin[job], self._end_of(job - 1)) + self._cycles(job)
        urgent = next((number for number in self.urgent if number >= job), None)
        if task is None or urgent is None:
            return self.moved < end
        begin = max(self.moved, self._end_of(task.release))
        stored = end + sum(map(self._cycles, range(job + 1, urgent + 1)))
        return self.moved < end and begin + sum(map(self._moving, task.commands)) < stored

    def _moving(self, command: Command) -> int:
        """Cycles of a command, on a bus of which the other cores have their share."""
        sharing = 1 if command.opcode is Opcode.FILL else self.plan.config.cluster.sharing
        return sharing * dma_cycles(self.plan, command)

    def is_quick_during(self, job: int, task: Task) -> bool:
        """Whether a job, the next one, leaves enough cycles in which the DMA can read for a task's STOREs."""
        if job >= len(self.plan.jobs):
            return True
        reads = sum(dma_cycles(self.plan, command) for command in task.commands)
        sizes = self.plan.jobs[job]
        steps = self.plan.operations[sizes.index].steps(len(sizes.rows), len(sizes.columns), sizes.tiles)
        return reads <= self._cycles(job) - steps

    def _needed(self, commands: list[Command]) -> Iterator[Command]:
        """All commands but FILLs of bytes that still hold what they would be filled with."""
        for command in commands:
            writes = command.writes
            if command.opcode is Opcode.FILL:
                value = command.fields["value"]
                if (self.filled[writes] == value).all():
                    continue
                self.filled[writes] = value
            else:
                self.filled[writes] = -1
            yield command

    def _end_of(self, job: int) -> int:
        return self.ends[job] if job >= 0 else 0

    def _cycles(self, job: int) -> int:
        sizes = self.plan.jobs[job]
        return self.plan.operations[sizes.index].cycles(len(sizes.rows), len(sizes.columns), sizes.tiles)


def dma_cycles(plan: Plan, command: Command) -> int:
    """Cycles of a command if the array leaves the memories to it."""
    fields, config = command.fields, plan.config
    if command.opcode is Opcode.BARRIER:
        return 0
    if command.opcode is Opcode.FILL:
        return fill_cycles(config, fields["rows"], fields["piece_bytes"])
    if command.opcode is Opcode.STORE:
        return fields["rows"] * stored_run_cycles(config, fields["row_bytes"])
    run = run_cycles(config, fields["row_pieces"] * fields["piece_bytes"])
    chunks = chunk_cycles(config, fields["row_pieces"], fields["piece_bytes"])
    return fields["rows"] * fields["folds"] * max(run, chunks)
