"""Arrivals: constants that stay, and those that are loaded in every inference."""

from __future__ import annotations

from dataclasses import dataclass

from ....golden.memories import LocalMemory


@dataclass(frozen=True, slots=True)
class Segment:
    """Some output tiles of a layer whose constants lie together."""

    tiles: range
    is_streamed: bool


@dataclass(frozen=True, eq=False)
class Arrival:
    """Constants that the DMA loads in every inference.

    Attributes
    ----------
    memory : LocalMemory
    address, size : int
        Where, and how many, in its units.
    external : int
        Where they come from, in the arena.
    release : int
        The last job that uses what they replace; -1 if there is none.
    deadline : int
        The first job that uses them.
    tensor : str or None
        The tensor that they are of, which is stored there first; None of what is known.
    """

    memory: LocalMemory
    address: int
    size: int
    external: int
    release: int
    deadline: int
    tensor: str | None = None
