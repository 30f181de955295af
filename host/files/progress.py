"""Telling people how far long work is."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from .standard_streams import complain

#: Shorter work shows no bar.
DELAY_SECONDS = 2.0
#: How often a pipe or a file gets a line.
LINE_SECONDS = 10.0


class Progress(Protocol):
    """What long work calls."""

    def __call__(self, step: str, done: int = 0, total: int = 0) -> None:
        """Say what is being done, and how many of how many parts are; ``total`` 0 stands for unknown."""


def silent(step: str, done: int = 0, total: int = 0) -> None:
    """Say nothing."""


@contextlib.contextmanager
def showing(*, enabled: bool) -> Iterator[Progress]:
    """Show on standard error how far the work inside is: a bar on a terminal, else a line now and then.

    Parameters
    ----------
    enabled : bool
        Without it nothing is shown.
    """
    if not enabled:
        yield silent
    elif sys.stderr.isatty():
        with _bar() as progress:
            yield progress
    else:
        with _lines() as progress:
            yield progress


@contextlib.contextmanager
def _bar() -> Iterator[Progress]:
    """One that appears when the work takes longer than two seconds."""
    # Only a terminal needs it.
    import rich.console  # noqa: PLC0415
    import rich.progress  # noqa: PLC0415

    bar = rich.progress.Progress(console=rich.console.Console(stderr=True), transient=True)
    task = bar.add_task("starting", total=None)
    timer = threading.Timer(DELAY_SECONDS, bar.start)
    timer.daemon = True
    timer.start()

    def show(step: str, done: int = 0, total: int = 0) -> None:
        bar.update(task, description=step, completed=done, total=total or None)

    try:
        yield show
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


@contextlib.contextmanager
def _lines() -> Iterator[Progress]:
    """What is being done, every ten seconds."""
    began, ended, shown = time.monotonic(), threading.Event(), "starting"

    def show(step: str, done: int = 0, total: int = 0) -> None:
        nonlocal shown
        shown = f"{step}, {done} of {total}" if total else step

    def speak() -> None:
        while not ended.wait(LINE_SECONDS):
            complain(f"lutterfly: {shown} ({time.monotonic() - began:.0f} s)")

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield show
    finally:
        ended.set()
        thread.join()
