"""Standard output and standard error as a process may get them: closed, on a full disk, into a pipe nobody reads."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import TextIO


class OutputError(Exception):
    """Standard output cannot be written.

    Attributes
    ----------
    is_unread : bool
        Whether it is a pipe whose reader has gone.
    """

    def __init__(self, reason: str, *, is_unread: bool = False):
        super().__init__(f"standard output must be writable, and is not: {reason}; name another place for it")
        self.is_unread = is_unread


def prepare() -> None:
    """Have three streams that any text can be written to.

    Raises
    ------
    OutputError
        If standard output is closed: the answer would be lost.
    """
    for number in range(3):
        # What is opened next would get the number of a closed stream, and with it what libraries print.
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        raise OutputError("it is closed")


def answer(text: str) -> None:
    """Write a text and a new line to standard output, now.

    Raises
    ------
    OutputError
        If that fails.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        raise failure(error) from error


def failure(error: OSError) -> OutputError:
    """What a failed write to standard output is; what is still buffered is given up."""
    _give_up(sys.stdout)
    return OutputError(error.strerror or str(error), is_unread=isinstance(error, BrokenPipeError))


def complain(text: str) -> None:
    """Write a text and a new line to standard error, if anything can be written there: the exit code says it too."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    """Send what a stream still holds nowhere: Python would fail on it once more when the process ends."""
    with contextlib.suppress(io.UnsupportedOperation):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)
