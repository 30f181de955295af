"""Run tools so that none outlives the process that started it, however that ends."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

#: Leads the tool's process group. Its standard input is a pipe of which the caller holds the other end: when the caller
#: ends, even by SIGKILL, the pipe is closed, and the guard kills the group. A death signal (PR_SET_PDEATHSIG) would
#: reach the tool alone, and not the compilers that make starts.
_GUARD = ("/bin/sh", "-c", "read _; kill -KILL 0")

#: Seconds from one question whether a tool works in vain to the next.
_POLL_S = 1.0


class VainError(Exception):
    """A tool was killed that would not have ended with a result."""


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.STDOUT,
    time_limit_s: float = math.inf,
    is_vain: Callable[[], bool] = lambda: False,
) -> tuple[int, bytes]:
    """Run ``command`` in a process group of its own; when this returns or raises, nothing of the group runs any more.

    Parameters
    ----------
    command : sequence of str
        A program and its arguments; its standard input is empty.
    stdout, stderr : int or file
        As for :class:`subprocess.Popen`.
    time_limit_s : float
        After which the group is killed.
    is_vain : callable
        Asked every second whether to kill the group before that.

    Returns
    -------
    tuple of int and bytes
        The exit code, and what was written to ``stderr`` if that is a pipe.

    Raises
    ------
    OSError
        If there is no such program.
    subprocess.TimeoutExpired
        If the command takes longer than ``time_limit_s``.
    VainError
        If it was killed because it works in vain.
    """
    with (
        _guarded_group() as group,
        subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            process_group=group,
        ) as process,
    ):
        try:
            errors = _errors(process, time_limit_s, is_vain)
        finally:
            process.kill()
    return process.returncode, errors or b""


def _errors(process: subprocess.Popen[bytes], time_limit_s: float, is_vain: Callable[[], bool]) -> bytes | None:
    """Wait for the end; what was written to a pipe of errors."""
    limit = time.monotonic() + time_limit_s
    while (left := limit - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=min(left, _POLL_S))[1]
        if is_vain():
            raise VainError
    raise subprocess.TimeoutExpired(process.args, time_limit_s)


@contextlib.contextmanager
def _guarded_group() -> Iterator[int]:
    """The number of a process group that ends with this block, or with this process."""
    read_end, write_end = os.pipe()
    guard = None
    try:
        guard = subprocess.Popen(
            _GUARD, stdin=read_end, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
        )
        yield guard.pid
    finally:
        os.close(read_end)
        os.close(write_end)
        if guard:
            guard.wait()
