"""Telling people how far long work is."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Protocol

#: Shorter work shows no bar.
DELAY_SECONDS = 2.0


class Progress(Protocol):
    """What long work calls."""

    def __call__(self, step: str, done: int = 0, total: int = 0) -> None:
        """Say what is being done, and how many of how many parts are; ``total`` 0 stands for unknown."""


def silent(step: str, done: int = 0, total: int = 0) -> None:
    """Say nothing."""


class ProgressBar:
    """A bar on standard error that appears when the work takes longer than two seconds, if that is a terminal.

    Parameters
    ----------
    enabled : bool
        Without it there is no bar anywhere.
    """

    def __init__(self, *, enabled: bool):
        self._enabled = enabled and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        if not self._enabled:
            return silent
        # Only a terminal needs it.
        import rich.console  # noqa: PLC0415
        import rich.progress  # noqa: PLC0415

        self._bar = bar = rich.progress.Progress(console=rich.console.Console(stderr=True), transient=True)
        task = bar.add_task("starting", total=None)
        self._timer = threading.Timer(DELAY_SECONDS, bar.start)
        self._timer.daemon = True
        self._timer.start()

        def show(step: str, done: int = 0, total: int = 0) -> None:
            bar.update(task, description=step, completed=done, total=total or None)

        return show

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            self._timer.cancel()
            self._timer.join()
            self._bar.stop()
