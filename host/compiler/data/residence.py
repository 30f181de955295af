"""Residences: what lies in the feature memory, and how long."""

from __future__ import annotations

from dataclasses import dataclass, field

from .storage import Storage

#: First and last layer, both included.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Incoming:
    """What the DMA loads of a tensor.

    Attributes
    ----------
    job : int
        The first job that reads it.
    storage : Storage
        The tensor, or some channels of it.
    rows : range
        Stored rows.
    """

    job: int
    storage: Storage
    rows: range


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What the DMA stores of a tensor.

    Attributes
    ----------
    job : int
        The last job that writes it.
    storage : Storage
    """

    job: int
    storage: Storage


@dataclass(eq=False)
class Residence:
    """A tensor, or a part of one, in the feature memory.

    Attributes
    ----------
    tensor : str
    storage : Storage
    first, last : int
        The first and the last job that touches it.
    arrivals : list of Incoming
        Empty if the tensor is computed.
    border : int
        The first job that reads its border.
    departures : list of Outgoing
        Empty if nothing of it is needed in external memory.
    """

    tensor: str
    storage: Storage
    first: int
    last: int
    arrivals: list[Incoming] = field(default_factory=list)
    border: int = 0
    departures: list[Outgoing] = field(default_factory=list)
