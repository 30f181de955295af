"""Tables of which half is stored: the entries on one side of the middle give those on the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HalfTable:
    """Half of a table of ``2 * size`` entries, size a power of two, whose middle is the entry ``size``.

    Attributes
    ----------
    stored : tuple of int
        ``size`` entries, by their distance from the middle. The first one is at the distance ``size``, which exists
        only below the middle.
    middle : int
    is_upper : bool
        Which side of the middle is stored: the one above it.
    total : int or None
        Entries of the other side are ``clip(total - entry, low, high)``; if it is None, they equal the stored ones.
    low, high : int
    """

    stored: tuple[int, ...]
    middle: int
    is_upper: bool
    total: int | None
    low: int
    high: int

    def expand(self) -> Int64:
        """The whole table: int64[2 * size]."""
        size, stored = len(self.stored), np.array(self.stored)
        other = stored if self.total is None else np.clip(self.total - stored, self.low, self.high)
        above, below = (stored, other) if self.is_upper else (other, stored)
        return np.concatenate([below[:1], below[:0:-1], [self.middle], above[1:size]])


def halve(table: Int64) -> HalfTable | None:
    """Find a half that gives the same entries; None if there is none.

    The half is compared with the table, entry by entry: nothing is assumed of the function after it. This finds
    functions that are even or odd about the middle, or odd about a result other than zero, such as a sigmoid, even if
    they saturate on either side. It also finds some that are neither, such as Relu, which saturates on one side.

    Parameters
    ----------
    table : int64[entries]
        In the order of the codes; a power of two of them, at least 4.

    Raises
    ------
    ValueError
        If the number of entries is another one.
    """
    size = check_entries(len(table)) // 2
    middle, low, high = int(table[size]), int(table.min()), int(table.max())
    # By the distance, from 1.
    above, below = table[size + 1 :], table[size - 1 : 0 : -1]
    first = int(table[0])
    halves = [HalfTable((first, *below.tolist()), middle, False, None, low, high)]
    for total in _totals(above, below, low, high):
        halves.append(HalfTable((first, *below.tolist()), middle, False, total, low, high))
        # If the upper half is stored, its first entry gives that of the least code, like any other.
        halves.append(HalfTable((total - first, *above.tolist()), middle, True, total, low, high))
    for half in halves:
        if low <= half.stored[0] <= high and np.array_equal(half.expand(), table):
            return half
    return None


def _totals(above: Int64, below: Int64, low: int, high: int) -> list[int]:
    """The possible sums of the two entries of a distance, where they do not saturate."""
    sums = above + below
    free = (low < above) & (above < high) & (low < below) & (below < high)
    if free.any():
        return [int(sums[np.argmax(free)])]
    return sorted({int(sums[0]), low + high})


def check_entries(entries: int) -> int:
    """Return a number of entries; ValueError unless it is a power of two, at least 4."""
    if entries < 4 or entries & (entries - 1):
        raise ValueError(f"entries must be a power of two, at least 4, not {entries}")
    return entries
