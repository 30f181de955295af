"""Transfer tables: any function of a code as 256 codes.

Source: *Method and computing tool for determining a transfer function between pairs of successive layers of a neural
network* (EP 19290051.2): ``TF[i] = Q(OP(Q^-1(i + min)))``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..isa import TABLE_BYTES
from ..numerics.planes import Int8, memory_order
from .schemes import Codes, Float32, Scheme, name_of


def apply_table(codes: Int8, table: Int8) -> Int8:
    """Look up every code in a table.

    Parameters
    ----------
    codes : int8[...]
    table : int8[256]
        Indexed by the code plus 128.

    Returns
    -------
    int8[...]
        ``table[codes + 128]``.

    Raises
    ------
    TypeError
        If an array is not int8.
    ValueError
        If the table does not have 256 entries.
    """
    codes, table = np.asarray(codes), np.asarray(table)
    for name, array in (("codes", codes), ("table", table)):
        if array.dtype != np.int8:
            raise TypeError(f"{name} must be int8, not {array.dtype}")
    if table.shape != (TABLE_BYTES,):
        raise ValueError(f"table must have the shape ({TABLE_BYTES},), not {table.shape}")
    axes = memory_order(codes)
    # In the order of unsigned numbers, codes that are not negative come first.
    found = np.roll(table, TABLE_BYTES // 2).take(codes.view(np.uint8).transpose(axes))
    return found.transpose(np.argsort(axes))


def apply_pair_table(first: Int8, second: Int8, table: Int8) -> Int8:
    """Look every pair of codes up.

    Parameters
    ----------
    first, second : int8[...]
        Arrays whose shapes broadcast.
    table : int8[256, 256]
        Indexed by both codes plus 128.

    Returns
    -------
    int8[...]
        ``table[first + 128, second + 128]``.
    """
    pairs = first.view(np.uint8).astype(np.uint16) << 8 | second.view(np.uint8)
    axes, half = memory_order(pairs), TABLE_BYTES // 2
    return np.roll(table, (half, half), (0, 1)).reshape(-1).take(pairs.transpose(axes)).transpose(np.argsort(axes))


# Half tables: the stored entries on one side of the middle give those on the other.

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
        Whether the stored entries are those above the middle.
    total : int or None
        Entries of the other side are ``clip(total - entry, low, high)``; if None, they equal the stored ones.
    low, high : int
    """

    stored: tuple[int, ...]
    middle: int
    is_upper: bool
    total: int | None
    low: int
    high: int

    def expand(self) -> Int64:
        """Return the whole table: int64[2 * size]."""
        size, stored = len(self.stored), np.array(self.stored)
        other = stored if self.total is None else np.clip(self.total - stored, self.low, self.high)
        above, below = (stored, other) if self.is_upper else (other, stored)
        return np.concatenate([below[:1], below[:0:-1], [self.middle], above[1:size]])


def halve(table: Int64) -> HalfTable | None:
    """Find a half table that gives the same entries; None if there is none.

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
    # These are indexed by the distance from the middle, from 1 on.
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
    """Return the possible sums of the two entries at each distance, where neither saturates."""
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


# Transfer tables between codes of any two schemes; equal tables are stored once.
#
# Source: *Method and computing tool for determining a transfer function between pairs of successive layers of a neural
# network* (EP 19290051.2): ``TF[i] = Q(OP(Q^-1(i + min_j)))``, and T tables for P places, T <= P.

#: An elementwise function of float32 numbers.
Operator = Callable[[Float32], Float32]


def transfer_table(source: Scheme, operator: Operator, target: Scheme) -> Codes:
    """Tabulate an operator for every code of ``source``.

    Parameters
    ----------
    source, target : Scheme
        The schemes of the operator's input and of its result; widths and kinds may differ.
    operator : callable
        An elementwise function from float32[n] to float32[n]: one of NumPy's, or one that
        :mod:`lutterfly.host.transfer` makes of ONNX operators.

    Returns
    -------
    target.dtype[source.greatest - source.least + 1]
        ``target.quantise(operator(source.dequantise(i + source.least)))`` at index i. (With the identity for an
        operator this is requantisation.)

    Raises
    ------
    TypeError
        If the operator's result is not float32.
    ValueError
        If its shape is another one, or a result is infinite or not a number: no code stands for it.
    """
    values = source.dequantise(source.codes)
    # The check below finds NaN and infinity, and names the code that leads to them.
    with np.errstate(all="ignore"):
        results = np.asarray(operator(values))
    if results.dtype != np.float32:
        raise TypeError(f"operator must give float32, not {results.dtype}")
    if results.shape != values.shape:
        raise ValueError(f"operator must give a result for each of {values.size} inputs, not the shape {results.shape}")
    bad = np.flatnonzero(~np.isfinite(results))
    if bad.size:
        code, value, result = source.codes[bad[0]], values[bad[0]], results[bad[0]]
        raise ValueError(
            f"operator must give a finite number for every code of {name_of(source)}, not {result} for the code {code} "
            f"({value:g}), the first of {bad.size}: no code stands for it; clip the operator's input or its result, or "
            "choose another source"
        )
    return target.quantise(results)


def stored_once(tables: Sequence[Codes]) -> tuple[list[Codes], list[int]]:
    """Store equal tables once.

    Parameters
    ----------
    tables : sequence of arrays
        One for each of P places.

    Returns
    -------
    stored : list of arrays
        T of them, T <= P, in the order of their first places. Equal ones have equal types, shapes and codes.
    indices : list of int
        For each place, the index of its table in ``stored``.
    """
    stored: list[Codes] = []
    found: dict[tuple[str, tuple[int, ...], bytes], int] = {}
    indices = []
    for table in tables:
        key = (table.dtype.str, table.shape, table.tobytes())
        if key not in found:
            found[key] = len(stored)
            stored.append(table)
        indices.append(found[key])
    return stored, indices
