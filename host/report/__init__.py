"""The report of `lutterfly run --report`: one HTML page that shows where an inference's cycles and bytes go.

Importing this package needs none of what the extra `report` installs.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...synth.tools import missing
from ..files.files import check_writable
from ..simulation.toolchain import ToolError

if TYPE_CHECKING:
    from ..program import Bodies, Speed
    from ..session.session import InferenceSession


def check_available(what: str = "report") -> None:
    """Raise ToolError if Plotly, which draws a report or a plot, is not installed."""
    if importlib.util.find_spec("plotly") is None:
        raise ToolError(missing(f"a {what}", ["Plotly"], "report"))


def check_ending(path: Path, what: str = "report") -> None:
    """Raise ValueError if the file name of a report or a plot does not end as a page's, by which programs open it."""
    is_file = path.is_file() or not path.exists()
    if is_file and path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{what} must be a file that ends in .html, as the {what} is a page, not {path}")


def check_target(path: Path, others: Iterable[Path]) -> None:
    """Check, before anything runs, that a report can be written.

    Parameters
    ----------
    path : Path
        Path of the report.
    others : iterable of Path
        Files that it must not replace.

    Raises
    ------
    ValueError
        If the file cannot be written, or is one of the others.
    """
    for other in others:
        if other.resolve() == path.resolve():
            raise ValueError(f"report must be another file than what the run reads and writes, not {path}")
    check_writable(path)


def make(
    session: InferenceSession,
    bodies: Bodies,
    feeds: Mapping[str, np.ndarray],
    name: str,
    speed: Speed | None = None,
) -> bytes:
    """Run one more inference, observe it, and draw it.

    Parameters
    ----------
    session : InferenceSession
        A session on a simulated accelerator, on which an inference has run, so that its program is loaded.
    bodies : sequence of mapping of Queue to sequence of BodyCommand
        The commands of each core, see :attr:`~lutterfly.host.session.loading.LoadedProgram.bodies`.
    feeds : mapping of str to array
        The model's inputs, at most ``session.batch`` samples of each.
    name : str
        Name of the model, for people.
    speed : Speed or None
        Speed of the accelerator, if its clock is known.

    Returns
    -------
    bytes
        The HTML page.
    """
    from .gather import gather
    from .observe import observe
    from .page import page

    with session.transport.exclusive():
        observed = observe(session, session.transport.simulator, bodies, feeds)
    cores = [
        gather(name, session.program, session.config, observation, core=core)
        for core, observation in enumerate(observed)
    ]
    return page(cores, speed).encode()
