"""Back-ends: the implementations of a session's inferences, by one contract (``backend.py``), each in its own file."""

from __future__ import annotations

import enum

from .accelerator import Accelerator
from .backend import Arrays, Backend
from .golden_functions import GoldenFunctions

#: All back-ends, by their names for users.
BACKENDS: dict[str, type[Backend]] = {kind.name: kind for kind in (Accelerator, GoldenFunctions)}

#: The same names, as an option of the command line takes them.
BackendName = enum.StrEnum("BackendName", {name.upper(): name for name in BACKENDS})
DEFAULT_BACKEND = BackendName(Accelerator.name)


def find_backend(name: str) -> type[Backend]:
    """Return the back-end of a name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, not {name}")
    return BACKENDS[name]


__all__ = ["BACKENDS", "DEFAULT_BACKEND", "Accelerator", "Arrays", "Backend", "BackendName", "find_backend"]
