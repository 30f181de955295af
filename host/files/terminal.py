"""Output to terminals, pipes and full disks: streams, progress, and how figures and tables are put."""

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


# Telling people how far long work is.

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


# Phrases: how figures, shapes and tables are put.


def macs_of(program: Program) -> int:
    """Multiply-accumulates of an inference."""
    return sum(layer.macs for layer in program.layers)


def prediction_text(program: Program, multipliers: int) -> str:
    """What is predicted of an inference."""
    utilisation = program.utilisation(program.predicted_cycles, multipliers)
    return (
        f"{program.predicted_cycles:,} cycles predicted for {inference_text(program)}, "
        f"{macs_of(program):,} multiply-accumulates, {utilisation:.1%} of {multipliers} multipliers busy"
    )


def inference_text(program: Program) -> str:
    """What is run at a time."""
    return f"an inference of {program.batch} samples" if program.batch > 1 else "an inference"


def tables_text(functions: int, tables: int) -> str:
    """How many places need a transfer table, and how many tables there are for them."""
    shown = f"{functions} transfer function{'s' * (functions != 1)}"
    if tables < functions:
        return f"{shown} share {tables} table{'s' * (tables != 1)}"
    return f"{shown} with {'a table' if functions == 1 else 'a table each'}"


def elements_text(array: np.ndarray) -> str:
    """The elements of an array, or some of them."""
    return "\n  " + np.array2string(array, threshold=40, edgeitems=4, max_line_width=100, prefix="  ")


def shape_text(shape: Sequence[int]) -> str:
    """A shape, as 3x4."""
    return "x".join(map(str, shape))


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned; those that hold numbers to the right."""
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
