"""Windows as words: where the bytes of a window lie, and the fewest words that cover them.

In NHWC a kernel row over neighbouring pixels is one run of bytes, and the fetch reads a word from any byte address. So
a window is a set of bytes, and its steps are the fewest words that cover the set: kernel width, pixels that a dilation
skips and rows that lie side by side need no rules of their own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....golden.elements import run_bytes
from ...graph import Window
from ..data.storage import Addresses, Storage


def tap_offsets(window: Window, channels: int, storage: Storage) -> Addresses:
    """Where the bytes of a window's elements lie, from its first byte on.

    Returns
    -------
    int64[kernel rows, kernel columns, bytes of the channels]
    """
    row, column, byte = np.ogrid[: window.kernel[0], : window.kernel[1], : run_bytes(channels, storage.bits)]
    across = column * window.dilation[1] * storage.pixel_pitch + byte
    fold = storage.fold
    if fold is None:
        return row * window.dilation[0] * storage.row_pitch + across
    stored_rows = fold.rows * fold.dilation // fold.step
    return (
        row // fold.rows * stored_rows * storage.row_pitch
        + row % fold.rows * (storage.stored_bytes // fold.rows)
        + across
    )


def window_pitches(window: Window, storage: Storage) -> tuple[int, int, int]:
    """Address of the first window's first byte, and bytes from a window to the one below and to the one beside it."""
    top, left, _, _ = window.pads
    beside = window.stride[1] * storage.pixel_pitch
    if storage.fold:
        return (
            storage.origin - left * storage.pixel_pitch,
            window.stride[0] // storage.fold.step * storage.row_pitch,
            beside,
        )
    first = storage.origin - top * storage.row_pitch - left * storage.pixel_pitch
    return first, window.stride[0] * storage.row_pitch, beside


def cover(offsets: Addresses, lanes: int) -> Addresses:
    """Fewest words of ``lanes`` bytes that hold all ``offsets``.

    Parameters
    ----------
    offsets : int64[...]
        In any order.
    lanes : int
        Bytes in a word, which may begin at any byte.

    Returns
    -------
    int64[steps]
        First byte of each word, ascending. Words begin at bytes that are wanted, and no wanted byte lies in two of
        them.
    """
    wanted = np.unique(offsets)
    # Of each byte, the first one after a word that begins there.
    after = np.searchsorted(wanted, wanted + lanes).tolist()
    firsts, index = [], 0
    while index < len(wanted):
        firsts.append(index)
        index = after[index]
    return wanted[firsts].astype(np.int64)


def cover_runs(offsets: Addresses, lanes: int) -> tuple[Addresses, Addresses]:
    """Fewest words that hold all ``offsets``, of whose first bytes every one is wanted.

    Parameters
    ----------
    offsets : int64[...]
        In any order.
    lanes : int

    Returns
    -------
    starts, counts : int64[steps]
        First byte of each word, ascending, and how many bytes of it are wanted: they end where the run of wanted bytes
        does, or the word.
    """
    wanted = np.unique(offsets)
    first = np.r_[True, np.diff(wanted) > 1]
    run = np.cumsum(first) - 1
    within = wanted - wanted[first][run]
    starts = wanted[within % lanes == 0]
    return starts, np.diff(np.r_[np.flatnonzero(within % lanes == 0), len(wanted)])


def places(offsets: Addresses, starts: Addresses, lanes: int) -> tuple[Addresses, npt.NDArray[np.bool_]]:
    """The word in which each byte lies, and whether it lies in one.

    Parameters
    ----------
    offsets : int64[bytes]
    starts : int64[steps]
        First byte of each word of ``lanes`` bytes, ascending.
    lanes : int

    Returns
    -------
    steps : int64[bytes]
        The last word that begins before the byte or with it; the first word where there is none.
    inside : bool[bytes]
    """
    found = np.searchsorted(starts, offsets, side="right") - 1
    steps = np.maximum(found, 0)
    return steps, (found >= 0) & (offsets - starts[steps] < lanes)


def window_steps(window: Window, channels: int, storage: Storage, lanes: int) -> int:
    """Words that a window takes."""
    return len(cover(tap_offsets(window, channels, storage), lanes))


def describe(window: Window, channels: int, storage: Storage, lanes: int) -> str:
    """How windows read their input, for people."""
    rows, columns = window.kernel
    steps = window_steps(window, channels, storage, lanes)
    useful = rows * columns * run_bytes(channels, storage.bits) / (steps * lanes)
    folded = f"{storage.fold.rows} rows interleaved, " if storage.fold else ""
    return f"{folded}{steps} words per window, {useful:.0%} useful"
