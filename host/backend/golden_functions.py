"""The golden functions: the bytes of the accelerator without one, on all processor cores."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from ..driver import ports
from ..graph import Graph, Int8
from ..graph.evaluate import outputs_of
from ..model.model import Model
from .backend import Arrays, Backend

# Processes that evaluate samples of one graph.
#
# They are not of ``multiprocessing``: a forked process would take over the locks of ONNX Runtime's threads, and one
# that is spawned runs the user's main module once more.

#: Codes of a graph's inputs, in their order.
Sample = Sequence[Int8]

#: The program of a process; its arguments are the places where this one finds modules.
_START = f"import sys; sys.path[:] = sys.argv[1:]; from {__name__} import serve; serve()"
#: Each process has one processor core.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "MKL", "OMP", "VECLIB_MAXIMUM", "NUMEXPR")}


class Workers:
    """Processes with one graph, started when they are needed; :meth:`close` ends them.

    If this process ends, however it does, they end too: their standard input is closed.

    Parameters
    ----------
    graph : Graph
    count : int
        The most processes.
    """

    def __init__(self, graph: Graph, count: int):
        self._graph = pickle.dumps(dataclasses.replace(graph, model=Model(), head=Model(), tail=Model()))
        # Each has a process of its own, and waits for it.
        self._threads = ThreadPoolExecutor(count, "golden functions")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._is_closed = False

    def submit(self, portion: Sequence[Sample]) -> Future[list[list[Int8]]]:
        """Evaluate samples: the result is the outputs of each, or ChildProcessError if the process ends by itself."""
        return self._threads.submit(self._evaluate, portion)

    def close(self) -> None:
        """End all processes, whatever they do."""
        with self._lock:
            self._is_closed = True
        for process in self._processes:
            process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                # It may have ended while samples were sent to it.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _evaluate(self, portion: Sequence[Sample]) -> list[list[Int8]]:
        process = self._process()
        try:
            _send(process, pickle.dumps(portion))
            answer = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise _ended(process.wait()) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _process(self) -> subprocess.Popen[bytes]:
        """Return this thread's process, and start it if there is none yet."""
        process = getattr(self._own, "process", None)
        if process is None:
            with self._lock:
                if self._is_closed:
                    raise RuntimeError("workers must not be closed before they are used")
                process = self._own.process = subprocess.Popen(
                    [sys.executable, "-c", _START, *sys.path],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=os.environ | _ONE_THREAD,
                    # An interrupt from the keyboard is for the process that waits for them, which ends them.
                    process_group=0,
                )
                self._processes.append(process)
            _send(process, self._graph)
        return process


def _send(process: subprocess.Popen[bytes], data: bytes) -> None:
    process.stdin.write(data)
    process.stdin.flush()


def _ended(code: int) -> ChildProcessError:
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return ChildProcessError(
        f"a process of the back-end golden must answer, and has ended with {how}; "
        "see that there is memory for one on each processor core, and try again"
    )


# Evaluating many samples: here as long as that takes no time, then on all processor cores, in order.

#: The time that a process takes to start: samples that end just then have taken twice as long as without processes.
PATIENCE_SECONDS = 0.5
#: Samples of a portion take about so long together, and are at most so many: handing them over takes less.
PORTION_SECONDS, PORTION_SAMPLES = 0.1, 64


def evaluate_all(graph: Graph, samples: Iterable[Sample]) -> Iterator[list[Int8]]:
    """Evaluate samples in order, by :func:`.evaluate.outputs_of`.

    Parameters
    ----------
    graph : Graph
    samples : iterable of lists of int8[height, width, channels]
        Codes of the graph's inputs. They are taken as they are needed, some of them ahead.

    Yields
    ------
    list of int8[height, width, channels]
        Codes of the graph's outputs. A caller that does not take them all closes the iterator: then no process is left.

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
    """Count the processor cores that this process may use, where the system tells; else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _portion(seconds_each: float) -> int:
    """Return the samples of a portion, if each takes so long: a power of two, of which copies take the least time."""
    most = max(1, min(PORTION_SAMPLES, int(PORTION_SECONDS / seconds_each)))
    return 1 << most.bit_length() - 1


def _in_processes(graph: Graph, samples: Iterator[Sample], size: int) -> Iterator[list[Int8]]:
    """Evaluate samples in portions of ``size``, in processes if there are several samples and processor cores."""
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
            # Each process has a portion to evaluate and one that waits.
            if len(pending) == 2 * cores:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()


class GoldenFunctions(Backend):
    """Inferences evaluated layer by layer; how cores would share them changes no byte, and is left out."""

    name = "golden"
    title = "golden functions"

    def _set_up(self) -> None:
        self._graph = self._make_graph()

    def prepare(self) -> None:
        """Do nothing, as the graph is there."""

    def infer(self, inputs: Iterable[Arrays]) -> Iterator[list[np.ndarray]]:
        """Evaluate each share of an inference by itself, several at a time where that pays."""
        shares = (share for arrays in inputs for share in self._shares(arrays))
        with contextlib.closing(evaluate_all(self._graph, shares)) as evaluated:
            while found := list(itertools.islice(evaluated, self.program.shares)):
                yield self._outputs(found)

    def _shares(self, arrays: Arrays) -> list[list[Int8]]:
        """Return the codes of the graph's inputs, for each share of the samples."""
        checked = [ports.check(port, array) for port, array in zip(self.program.inputs, arrays, strict=True)]
        codes = [ports.to_codes(port, array) for port, array in zip(self.program.inputs, checked, strict=True)]
        return [list(share) for share in zip(*codes, strict=True)]

    def _outputs(self, shares: Sequence[Sequence[Int8]]) -> list[np.ndarray]:
        """Return the arrays of the output ports, from the codes of the graph's outputs for each share."""
        return [
            ports.from_codes(port, codes)
            for port, codes in zip(self.program.outputs, zip(*shares, strict=True), strict=True)
        ]


# The process that evaluates samples: it reads a graph and then portions of samples, and writes the outputs of each.


def serve() -> None:
    """Serve the process at the other end of standard input and output, until it ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Text that libraries print must not stand among the answers.
    os.dup2(2, 1)
    try:
        graph = pickle.load(requests)
        while True:
            portion = pickle.load(requests)
            try:
                answer = outputs_of(graph, portion)
            except (TypeError, ValueError, MemoryError) as error:
                answer = error
            answers.write(pickle.dumps(answer))
            answers.flush()
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        # The other process is gone, perhaps in the middle of a message.
        os._exit(0)
