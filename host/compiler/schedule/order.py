"""Order: when the DMA queue brings and takes what the jobs need, and an order of all commands in which they could run
one by one."""

from __future__ import annotations

import heapq

from ..data.plan import Plan
from .dma_queue import DmaQueue
from .tasks import Task, tasks_of

#: Tasks by their deadline, and those with one deadline by their number.
_Heap = list[tuple[int, int, Task]]


def order_commands(plan: Plan) -> Plan:
    """Put LOADs, FILLs and STOREs among the COMPUTE commands.

    What is needed first stands first. What has time stands as early as the DMA would otherwise have nothing to do; but
    a STORE that the next job leaves no time to read only where it must, because what stands after it waits as well. For
    a STORE for which other cores wait at a barrier, the next job waits.
    """
    tasks = tasks_of(plan)
    for task in tasks:
        task.release = max((task.release, *(earlier.release for earlier in task.after)))
        if task.is_barrier:
            # Others wait for it, for what it brings more than for what it takes.
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
    queue, loads, stores = DmaQueue(plan, urgent), [], []
    for job in range(-1, len(plan.jobs)):
        if job >= 0:
            queue.compute(job)
        for entry in released.get(job, ()):
            heapq.heappush(stores if entry[-1].is_store else loads, entry)
        while heap := _next(loads, stores, queue, job + 1):
            queue.append(heapq.heappop(heap)[-1])
    return plan


def _next(loads: _Heap, stores: _Heap, queue: DmaQueue, job: int) -> _Heap | None:
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
