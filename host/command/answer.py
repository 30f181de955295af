"""Answers of commands, as text and as values for JSON, and exit codes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from ..driver.driver import AcceleratorError, HardwareError
from ..files.terminal import answer, complain
from ..simulation.simulator import SimulationError
from ..simulation.toolchain import ToolError
from ..transports.line import LinkError


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a command.

    Attributes
    ----------
    text : str
        The answer as text.
    values : dict
        The answer as values for JSON.
    is_right : bool
        False if a check has failed.
    is_predicted : bool
        False if measured cycles are not the predicted ones.
    """

    text: str
    values: dict[str, Any]
    is_right: bool = True
    is_predicted: bool = True


# The end of a command: an answer, or a line with an error, and an exit code.

FAILED, WRONG_INPUT, MISPREDICTED = 1, 2, 3


class _FailedError(Exception):
    """The command did its work, and a check has failed.

    Attributes
    ----------
    code : int
        The exit code.
    """

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code


@contextlib.contextmanager
def reporting(as_json: bool) -> Iterator[None]:
    """Convert exceptions into one line and an exit code."""
    try:
        yield
    except _FailedError as failed:
        raise typer.Exit(failed.code) from None
    except (AcceleratorError, HardwareError, LinkError, SimulationError) as error:
        raise _exit(error, FAILED, as_json) from None
    except (ValueError, TypeError, ToolError, OSError) as error:
        raise _exit(error, WRONG_INPUT, as_json) from None
    except MemoryError as error:
        reason = f"this machine's memory is too small for it: {error}; choose a smaller network or batch"
        raise _exit(MemoryError(reason), WRONG_INPUT, as_json) from None


def _exit(error: Exception, code: int, as_json: bool) -> typer.Exit:
    refuse(str(error), as_json=as_json)
    return typer.Exit(code)


def refuse(message: str, *, as_json: bool) -> None:
    """Print an error."""
    if as_json:
        answer(json.dumps({"error": message}))
    else:
        complain(f"lutterfly: {message}")


def finish(answered: Answer, as_json: bool) -> None:
    """Print an answer, and fail if a check has failed."""
    answer(json.dumps(answered.values) if as_json else answered.text)
    if not answered.is_right:
        raise _FailedError(FAILED)
    if not answered.is_predicted:
        raise _FailedError(MISPREDICTED)
