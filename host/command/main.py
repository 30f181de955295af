"""The command line as a process: signals, streams, and errors before a command runs."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import typer

from ..files import terminal
from ..files.terminal import OutputError, answer, complain
from .answer import WRONG_INPUT
from .cli import app

#: Exit codes of a process that a signal has ended, as shells report them: SIGINT, SIGPIPE.
INTERRUPTED, UNREAD = 130, 141


#: The exception of typer on a wrong command line; it has no public name.
_UsageError = typer.BadParameter.__mro__[1]


@contextlib.contextmanager
def _unwinding() -> Iterator[None]:
    """Convert signals that end a process into exceptions, so that unfinished builds are removed."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    changed = []
    # Only the main thread may set signal handlers.
    if threading.current_thread() is threading.main_thread():
        changed = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line on ``arguments``, by default the process's own; return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        terminal.prepare()
        with _unwinding():
            return _run(words)
    except OutputError as error:
        # The reader has closed the pipe because it has read enough.
        if error.is_unread:
            return UNREAD
        complain(f"lutterfly: {error}")
        return WRONG_INPUT


def _run(words: list[str]) -> int:
    try:
        code = app(words, prog_name="lutterfly", standalone_mode=False) or 0
        if code == INTERRUPTED:
            # Typer converts it to an exit code, without a message.
            raise KeyboardInterrupt
        return code
    except _UsageError as error:
        # With --json, errors of the command line are JSON objects too.
        if "--json" in words:
            answer(json.dumps({"error": error.format_message()}))
        else:
            with contextlib.suppress(OSError):
                error.show()
        return WRONG_INPUT
    except (KeyboardInterrupt, typer.Abort):
        complain("lutterfly: interrupted")
        return INTERRUPTED
    except OSError as error:
        # Only help is not written by our own code.
        raise terminal.failure(error) from error
