"""Whether other processes still run, and small disks that fill up."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PATIENCE_S = 60


class Presence:
    """Tells whether any of some processes still runs: those to which ``path``, a named pipe, is open for writing.

    Process numbers cannot tell: they stay until a parent has asked for the exit code.
    """

    def __init__(self, folder: Path):
        self.path = folder / "presence"
        os.mkfifo(self.path)
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    def begins(self) -> None:
        """Wait until a process has written a line into the pipe."""
        assert select.select([self._descriptor], [], [], PATIENCE_S)[0], "no process has begun"
        assert os.read(self._descriptor, 1000)

    def ends(self) -> None:
        """Wait until all have ended."""
        limit = time.monotonic() + PATIENCE_S
        read = b"more"
        while read:
            assert select.select([self._descriptor], [], [], limit - time.monotonic())[0], "a process still runs"
            read = os.read(self._descriptor, 1000)


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for something that another process does."""
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit, "it does not happen"
        time.sleep(0.01)


#: A shell lets what it starts in the background ignore SIGINT, and so would what that starts.
_HEEDS_INTERRUPTS = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"


def start_python(script: str, *arguments: object, **environment: str) -> subprocess.Popen:
    """A process that runs ``script``; what it says on standard error is kept."""
    return subprocess.Popen(
        [sys.executable, "-c", _HEEDS_INTERRUPTS + script, *map(str, arguments)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of that size at ``folder``; the test is skipped where none may be mounted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk needs the right to mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
