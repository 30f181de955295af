"""The DMA queue of a plan: the commands that move tensors, parts of them and borders, and their order."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ....golden.elements import BINARY_BITS
from ....golden.isa import LOAD, STORE, Barrier, Fill, Load, Opcode, Store
from ....golden.memories import LocalMemory
from ....golden.timing.latencies import chunk_cycles, fill_cycles, run_cycles, stored_run_cycles
from ...graph import Tensor
from ..layout.borders import source_rows
from ..network import Network, Region
from ..operation import Command
from ..plan import Addressed, Computing, Loaded, Ordered
from ..storage import Addresses, Arrival, Incoming, Storage, pieces, unit_bytes, unit_count, unit_numbers

#: Most folds of a LOAD, and most rows of a STORE.
_MOST_FOLDS, _MOST_ROWS = LOAD.field("folds").limits[1], STORE.field("rows").limits[1]


def fill_border(storage: Storage, tensor: Tensor) -> list[Command]:
    """Return FILLs of everything around a tensor, and of the folds in its padding."""
    pitch, row_bytes = storage.row_pitch, storage.row_bytes
    end = storage.address + storage.size_bytes
    last_end = storage.first + (storage.height - 1) * pitch + row_bytes
    # Without a border at the sides the bytes between rows are never read.
    between = pitch - row_bytes if storage.left or storage.right else 0
    if storage.height == 0:
        fills = [(storage.address, storage.size_bytes, 1, 0)]
    else:
        fills = [
            (storage.address, storage.first - storage.address, 1, 0),
            (storage.first + row_bytes, between, storage.height - 1, pitch),
            (last_end, end - last_end, 1, 0),
        ]
    if storage.fold:
        fold_bytes = tensor.pixel_bytes
        for row, first, last in _runs(source_rows(storage, tensor.shape[0]) < 0):
            at, size = storage.first + row * pitch + first * fold_bytes, (last - first) * fold_bytes
            whole = size == storage.stored_bytes
            fills.append((at, row_bytes, 1, 0) if whole else (at, size, storage.width, storage.stored_bytes))
    fills = [fill for fill in fills if fill[1] and fill[2]]
    commands = [_fill(storage.value, *fill) for fill in fills]
    if storage.bits == BINARY_BITS and storage.value and storage.channels % 8:
        # Bits that are no channels are always 0.
        ones = (1 << storage.channels % 8) - 1
        commands += [_fill(ones, *last) for fill in fills for last in _last_bytes(storage.pixel_pitch, *fill)]
    return commands


def _fill(value: int, at: int, size: int, count: int, pitch: int) -> Command:
    """Return a FILL of ``count`` pieces of ``size`` bytes."""
    fields = Fill(local=at, piece_bytes=size, rows=count, local_row=pitch, value=value & 0xFF)
    return Command(fields, writes=pieces(at, size, count, pitch))


def _last_bytes(pixel: int, at: int, size: int, count: int, pitch: int) -> list[tuple[int, int, int, int]]:
    """Return the last byte of every pixel in such pieces, as pieces of one byte."""
    last = at + pixel - 1
    if count == 1:
        return [(last, 1, size // pixel, pixel)]
    return [(last + inner, 1, count, pitch) for inner in range(0, size, pixel)]


def load(storage: Storage, tensor: Tensor, external: int, rows: range) -> list[Command]:
    """Return LOADs of some stored rows of a tensor, which is dense at ``external``."""
    if not rows or not storage.width:
        return []
    if storage.fold:
        return _load_folds(storage, tensor, external, rows)
    if storage.channels < tensor.shape[2]:
        return _load_channels(storage, tensor, external, rows)
    row_bytes = storage.row_bytes
    local = storage.first + (rows.start - storage.row) * storage.row_pitch
    start = external + rows.start * tensor.row_bytes + storage.column * tensor.pixel_bytes
    if storage.width < tensor.shape[1]:
        shape = Load(
            row_pieces=1,
            piece_bytes=row_bytes,
            rows=len(rows),
            external_row=tensor.row_bytes,
            local_row=storage.row_pitch,
        )
    else:
        # The rows are one run in external memory; adjacent rows are one piece.
        count, size = (len(rows), row_bytes) if storage.gap else (1, len(rows) * row_bytes)
        shape = Load(row_pieces=count, piece_bytes=size, rows=1, local_piece=storage.row_pitch)
    fields = dataclasses.replace(shape, external=start, local=local, memory=LocalMemory.FEATURE, folds=1)
    return [Command(fields, writes=storage.addresses(rows))]


def _load_channels(storage: Storage, tensor: Tensor, external: int, rows: range) -> list[Command]:
    """Return LOADs of some channels, with a run for every pixel, and as many columns as a command may have."""
    commands = []
    for first in range(0, storage.width, _MOST_FOLDS):
        columns = storage.columns[first : first + _MOST_FOLDS]
        fields = Load(
            external=external
            + rows.start * tensor.row_bytes
            + columns.start * tensor.pixel_bytes
            + storage.channel_offset(storage.channel),
            local=storage.first + (rows.start - storage.row) * storage.row_pitch + first * storage.pixel_pitch,
            memory=LocalMemory.FEATURE,
            row_pieces=1,
            piece_bytes=storage.stored_bytes,
            rows=len(rows),
            folds=len(columns),
            external_row=tensor.row_bytes,
            external_fold=tensor.pixel_bytes,
            local_row=storage.row_pitch,
            local_fold=storage.pixel_pitch,
        )
        commands.append(Command(fields, writes=storage.addresses(rows, columns)))
    return commands


def _load_folds(storage: Storage, tensor: Tensor, external: int, stored: range) -> list[Command]:
    """Return LOADs of some stored rows of a folded input: one for each run of rows with the same folds in the
    source."""
    fold, fold_bytes = storage.fold, tensor.pixel_bytes
    assert fold is not None, "rows that are not folded come otherwise"
    skipped = stored.start - storage.row
    rows = source_rows(storage, tensor.shape[0])[skipped : skipped + len(stored)]
    commands = []
    for _, group in itertools.groupby(range(len(rows)), key=lambda index: tuple(rows[index] >= 0)):
        members = list(group)
        present = np.flatnonzero(rows[members[0]] >= 0)
        if not len(present):
            continue
        count, folds = len(members), len(present)
        local = storage.first + (skipped + members[0]) * storage.row_pitch + int(present[0]) * fold_bytes
        source = int(rows[members[0], present[0]]) * tensor.row_bytes + storage.column * tensor.pixel_bytes
        fields = Load(
            external=external + source,
            local=local,
            memory=LocalMemory.FEATURE,
            row_pieces=storage.width,
            piece_bytes=fold_bytes,
            rows=count,
            folds=folds,
            external_row=fold.step * tensor.row_bytes,
            external_fold=fold.dilation * tensor.row_bytes,
            local_row=storage.row_pitch,
            local_fold=fold_bytes,
            local_piece=storage.stored_bytes,
        )
        row_writes = pieces(local, folds * fold_bytes, storage.width, storage.stored_bytes)
        writes = (np.arange(count)[:, None] * storage.row_pitch + row_writes).reshape(-1)
        commands.append(Command(fields, writes=writes))
    return commands


def store(storage: Storage, tensor: Tensor, external: int) -> list[Command]:
    """Return STOREs of the stored part of a tensor to its dense copy at ``external``."""
    start = external + storage.row * tensor.row_bytes + storage.column * tensor.pixel_bytes
    start += storage.channel_offset(storage.channel)
    is_dense = storage.width == tensor.shape[1] and not storage.gap
    if storage.channels < tensor.shape[2]:
        return _store_channels(storage, tensor, start, is_dense=is_dense)
    row_bytes = storage.row_bytes
    if is_dense:
        return [_store(storage.addresses(), start, storage.height * row_bytes, 1, (0, 0))]
    return [_store(storage.addresses(), start, row_bytes, storage.height, (tensor.row_bytes, storage.row_pitch))]


def _store_channels(storage: Storage, tensor: Tensor, start: int, *, is_dense: bool) -> list[Command]:
    """Return STOREs of some channels, with a run for every pixel; the runs of one command have equal distances."""
    size, reads = storage.stored_bytes, storage.addresses().reshape(storage.height, storage.width, -1)
    pixel, row = (tensor.pixel_bytes, storage.pixel_pitch), (tensor.row_bytes, storage.row_pitch)
    if is_dense and storage.height * storage.width <= _MOST_ROWS:
        return [_store(reads.reshape(-1), start, size, storage.height * storage.width, pixel)]
    # A command has a row or a column, whichever gives fewer commands.
    along, across = pixel, row
    if storage.width < storage.height:
        along, across, reads = row, pixel, reads.swapaxes(0, 1)
    return [
        _store(line.reshape(-1), start + number * across[0], size, len(line), along)
        for number, line in enumerate(reads)
    ]


def _store(reads: Addresses, external: int, size: int, count: int, pitches: tuple[int, int]) -> Command:
    """Return a STORE of ``count`` runs of ``size`` bytes at ``reads``, with their pitches outside and in the memory."""
    fields = Store(
        external=external,
        local=int(reads[0]),
        row_bytes=size,
        rows=count,
        external_row=pitches[0],
        local_row=pitches[1],
    )
    return Command(fields, reads=reads)


def _runs(mask: np.ndarray) -> list[tuple[int, int, int]]:
    """Return (row, first, end) of each run of true elements along the rows of bool[rows, columns]."""
    runs = []
    for row, line in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], line.astype(np.int8), [0]))))
        runs += [(row, int(first), int(end)) for first, end in edges.reshape(-1, 2)]
    return runs


# Tasks of the DMA queue for the jobs, and for other cores, with the range of jobs in which each may be done.


@dataclass(eq=False)
class Task:
    """Consecutive commands of the DMA queue.

    Attributes
    ----------
    commands : list of Command
    release : int
        The job after which they may come: the last one that uses the memory that they write, or that writes the bytes
        that they store; -1 where they may come before all jobs.
    deadline : int
        The job before which they must come.
    after : list of Task
        Tasks that must come before them.
    """

    commands: list[Command]
    release: int
    deadline: int
    after: list[Task] = field(default_factory=list)
    is_done: bool = False

    @property
    def is_store(self) -> bool:
        """Whether the task reads the feature memory."""
        return any(command.opcode is Opcode.STORE for command in self.commands)

    @property
    def is_barrier(self) -> bool:
        """Whether the task is a barrier, at which cores wait for each other."""
        return any(command.opcode is Opcode.BARRIER for command in self.commands)


def tasks_of(plan: Loaded) -> list[Task]:
    """Return the tasks of the DMA, in an order in which no task comes before one that it depends on."""
    tasks: list[Task] = []
    # Stores of each row of each tensor of the network, with their columns, as the samples of a batch are rows.
    stores: dict[tuple[str, int], list[tuple[range, Task]]] = {}
    store_of: dict[int, list[Task]] = {}
    stores_of: dict[str | None, list[Task]] = {}
    barriers = _barriers(plan)
    owner = np.full(plan.config.memory.feature_bytes, -1)
    end = len(plan.jobs)
    for number, live_range in enumerate(plan.live_ranges):
        storage, tensor, excerpt = (
            live_range.storage,
            plan.outside(live_range.tensor),
            plan.excerpt_of(live_range.tensor),
        )
        place = slice(storage.address, storage.address + storage.size_bytes)
        before = [earlier for earlier in _distinct(owner[place]) if earlier >= 0]
        owner[place] = number
        free = max((plan.live_ranges[earlier].last for earlier in before), default=-1)
        drained = [task for earlier in before for task in store_of.get(earlier, ())]
        for task in drained:
            task.deadline = min(task.deadline, max(live_range.first, 0))

        fills = fill_border(storage, tensor)
        if fills:
            tasks.append(Task(_of_layer(plan, fills, live_range.border), free, live_range.border, drained))
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
        for incoming in live_range.arrivals:
            commands = load(incoming.storage, tensor, plan.external[live_range.tensor], incoming.rows)
            after = drained + sources
            if _crosses(plan, live_range.tensor, incoming):
                after = [*after, barriers[excerpt.tensor.name]]
            arriving.append(Task(_of_layer(plan, commands, incoming.job), free, incoming.job, after))
        tasks += [task for task in arriving if task.commands]
        for outgoing in live_range.departures:
            commands = store(outgoing.storage, tensor, plan.external[live_range.tensor])
            task = Task(_of_layer(plan, commands, outgoing.job), outgoing.job, end)
            store_of.setdefault(number, []).append(task)
            for row in rows_of_tensor:
                stores.setdefault(row, []).append((columns, task))
            if excerpt.tensor.name in barriers:
                barriers[excerpt.tensor.name].after.append(task)
            stores_of.setdefault(live_range.tensor, []).append(task)
            tasks.append(task)
    tasks += barriers.values()
    for arrival in plan.arrivals:
        commands = _of_layer(plan, [_arrive(plan, arrival)], arrival.deadline)
        stored = stores_of.get(arrival.tensor, [])
        tasks.append(Task(commands, arrival.release, arrival.deadline, stored))
    return _sorted(tasks)


def _barriers(plan: Addressed) -> dict[str, Task]:
    """Return a barrier for each tensor that cores exchange, by the tensor's name; the barriers are in order."""
    barriers: dict[str, Task] = {}
    group = (1 << plan.config.cores) - 1
    for name, exchange in plan.exchanges.items():
        after = [*barriers.values()][-1:]
        # The other cores do not reach the barrier sooner.
        own = (
            number for number, job in enumerate(plan.jobs) if plan.graph.layers[job.index].output in exchange.earlier
        )
        barriers[name] = Task([Command(Barrier(group=group))], max(own, default=-1), len(plan.jobs), after)
    return barriers


def _crosses(plan: Network, name: str, incoming: Incoming) -> bool:
    """Return whether a load reads bytes that another core has stored."""
    exchange, storage = plan.exchange_of(name), incoming.storage
    if exchange is None or not exchange.arrives:
        return False
    local = Region(incoming.rows, range(storage.channel, storage.channel + storage.channels))
    return exchange.own is None or not exchange.own.within(plan.excerpt_of(name).region).holds(local)


def _sorted(tasks: list[Task]) -> list[Task]:
    """Return the tasks, each after those that must come before it, and else in their order."""
    found: dict[Task, None] = {}

    def add(task: Task) -> None:
        if task not in found:
            for earlier in task.after:
                add(earlier)
            found[task] = None

    for task in tasks:
        add(task)
    return [*found]


def _of_layer(plan: Addressed, commands: list[Command], job: int) -> list[Command]:
    """Return the commands, assigned to the layer of a job; to none where there is no such job."""
    layer = plan.jobs[job].index if 0 <= job < len(plan.jobs) else None
    return [Command.of(command, layer=layer) for command in commands]


def _arrive(plan: Network, arrival: Arrival) -> Command:
    """Return the LOAD of streamed constants."""
    unit = unit_bytes(plan.config, arrival.memory)
    fields = Load(
        external=arrival.external,
        local=arrival.address * unit,
        memory=arrival.memory,
        row_pieces=1,
        piece_bytes=arrival.size * unit,
        rows=1,
        folds=1,
    )
    return Command(fields, writes=unit_numbers(plan.config, arrival.memory, arrival.address, arrival.size))


def _distinct(owners: np.ndarray) -> Iterable[int]:
    """Return the values of an array with few runs of equal values."""
    return {int(owner) for owner in owners[np.flatnonzero(np.diff(owners, prepend=-2))]}


# The DMA queue while commands are put in order, with an estimate of time.


class DmaQueue:
    """The commands in order, with estimated times of DMA and array."""

    def __init__(self, plan: Computing, urgent: Sequence[int]):
        self.plan = plan
        self.commands: list[Command] = []
        #: The COMPUTE commands of each job so far.
        self.computes: list[list[Command]] = []
        #: The STORE that the first command of a job follows.
        self.follows: dict[int, Command] = {}
        #: When the DMA is done with what has been appended; when each job begins, at least, and ends.
        self.moved = 0
        self.begin = [0] * (len(plan.jobs) + 1)
        self.ends: list[int] = []
        #: The code that each byte of the feature memory was filled with, -1 for other contents.
        self.filled = np.full(unit_count(plan.config), -1, np.int16)
        #: The jobs with results that other cores wait for, in order.
        self.urgent = urgent

    def compute(self, job: int) -> None:
        """Append the COMPUTE commands of the next job."""
        self.ends.append(max(self.begin[job], self._end_of(job - 1)) + self._cycles(job))
        computes = self.plan.computes[job]
        if job in self.follows:
            computes = [Command.of(computes[0], follows=self.follows[job]), *computes[1:]]
        for command in computes:
            self.filled[command.writes] = -1
        self.commands += computes
        self.computes.append(computes)

    def append(self, task: Task) -> None:
        """Append a task, and the tasks that it depends on before it."""
        if task.is_done:
            return
        task.is_done = True
        for earlier in task.after:
            self.append(earlier)
        self.moved = max(self.moved, self._end_of(task.release))
        for command in self._needed(task.commands):
            self.moved += self._moving(command)
            self.commands.append(command)
        if task.is_barrier:
            self._let_store(task)
        if task.deadline < len(self.begin):
            self.begin[task.deadline] = max(self.begin[task.deadline], self.moved)

    def _let_store(self, barrier: Task) -> None:
        """Let the job after a barrier wait for the STOREs before it, if it would leave them no cycles to read."""
        stores, job = [task for task in barrier.after if task.is_store], barrier.release + 1
        if job < len(self.plan.jobs) and any(not self.is_quick_during(job, store) for store in stores):
            self.follows[job] = stores[-1].commands[-1]

    def is_idle_during(self, job: int, task: Task | None) -> bool:
        """Return whether the DMA is idle before the next job, ``job``, ends; after the last job it always is.

        Before a job whose results other cores wait for, ``task`` is begun only if it is done by the end of that job.
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
        """Return the cycles of a command, with equal shares of the bus for all cores on it."""
        sharing = 1 if command.opcode is Opcode.FILL else self.plan.config.cluster.sharing
        return sharing * dma_cycles(self.plan, command)

    def is_quick_during(self, job: int, task: Task) -> bool:
        """Return whether the next job, ``job``, leaves the DMA enough cycles to read for a task's STOREs."""
        if job >= len(self.plan.jobs):
            return True
        reads = sum(dma_cycles(self.plan, command) for command in task.commands)
        sizes = self.plan.jobs[job]
        steps = self.plan.operations[sizes.index].steps(len(sizes.rows), len(sizes.columns), sizes.tiles)
        return reads <= self._cycles(job) - steps

    def _needed(self, commands: list[Command]) -> Iterator[Command]:
        """Yield all commands but FILLs of bytes that still hold the code."""
        for command in commands:
            writes = command.writes
            if isinstance(command.fields, Fill):
                value = command.fields.value
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


def dma_cycles(plan: Network, command: Command) -> int:
    """Return the cycles of a command if the array leaves the memories to it."""
    config = plan.config
    match command.fields:
        case Fill() as fill:
            return fill_cycles(config, fill.rows, fill.piece_bytes)
        case Store() as store:
            return store.rows * stored_run_cycles(config, store.row_bytes)
        case Load() as load:
            run = run_cycles(config, load.row_pieces * load.piece_bytes)
            return load.rows * load.folds * max(run, chunk_cycles(config, load.row_pieces, load.piece_bytes))
        case _:
            return 0


# The order of all commands is one in which they could run one by one.

#: Tasks by deadline, and those with one deadline by number.
_Heap = list[tuple[int, int, Task]]


def order_commands(plan: Computing) -> Ordered:
    """Put LOADs, FILLs and STOREs among the COMPUTE commands.

    Tasks are in the order of their deadlines. A task with time left comes as soon as the DMA would be idle; but a STORE
    that the next job leaves no cycles to read comes only where it must, because later commands would wait for it. For a
    STORE that other cores wait for at a barrier, the next job waits.
    """
    tasks = tasks_of(plan)
    for task in tasks:
        task.release = max((task.release, *(earlier.release for earlier in task.after)))
        if task.is_barrier:
            # Other tasks wait for this one, for a LOAD more than for a STORE.
            gives = any(earlier.is_store for earlier in task.after)
            task.deadline = min(task.deadline, task.release + (1 if gives else 2))
    for task in reversed(tasks):
        for earlier in task.after:
            earlier.deadline = min(earlier.deadline, task.deadline)
    released: dict[int, list[tuple[int, int, Task]]] = {}
    for number, task in enumerate(tasks):
        assert task.release < task.deadline, "a task whose time ends before it begins"
        released.setdefault(task.release, []).append((task.deadline, number, task))

    urgent = sorted({task.release for task in tasks if task.is_barrier and any(one.is_store for one in task.after)})
    queue = DmaQueue(plan, urgent)
    loads: _Heap = []
    stores: _Heap = []
    for job in range(-1, len(plan.jobs)):
        if job >= 0:
            queue.compute(job)
        for entry in released.get(job, ()):
            heapq.heappush(stores if entry[-1].is_store else loads, entry)
        while heap := _next(loads, stores, queue, job + 1):
            queue.append(heapq.heappop(heap)[-1])
    return Ordered.of(plan, commands=tuple(queue.commands), computes=tuple(queue.computes))


def _next(loads: _Heap, stores: _Heap, queue: DmaQueue, job: int) -> _Heap | None:
    """Return the queue, of the two, with the next task that must come before ``job``; None if there is none."""
    # A LOAD after a STORE is held up by fewer results than one in parallel with the job.
    is_quick = bool(stores) and queue.is_quick_during(job, stores[0][-1])
    load_is_due, store_is_due = (bool(heap) and heap[0][0] <= job for heap in (loads, stores))
    if load_is_due or store_is_due:
        return stores if store_is_due and (is_quick or not load_is_due) else loads
    if not queue.is_idle_during(job, loads[0][-1] if loads else None):
        return None
    if is_quick and (not loads or stores[0][0] <= loads[0][0]):
        return stores
    return loads or None
