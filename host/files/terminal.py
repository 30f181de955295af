"""Output to terminals, pipes and full disks: streams, progress, and phrases for numbers and tables."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TextIO

import numpy as np

from ...golden.program.program import Program


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
    """Make sure that there are three streams to which any text can be written.

    Raises
    ------
    OutputError
        If standard output is closed: the answer would be lost.
    """
    for number in range(3):
        # The next opened file would get the number of a closed stream, and with it the output of libraries.
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open for the life of the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        raise OutputError("it is closed")


def answer(text: str) -> None:
    """Write a text and a new line to standard output, without buffering.

    Raises
    ------
    OutputError
        If writing fails.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        raise failure(error) from error


def failure(error: OSError) -> OutputError:
    """Convert a failed write to standard output to an error, and drop buffered output."""
    _give_up(sys.stdout)
    return OutputError(error.strerror or str(error), is_unread=isinstance(error, BrokenPipeError))


def complain(text: str) -> None:
    """Write a text and a new line to standard error, if possible: the exit code tells of the error too."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    """Redirect a stream's buffered output to nowhere: Python would fail on it again when the process ends."""
    with contextlib.suppress(io.UnsupportedOperation):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


# Progress of long work.

#: Seconds of work without a bar.
DELAY_SECONDS = 2.0
#: Seconds between lines in a pipe or a file.
LINE_SECONDS = 10.0


class Progress(Protocol):
    """The function that long work calls to report its progress."""

    def __call__(self, step: str, done: int = 0, total: int = 0) -> None:
        """Report the present work, and how many of ``total`` parts are done; 0 stands for an unknown total."""


def silent(step: str, done: int = 0, total: int = 0) -> None:
    """Report nothing."""


@contextlib.contextmanager
def showing(*, enabled: bool) -> Iterator[Progress]:
    """Show the progress of the work inside on standard error: a bar on a terminal, else a line now and then.

    Parameters
    ----------
    enabled : bool
        Whether anything is shown.
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
    """Show a bar when the work takes longer than two seconds."""
    # Only a terminal needs the import.
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
    """Write a line about the present work every ten seconds."""
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


# Phrases for numbers, shapes and tables.


def macs_of(program: Program) -> int:
    """Return the phrase for the multiply-accumulates of an inference."""
    return sum(layer.macs for layer in program.layers)


def prediction_text(program: Program, multipliers: int) -> str:
    """Return the phrase for the prediction of an inference."""
    utilisation = program.utilisation(program.predicted_cycles, multipliers)
    return (
        f"{program.predicted_cycles:,} cycles predicted for {inference_text(program)}, "
        f"{macs_of(program):,} multiply-accumulates, {utilisation:.1%} of {multipliers} multipliers busy"
    )


def inference_text(program: Program) -> str:
    """Return the phrase for the samples that run at a time."""
    return f"an inference of {program.batch} samples" if program.batch > 1 else "an inference"


def tables_text(functions: int, tables: int) -> str:
    """Return the phrase for the number of places that need a transfer table, and of tables for them."""
    shown = f"{functions} transfer function{'s' * (functions != 1)}"
    if tables < functions:
        return f"{shown} share {tables} table{'s' * (tables != 1)}"
    return f"{shown} with {'a table' if functions == 1 else 'a table each'}"


def elements_text(array: np.ndarray) -> str:
    """Return the elements of an array, or some of them, as text."""
    return "\n  " + np.array2string(array, threshold=40, edgeitems=4, max_line_width=100, prefix="  ")


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as text, such as 3x4."""
    return "x".join(map(str, shape))


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """Return a table with aligned columns; those of numbers are aligned to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numeric = [
        all(row[column].replace(",", "").strip("-").isdigit() or row[column] in ("", "-") for row in rows[1:])
        and len(rows) > 1
        for column in range(len(rows[0]))
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    )
