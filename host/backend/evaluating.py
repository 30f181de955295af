"""Evaluating many samples: here as long as that takes no time, then on all processor cores, in order."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator

from ..graph import Graph, Int8
from ..graph.evaluate import outputs_of
from .workers import Sample, Workers

#: As long as a process takes to start: who waits for that in vain has waited twice as long as without.
PATIENCE_SECONDS = 0.5
#: What is evaluated together takes about so long, and is at most so many samples: handing them over takes less.
PORTION_SECONDS, PORTION_SAMPLES = 0.1, 64


def evaluate_all(graph: Graph, samples: Iterable[Sample]) -> Iterator[list[Int8]]:
    """The graph's outputs for each sample, in order, by :func:`.evaluate.outputs_of`.

    Parameters
    ----------
    graph : Graph
    samples : iterable of lists of int8[height, width, channels]
        Codes of the graph's inputs. They are taken as they are needed, some of them ahead.

    Yields
    ------
    list of int8[height, width, channels]
        Codes of the graph's outputs. Who does not take them all closes the iterator: then no process is left.

    Raises
    ------
    ChildProcessError
        If a process ends by itself.
    """
    left, spent, size = iter(samples), 0.0, 1
    while portion := list(itertools.islice(left, size)):
        began = time.thread_time()
        outputs = outputs_of(graph, portion)
        took = time.thread_time() - began
        yield from outputs
        # Together, samples take less time each.
        size, spent = min(2 * size, _portion(took / len(portion))), spent + took
        if spent > PATIENCE_SECONDS:
            yield from _in_processes(graph, left, size)


def processor_cores() -> int:
    """Those that this process may use, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _portion(seconds_each: float) -> int:
    """How many samples that take so long each make a portion: a power of two, of which copies take the least time."""
    most = max(1, min(PORTION_SAMPLES, int(PORTION_SECONDS / seconds_each)))
    return 1 << most.bit_length() - 1


def _in_processes(graph: Graph, samples: Iterator[Sample], size: int) -> Iterator[list[Int8]]:
    """In portions of ``size``, as long as there are several samples and processor cores."""
    cores = processor_cores()
    first = list(itertools.islice(samples, 2))
    samples, pending = itertools.chain(first, samples), deque()
    if cores == 1 or len(first) < 2:
        while portion := list(itertools.islice(samples, size)):
            yield from outputs_of(graph, portion)
        return
    with contextlib.closing(Workers(graph, cores)) as workers:
        while portion := list(itertools.islice(samples, size)):
            pending.append(workers.submit(portion))
            # One that is evaluated and one that waits, for each.
            if len(pending) == 2 * cores:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
