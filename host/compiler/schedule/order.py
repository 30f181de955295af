"""Order: when the DMA queue brings and takes what the jobs need, and an order of all commands in which they could run
one by one."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ....golden.isa import Opcode
from ....golden.timing.bus import chunk_cycles, fill_cycles, run_cycles, stored_run_cycles
from ..data.arrival import Arrival
from ..data.command import Command
from ..data.exchange import Region
from ..data.plan import Plan
from ..data.residence import Incoming
from ..data.units import unit_bytes, unit_count, unit_numbers
from .transfers import fill_border, load, store

#: Tasks by their deadline, and those with one deadline by their number.
_Heap = list[tuple[int, int, "_Task"]]


@dataclass(eq=False)
class _Task:
    """Commands of the DMA queue that stand together.

    Attributes
    ----------
    commands : list of Command
    release : int
        The job after which they may stand, because it is the last to use the memory that they write, or to write what
        they store; -1 where they may stand before all jobs.
    deadline : int
        The job before which they must stand.
    after : list of _Task
        What must stand before them.
    """

    commands: list[Command]
    release: int
    deadline: int
    after: list[_Task] = field(default_factory=list)
    is_done: bool = False

    @property
    def is_store(self) -> bool:
        """Whether it reads the feature memory."""
        return any(command.opcode is Opcode.STORE for command in self.commands)

    @property
    def is_barrier(self) -> bool:
        """Whether other cores wait for it."""
        return any(command.opcode is Opcode.BARRIER for command in self.commands)


def order_commands(plan: Plan) -> Plan:
    """Put LOADs, FILLs and STOREs among the COMPUTE commands.

    What is needed first stands first. What has time stands as early as the DMA would otherwise have nothing to do; but
    a STORE that the next job leaves no time to read only where it must, because what stands after it waits as well. For
    a STORE for which other cores wait at a barrier, the next job waits.
    """
    tasks = _tasks(plan)
    for task in tasks:
        task.release = max((task.release, *(earlier.release for earlier in task.after)))
        if task.is_barrier:
            # Others wait for it.
            task.deadline = min(task.deadline, task.release + 1)
    for task in reversed(tasks):
        for earlier in task.after:
            earlier.deadline = min(earlier.deadline, task.deadline)
    released: dict[int, list[tuple[int, int, _Task]]] = {}
    for number, task in enumerate(tasks):
        assert task.release < task.deadline, "a task whose time ends before it begins"
        released.setdefault(task.release, []).append((task.deadline, number, task))

    urgent = frozenset(task.release for task in tasks if task.is_barrier and any(one.is_store for one in task.after))
    queue, loads, stores = _DmaQueue(plan, urgent), [], []
    for job in range(-1, len(plan.jobs)):
        if job >= 0:
            queue.compute(job)
        for entry in released.get(job, ()):
            heapq.heappush(stores if entry[-1].is_store else loads, entry)
        while heap := _next(loads, stores, queue, job + 1):
            queue.append(heapq.heappop(heap)[-1])
    return plan


def _next(loads: _Heap, stores: _Heap, queue: _DmaQueue, job: int) -> _Heap | None:
    """Which of the two gives the next task that stands before ``job``; None if none does."""
    # A LOAD after a STORE is held up by fewer results than one that runs beside the job.
    is_quick = bool(stores) and queue.is_quick_during(job, stores[0][-1])
    load_is_due, store_is_due = (bool(heap) and heap[0][0] <= job for heap in (loads, stores))
    if load_is_due or store_is_due:
        return stores if store_is_due and (is_quick or not load_is_due) else loads
    if not queue.is_idle_during(job, loads[0][-1] if loads else None):
        return None
    if is_quick and (not loads or stores[0][0] <= loads[0][0]):
        return stores
    return loads or None


def _tasks(plan: Plan) -> list[_Task]:
    """What the DMA has to do, in an order in which nothing comes before what it depends on."""
    tasks: list[_Task] = []
    # Those of each row of each tensor of the network, with their columns: many samples of a batch are as many rows.
    stores: dict[tuple[str, int], list[tuple[range, _Task]]] = {}
    store_of: dict[int, _Task] = {}
    barriers = _barriers(plan)
    owner = np.full(plan.config.memory.feature_bytes, -1)
    end = len(plan.jobs)
    for number, residence in enumerate(plan.residences):
        storage, tensor, share = residence.storage, plan.outside(residence.tensor), plan.share_of(residence.tensor)
        place = slice(storage.address, storage.address + storage.size_bytes)
        before = [earlier for earlier in _distinct(owner[place]) if earlier >= 0]
        owner[place] = number
        free = max((plan.residences[earlier].last for earlier in before), default=-1)
        drained = [store_of[earlier] for earlier in before if earlier in store_of]
        for task in drained:
            task.deadline = min(task.deadline, max(residence.first, 0))

        fills = fill_border(storage, tensor)
        if fills:
            tasks.append(_Task(_of_layer(plan, fills, residence.border), free, residence.border, drained))
        first_row = share.region.rows.start
        rows_of_tensor = [(share.tensor.name, first_row + row) for row in storage.rows]
        columns = storage.columns
        sources = list(
            dict.fromkeys(
                task
                for row in rows_of_tensor
                for stored, task in stores.get(row, ())
                if stored.start < columns.stop and columns.start < stored.stop
            )
        )
        arriving = []
        for incoming in residence.arrivals:
            commands = load(incoming.storage, tensor, plan.external[residence.tensor], incoming.rows)
            after = drained + sources
            if _crosses(plan, residence.tensor, incoming):
                after = [*after, barriers[share.tensor.name]]
            arriving.append(_Task(_of_layer(plan, commands, incoming.job), free, incoming.job, after))
        tasks += [task for task in arriving if task.commands]
        if residence.leaves is not None:
            commands = [
                command for part in residence.stored for command in store(part, tensor, plan.external[residence.tensor])
            ]
            leaving = _of_layer(plan, commands, residence.leaves)
            task = store_of[number] = _Task(leaving, residence.leaves, end)
            for row in rows_of_tensor:
                stores.setdefault(row, []).append((columns, task))
            if share.tensor.name in barriers:
                barriers[share.tensor.name].after.append(task)
            tasks.append(task)
    tasks += barriers.values()
    for arrival in plan.arrivals:
        commands = _of_layer(plan, [_arrive(plan, arrival)], arrival.deadline)
        tasks.append(_Task(commands, arrival.release, arrival.deadline))
    return _sorted(tasks)


def _barriers(plan: Plan) -> dict[str, _Task]:
    """A barrier for each tensor that cores exchange, each after the one before, by the tensor's name."""
    barriers: dict[str, _Task] = {}
    group = (1 << plan.config.cores) - 1
    for name in plan.exchanges:
        after = [*barriers.values()][-1:]
        barriers[name] = _Task([Command(Opcode.BARRIER, {"group": group})], -1, len(plan.jobs), after)
    return barriers


def _crosses(plan: Plan, name: str, incoming: Incoming) -> bool:
    """Whether what is loaded has been stored by another core."""
    exchange, storage = plan.exchange_of(name), incoming.storage
    if exchange is None or not exchange.arrives:
        return False
    local = Region(incoming.rows, range(storage.channel, storage.channel + storage.channels))
    return exchange.own is None or not exchange.own.within(plan.share_of(name).region).holds(local)


def _sorted(tasks: list[_Task]) -> list[_Task]:
    """The same tasks, each after those that must stand before it, and else in their order."""
    found: dict[_Task, None] = {}

    def add(task: _Task) -> None:
        if task not in found:
            for earlier in task.after:
                add(earlier)
            found[task] = None

    for task in tasks:
        add(task)
    return [*found]


def _of_layer(plan: Plan, commands: list[Command], job: int) -> list[Command]:
    """The same commands, as those of a job's layer; of none where there is no such job."""
    for command in commands:
        command.layer = plan.jobs[job].index if 0 <= job < len(plan.jobs) else None
    return commands


def _arrive(plan: Plan, arrival: Arrival) -> Command:
    """The LOAD of streamed constants."""
    unit = unit_bytes(plan.config, arrival.memory)
    fields = {
        "external": arrival.external,
        "local": arrival.address * unit,
        "memory": arrival.memory,
        "row_pieces": 1,
        "piece_bytes": arrival.size * unit,
        "rows": 1,
        "folds": 1,
    }
    return Command(Opcode.LOAD, fields, writes=unit_numbers(plan.config, arrival.memory, arrival.address, arrival.size))


def _distinct(owners: np.ndarray) -> Iterable[int]:
    """The values of an array that holds few runs of equal ones."""
    return {int(owner) for owner in owners[np.flatnonzero(np.diff(owners, prepend=-2))]}


class _DmaQueue:
    """Appends to the plan's commands, and estimates the time at which DMA and array are with them."""

    def __init__(self, plan: Plan, urgent: frozenset[int]):
        self.plan = plan
        #: When the DMA is done with what has been appended; when each job begins, at least, and ends.
        self.moved = 0
        self.begin = [0] * (len(plan.jobs) + 1)
        self.ends: list[int] = []
        #: The code that each byte of the feature memory holds because it was filled, -1 where it may be anything.
        self.filled = np.full(unit_count(plan.config), -1, np.int16)
        #: The jobs that end with what other cores wait for.
        self.urgent = urgent

    def compute(self, job: int) -> None:
        """Append the COMPUTE commands of the next job."""
        self.ends.append(max(self.begin[job], self._end_of(job - 1)) + self._cycles(job))
        for command in self.plan.computes[job]:
            self.filled[command.writes] = -1
            self.plan.commands.append(command)

    def append(self, task: _Task) -> None:
        """Append a task, and before it what it depends on."""
        if task.is_done:
            return
        task.is_done = True
        for earlier in task.after:
            self.append(earlier)
        self.moved = max(self.moved, self._end_of(task.release))
        for command in self._needed(task.commands):
            self.moved += _dma_cycles(self.plan, command)
            self.plan.commands.append(command)
        if task.is_barrier:
            self._let_store(task)
        if task.deadline < len(self.begin):
            self.begin[task.deadline] = max(self.begin[task.deadline], self.moved)

    def _let_store(self, barrier: _Task) -> None:
        """Let the job after a barrier wait for the STOREs before it, if it left no time to read for them."""
        stores, job = [task for task in barrier.after if task.is_store], barrier.release + 1
        if job < len(self.plan.jobs) and any(not self.is_quick_during(job, store) for store in stores):
            self.plan.computes[job][0].follows = stores[-1].commands[-1]

    def is_idle_during(self, job: int, task: _Task | None) -> bool:
        """Whether the DMA is done before a job, the next one, ends; after the last job it always is.

        If other cores wait for what is stored then, a task is begun only if it is done before that.
        """
        if job >= len(self.plan.jobs):
            return True
        end = max(self.begin[job], self._end_of(job - 1)) + self._cycles(job)
        if task is None or job not in self.urgent:
            return self.moved < end
        # The other cores use the bus as well.
        cycles = self.plan.config.cores * sum(_dma_cycles(self.plan, command) for command in task.commands)
        return max(self.moved, self._end_of(task.release)) + cycles < end

    def is_quick_during(self, job: int, task: _Task) -> bool:
        """Whether a job, the next one, leaves enough cycles in which the DMA can read for a task's STOREs."""
        if job >= len(self.plan.jobs):
            return True
        reads = sum(_dma_cycles(self.plan, command) for command in task.commands)
        sizes = self.plan.jobs[job]
        steps = self.plan.operations[sizes.index].steps(len(sizes.rows), len(sizes.columns), sizes.tiles)
        return reads <= self._cycles(job) - steps

    def _needed(self, commands: list[Command]) -> Iterator[Command]:
        """All commands but FILLs of bytes that still hold what they would be filled with."""
        for command in commands:
            if command.opcode is Opcode.FILL:
                value = command.fields["value"]
                if (self.filled[command.writes] == value).all():
                    continue
                self.filled[command.writes] = value
            else:
                self.filled[command.writes] = -1
            yield command

    def _end_of(self, job: int) -> int:
        return self.ends[job] if job >= 0 else 0

    def _cycles(self, job: int) -> int:
        sizes = self.plan.jobs[job]
        return self.plan.operations[sizes.index].cycles(len(sizes.rows), len(sizes.columns), sizes.tiles)


def _dma_cycles(plan: Plan, command: Command) -> int:
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
