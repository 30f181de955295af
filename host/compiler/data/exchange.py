"""Exchanges: what the cores that share an inference give one another of a tensor, through external memory."""

from __future__ import annotations

from dataclasses import dataclass

from ...graph import Tensor


@dataclass(frozen=True, slots=True)
class Region:
    """Some rows and channels of a tensor, with all columns.

    Attributes
    ----------
    rows, channels : range
        None of them empty.
    """

    rows: range
    channels: range

    def meet(self, other: Region) -> Region | None:
        """What both have in common; None where that is nothing."""
        rows, channels = _meet(self.rows, other.rows), _meet(self.channels, other.channels)
        return Region(rows, channels) if rows and channels else None

    def join(self, other: Region) -> Region:
        """The least region that holds both."""
        return Region(_join(self.rows, other.rows), _join(self.channels, other.channels))

    def holds(self, other: Region) -> bool:
        """Whether all of another one lies in this one."""
        return self.join(other) == self

    def within(self, other: Region) -> Region:
        """The same, counted from the first row and channel of another one."""
        return Region(_moved(self.rows, other.rows.start), _moved(self.channels, other.channels.start))


def _meet(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _join(one: range, other: range) -> range:
    return range(min(one.start, other.start), max(one.stop, other.stop))


def _moved(one: range, start: int) -> range:
    return range(one.start - start, one.stop - start)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What a tensor of a core's graph is of the network's.

    Attributes
    ----------
    tensor : Tensor
        The network's.
    region : Region
        Of that.
    """

    tensor: Tensor
    region: Region

    @classmethod
    def all_of(cls, tensor: Tensor) -> Excerpt:
        """The whole tensor."""
        return cls(tensor, Region(range(tensor.shape[0]), range(tensor.shape[2])))


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a core gives and takes of a tensor of the network of which several cores compute a part or read one.

    Attributes
    ----------
    own : Region or None
        What the core computes.
    arrives : tuple of Region
        What others compute and its layers read.
    leaves : tuple of Region
        What it computes and layers of others read.
    earlier : frozenset of str
        What those layers of the core compute that come before the tensor's.
    """

    own: Region | None
    arrives: tuple[Region, ...]
    leaves: tuple[Region, ...]
    earlier: frozenset[str] = frozenset()
