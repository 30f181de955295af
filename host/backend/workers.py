"""Processes that evaluate samples of one graph.

They are not of ``multiprocessing``: a forked process would take over the locks of ONNX Runtime's threads, and one that
is spawned runs the user's main module once more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ..graph import Graph, Int8
from ..model.model import Model

#: Codes of a graph's inputs, in their order.
Sample = Sequence[Int8]

#: What a process runs; its arguments are where this one finds modules.
_START = f"import sys; sys.path[:] = sys.argv[1:]; from {__package__}.worker import serve; serve()"
#: Processes have a processor core each.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "MKL", "OMP", "VECLIB_MAXIMUM", "NUMEXPR")}


class Workers:
    """Processes with one graph, started when they are needed; :meth:`close` ends them.

    If this process ends, however it does, so do they: nothing is left of their standard input.

    Parameters
    ----------
    graph : Graph
    count : int
        Processes, at most.
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
        """Have samples evaluated: the outputs of each; ChildProcessError if the process ends by itself."""
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
                # What it was being sent when it ended.
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
        """This thread's."""
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
