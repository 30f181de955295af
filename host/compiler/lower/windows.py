"""Windows as words: the offsets of the bytes of a window, and the fewest words that cover them.

In NHWC a kernel row over neighbouring pixels is one run of bytes, and the fetch reads a word from any byte address. So
a window is a set of bytes, and its steps are the fewest words that cover the set. Kernel width, pixels that a dilation
skips and adjacent rows need no rules of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.elements import run_bytes
from ...graph import Window
from ..storage import Addresses, Storage


def tap_offsets(window: Window, channels: int, storage: Storage) -> Addresses:
    """Return the offsets of the bytes of a window's elements from its first byte.

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
    """Return the address of the first window's first byte, and the vertical and the horizontal pitch of windows in
    bytes."""
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
    """Return the fewest words of ``lanes`` bytes that hold all ``offsets``.

    Parameters
    ----------
    offsets : int64[...]
        Byte offsets in any order.
    lanes : int
        Bytes in a word, which may begin at any byte.

    Returns
    -------
    int64[steps]
        First byte of each word, ascending. Words begin at wanted bytes, and no wanted byte is in two of them.
    """
    wanted = np.unique(offsets)
    # For each byte, the first wanted byte after a word that begins there.
    after = np.searchsorted(wanted, wanted + lanes).tolist()
    firsts, index = [], 0
    while index < len(wanted):
        firsts.append(index)
        index = after[index]
    return wanted[firsts].astype(np.int64)


def cover_runs(offsets: Addresses, lanes: int) -> tuple[Addresses, Addresses]:
    """Return the fewest words that hold all ``offsets`` in unbroken runs of wanted bytes at their beginning.

    Parameters
    ----------
    offsets : int64[...]
        Byte offsets in any order.
    lanes : int

    Returns
    -------
    starts, counts : int64[steps]
        First byte of each word, ascending, and the number of its wanted bytes, which end with the run of wanted bytes
        or with the word.
    """
    wanted = np.unique(offsets)
    first = np.r_[True, np.diff(wanted) > 1]
    run = np.cumsum(first) - 1
    within = wanted - wanted[first][run]
    starts = wanted[within % lanes == 0]
    return starts, np.diff(np.r_[np.flatnonzero(within % lanes == 0), len(wanted)])


def places(offsets: Addresses, starts: Addresses, lanes: int) -> tuple[Addresses, npt.NDArray[np.bool_]]:
    """Return the word that contains each byte, and whether one does.

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
    """Return the number of words of a window."""
    return len(cover(tap_offsets(window, channels, storage), lanes))


def describe(window: Window, channels: int, storage: Storage, lanes: int) -> str:
    """Return a text for people about the words of windows."""
    rows, columns = window.kernel
    steps = window_steps(window, channels, storage, lanes)
    useful = rows * columns * run_bytes(channels, storage.bits) / (steps * lanes)
    folded = f"{storage.fold.rows} rows interleaved, " if storage.fold else ""
    return f"{folded}{steps} words per window, {useful:.0%} useful"


# Streams: the order of the words of neighbouring depthwise windows.


@dataclass(frozen=True)
class Stream:
    """The order of the words of neighbouring windows.

    Attributes
    ----------
    window : Window
        Window of the layer.
    taps : int
        Number of array columns in a chain.
    along : int
        The axis of the windows of an inner loop: 1 for a row of windows, 0 for a column.
    results : int
        Number of the layer's windows, neighbours across the stream, whose results one window of the stream gives.
    """

    window: Window
    taps: int
    along: int
    results: int = 1

    @cached_property
    def columns(self) -> int:
        """The number of image columns, or rows if ``along`` is 0, that a window reads: as many as array columns are
        used."""
        return min(self.window.kernel[self.along], self.taps)

    @cached_property
    def advance(self) -> int:
        """The number of these image columns that the next window reads anew."""
        images, left_over = divmod(self.window.stride[self.along], self.window.dilation[self.along])
        return self.columns if left_over else min(images, self.columns)

    @cached_property
    def turns(self) -> int:
        """The number of image columns whose words an array column takes in turn."""
        return -(-self.window.kernel[self.along] // self.taps)

    @cached_property
    def across(self) -> tuple[int, ...]:
        """The rows of an image column, from its first one on, that any of the results needs."""
        return tuple(sorted({self.row(result, element) for result in range(self.results) for element in self.elements}))

    @property
    def elements(self) -> range:
        """The indices of the kernel's elements across the stream."""
        return range(self.window.kernel[1 - self.along])

    def row(self, result: int, element: int) -> int:
        """Return the row of an image column that a result multiplies by an element of the kernel."""
        axis = 1 - self.along
        return result * self.window.stride[axis] + element * self.window.dilation[axis]

    def nearest(self, results: int) -> tuple[int, ...]:
        """Return :attr:`across` for a window with fewer results; rows after the last one that they need are replaced by
        it."""
        last = self.row(results - 1, self.elements[-1])
        return tuple(min(row, last) for row in self.across)

    @property
    def rows(self) -> int:
        """The number of words of an image column, the command's field ``rows``."""
        return self.turns * len(self.across)

    @property
    def steps(self) -> int:
        """The number of words of a window that begins an inner loop."""
        return self.columns * self.rows

    @property
    def skip(self) -> int:
        """The number of words that later windows need not read."""
        return (self.columns - self.advance) * self.rows

    def cycles(self, sizes: tuple[int, int], groups: int) -> int:
        """Return the cycles of an output of this many rows and columns, each result of which takes ``groups``
        cycles."""
        inner, outer = sizes[self.along], sizes[1 - self.along]
        full, rest = divmod(outer, self.results)
        return full * self._row_cycles(inner, groups * self.results) + (rest > 0) * self._row_cycles(
            inner, groups * rest
        )

    def _row_cycles(self, inner: int, groups: int) -> int:
        return max(self.steps, groups) + (inner - 1) * max(self.advance * self.rows, groups)


# Border classes are parts of a map whose windows contain the same elements of the kernel within the input.


@dataclass(frozen=True, slots=True)
class BorderClass:
    """Neighbouring windows that have the same elements of the kernel within the input.

    Attributes
    ----------
    rows, columns : range
        Ranges of the output.
    kernel_rows, kernel_columns : range
        Ranges of the kernel within the input; empty where a window is wholly in the border.
    """

    rows: range
    columns: range
    kernel_rows: range
    kernel_columns: range

    @property
    def is_empty(self) -> bool:
        """Whether the windows contain no element of the input."""
        return not (self.kernel_rows and self.kernel_columns)


def border_classes(window: Window, size: tuple[int, int], rows: range, columns: range) -> list[BorderClass]:
    """Return the classes of some rows and columns of the output, for an input of ``size`` rows and columns.

    There are nine (corners, edges and the interior) where a window reaches no further into the border than it moves
    from one output to the next, and one where no window reaches into the border.
    """
    (vertical, horizontal) = (
        _axis_classes(window, axis, size[axis], outputs) for axis, outputs in enumerate((rows, columns))
    )
    return [
        BorderClass(outputs_down, outputs_across, down, across)
        for (outputs_down, down), (outputs_across, across) in itertools.product(vertical, horizontal)
    ]


def _axis_classes(window: Window, axis: int, size: int, outputs: range) -> list[tuple[range, range]]:
    """Return outputs along one axis with the same elements of the kernel inside, and these elements."""
    return [
        (range(members[0], members[-1] + 1), inside)
        for inside, group in itertools.groupby(outputs, lambda output: window.inside(axis, size, output))
        for members in [list(group)]
    ]


# Connections: the bytes of its window that each output tile uses, and the tiles that one command computes.
#
# A byte whose weights are zero in all outputs of a tile is not read. So a tile's steps are the fewest words that cover
# the bytes that it uses, whatever the zeros belong to: a channel, a block of channels, a tap, or the groups of a
# convolution. Neighbouring tiles with equal words share a command, and so do others where that costs less than separate
# commands.

Bool = npt.NDArray[np.bool_]
#: Most runs of equal tiles that may be merged into one command, unless all are.
_MOST_MERGED = 12
#: Several commands are considered only where one command for all tiles takes more than this many times the cycles that
#: the tiles need, as a few accidental zeros are not worth a search.
_WORTH = 1.02


@dataclass(frozen=True, eq=False)
class Run:
    """Neighbouring tiles that one command computes.

    Attributes
    ----------
    tiles : range
    source : int
        Offset of the first tile's first word from the layer's window, in bytes.
    pitch : int
        Distance of the words of neighbouring tiles, in bytes.
    starts : int64[steps]
        Offset of each word from the first word, ascending.
    """

    tiles: range
    source: int
    pitch: int
    starts: Addresses

    def from_tile(self, tile: int) -> int:
        """Return the offset of a tile's first word from the layer's window, in bytes."""
        return self.source + (tile - self.tiles.start) * self.pitch

    def without_pitch(self) -> list[Run]:
        """Return runs without a pitch, whose tiles read the same words."""
        if not self.pitch:
            return [self]
        return [Run(range(tile, tile + 1), self.from_tile(tile), 0, self.starts) for tile in self.tiles]


def plan_runs(
    offsets: Addresses, used: Bool, origins: Sequence[int], *, lanes: int, cost: Callable[[int, float], float]
) -> list[Run]:
    """Choose the words of every tile, and the tiles of every command, for the fewest cycles.

    Parameters
    ----------
    offsets : int64[elements]
        Offsets of the bytes of a window.
    used : bool[tiles, elements]
        Whether a tile needs each byte; a tile that needs none reads the first one.
    origins : sequence of int
        Offset of each tile's window from the layer's, in bytes.
    lanes : int
        Bytes of a word.
    cost : callable
        Function of a number of tiles and their steps that returns the cycles of a command; for no tiles, the cost of
        any command.

    Returns
    -------
    list of Run
        In the order of the tiles.
    """
    used = used.copy()
    used[~used.any(axis=1), 0] = True
    tiles = len(used)
    whole = _together(offsets, used, origins, range(tiles), lanes)

    def suffices(mean_steps: float) -> bool:
        """Return whether one command for all takes hardly more cycles than tiles with so many steps on average."""
        return whole is not None and cost(tiles, len(whole.starts)) <= _WORTH * cost(tiles, mean_steps)

    # Where all tiles use the same bytes, all have the same words; and no tile has fewer words than its used bytes fill.
    if whole is not None and ((used == used[0]).all() or suffices(np.count_nonzero(used) / lanes / tiles)):
        return [whole]
    alike = _alike(offsets, used, origins, lanes)
    if len(alike) == 1:
        return alike
    if whole is not None:
        gains = [cost(len(run.tiles), len(whole.starts)) - cost(len(run.tiles), len(run.starts)) for run in alike]
        steps = sum(len(run.tiles) * len(run.starts) for run in alike)
        if suffices(steps / tiles) or max(gains) <= cost(0, 0):
            return [whole]
    # The least cost up to the end of each run of equal tiles, and the commands with that cost.
    ways: list[tuple[float, list[Run]]] = [(0, [])]
    for end in range(1, len(alike) + 1):
        choices = []
        for start in _begins(end):
            part = range(alike[start].tiles.start, alike[end - 1].tiles.stop)
            run = alike[start] if start == end - 1 else _together(offsets, used, origins, part, lanes)
            if run is not None:
                before, runs = ways[start]
                choices.append((before + cost(len(part), len(run.starts)), [*runs, run]))
        ways.append(min(choices, key=lambda choice: choice[0]))
    return ways[-1][1]


def _begins(end: int) -> list[int]:
    """Return the first runs of possible merges up to ``end``: few runs, or all."""
    return sorted({0, *range(max(end - _MOST_MERGED, 0), end)}, reverse=True)


def _alike(offsets: Addresses, used: Bool, origins: Sequence[int], lanes: int) -> list[Run]:
    """Return the longest runs of tiles with equal words at equal distances from tile to tile."""
    patterns, which = np.unique(used, axis=0, return_inverse=True)
    words = [cover(offsets[pattern], lanes) for pattern in patterns]
    runs: list[Run] = []
    for tile, (pattern, origin) in enumerate(zip(which.reshape(-1), origins, strict=True)):
        source, starts = origin + int(words[pattern][0]), words[pattern] - words[pattern][0]
        if runs and np.array_equal(starts, runs[-1].starts):
            last = runs[-1]
            pitch = source - last.from_tile(tile - 1) if len(last.tiles) == 1 else last.pitch
            if pitch >= 0 and source == last.from_tile(tile - 1) + pitch:
                runs[-1] = Run(range(last.tiles.start, tile + 1), last.source, pitch, starts)
                continue
        runs.append(Run(range(tile, tile + 1), source, 0, starts))
    return runs


def _together(offsets: Addresses, used: Bool, origins: Sequence[int], tiles: range, lanes: int) -> Run | None:
    """Return tiles as one run with the words of all; None where the distances of their windows differ."""
    apart = {after - before for before, after in itertools.pairwise(origins[tiles.start : tiles.stop])}
    if len(apart) != 1 or (pitch := apart.pop()) < 0:
        return None
    starts = cover(offsets[used[tiles.start : tiles.stop].any(axis=0)], lanes)
    return Run(tiles, origins[tiles.start] + int(starts[0]), pitch, starts - starts[0])
