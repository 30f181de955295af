"""Tasks: what the DMA queue has to do for the jobs, and for other cores, and when it may be done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ....golden.isa import Opcode
from ..data.arrival import Arrival
from ..data.command import Command
from ..data.exchange import Region
from ..data.plan import Plan
from ..data.residence import Incoming
from ..data.units import unit_bytes, unit_numbers
from .transfers import fill_border, load, store


@dataclass(eq=False)
class Task:
    """Commands of the DMA queue that stand together.

    Attributes
    ----------
    commands : list of Command
    release : int
        The job after which they may stand, because it is the last to use the memory that they write, or to write what
        they store; -1 where they may stand before all jobs.
    deadline : int
        The job before which they must stand.
    after : list of Task
        What must stand before them.
    """

    commands: list[Command]
    release: int
    deadline: int
    after: list[Task] = field(default_factory=list)
    is_done: bool = False

    @property
    def is_store(self) -> bool:
        """Whether it reads the feature memory."""
        return any(command.opcode is Opcode.STORE for command in self.commands)

    @property
    def is_barrier(self) -> bool:
        """Whether other cores wait for it."""
        return any(command.opcode is Opcode.BARRIER for command in self.commands)


def tasks_of(plan: Plan) -> list[Task]:
    """What the DMA has to do, in an order in which nothing comes before what it depends on."""
    tasks: list[Task] = []
    # Those of each row of each tensor of the network, with their columns: many samples of a batch are as many rows.
    stores: dict[tuple[str, int], list[tuple[range, Task]]] = {}
    store_of: dict[int, list[Task]] = {}
    stores_of: dict[str | None, list[Task]] = {}
    barriers = _barriers(plan)
    owner = np.full(plan.config.memory.feature_bytes, -1)
    end = len(plan.jobs)
    for number, residence in enumerate(plan.residences):
        storage, tensor, excerpt = residence.storage, plan.outside(residence.tensor), plan.excerpt_of(residence.tensor)
        place = slice(storage.address, storage.address + storage.size_bytes)
        before = [earlier for earlier in _distinct(owner[place]) if earlier >= 0]
        owner[place] = number
        free = max((plan.residences[earlier].last for earlier in before), default=-1)
        drained = [task for earlier in before for task in store_of.get(earlier, ())]
        for task in drained:
            task.deadline = min(task.deadline, max(residence.first, 0))

        fills = fill_border(storage, tensor)
        if fills:
            tasks.append(Task(_of_layer(plan, fills, residence.border), free, residence.border, drained))
        first_row = excerpt.region.rows.start
        rows_of_tensor = [(excerpt.tensor.name, first_row + row) for row in storage.rows]
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
                after = [*after, barriers[excerpt.tensor.name]]
            arriving.append(Task(_of_layer(plan, commands, incoming.job), free, incoming.job, after))
        tasks += [task for task in arriving if task.commands]
        for outgoing in residence.departures:
            commands = store(outgoing.storage, tensor, plan.external[residence.tensor])
            task = Task(_of_layer(plan, commands, outgoing.job), outgoing.job, end)
            store_of.setdefault(number, []).append(task)
            for row in rows_of_tensor:
                stores.setdefault(row, []).append((columns, task))
            if excerpt.tensor.name in barriers:
                barriers[excerpt.tensor.name].after.append(task)
            stores_of.setdefault(residence.tensor, []).append(task)
            tasks.append(task)
    tasks += barriers.values()
    for arrival in plan.arrivals:
        commands = _of_layer(plan, [_arrive(plan, arrival)], arrival.deadline)
        stored = stores_of.get(arrival.tensor, [])
        tasks.append(Task(commands, arrival.release, arrival.deadline, stored))
    return _sorted(tasks)


def _barriers(plan: Plan) -> dict[str, Task]:
    """A barrier for each tensor that cores exchange, each after the one before, by the tensor's name."""
    barriers: dict[str, Task] = {}
    group = (1 << plan.config.cores) - 1
    for name, exchange in plan.exchanges.items():
        after = [*barriers.values()][-1:]
        # The others are not there sooner.
        own = (
            number for number, job in enumerate(plan.jobs) if plan.graph.layers[job.index].output in exchange.earlier
        )
        barriers[name] = Task([Command(Opcode.BARRIER, {"group": group})], max(own, default=-1), len(plan.jobs), after)
    return barriers


def _crosses(plan: Plan, name: str, incoming: Incoming) -> bool:
    """Whether what is loaded has been stored by another core."""
    exchange, storage = plan.exchange_of(name), incoming.storage
    if exchange is None or not exchange.arrives:
        return False
    local = Region(incoming.rows, range(storage.channel, storage.channel + storage.channels))
    return exchange.own is None or not exchange.own.within(plan.excerpt_of(name).region).holds(local)


def _sorted(tasks: list[Task]) -> list[Task]:
    """The same tasks, each after those that must stand before it, and else in their order."""
    found: dict[Task, None] = {}

    def add(task: Task) -> None:
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
