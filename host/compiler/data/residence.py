"""Residences: what lies in the feature memory, and how long."""

from __future__ import annotations

from dataclasses import dataclass, field

from .storage import Storage

#: First and last layer, both included.
Span = tuple[int, int]


@dataclass(eq=False)
class Residence:
    """A tensor, or a part of one, in the feature memory.

    Attributes
    ----------
    tensor : str
    storage : Storage
    first, last : int
        The first and the last job that touches it.
    arrivals : dict of int to range
        Stored rows that the DMA loads, by the first job that reads them; empty if the tensor is computed.
    border : int
        The first job that reads its border.
    leaves : int or None
        The last job that writes it, if the DMA stores it in external memory then; -1 if the DMA has loaded it.
    """

    tensor: str
    storage: Storage
    first: int
    last: int
    arrivals: dict[int, range] = field(default_factory=dict)
    border: int = 0
    leaves: int | None = None
