"""Windows as words: where the bytes of a window lie, and the fewest words that cover them.

In NHWC a kernel row over neighbouring pixels is one run of bytes, and the fetch reads a word from any byte address. So
a window is a set of bytes, and its steps are the fewest words that cover the set: kernel width, pixels that a dilation
skips and rows that lie side by side need no rules of their own.
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


# Streams: how the words of depthwise windows side by side follow one another.


@dataclass(frozen=True)
class Stream:
    """How words of windows side by side follow one another.

    Attributes
    ----------
    window : Window
        Of the layer.
    taps : int
        Columns of the array that chain.
    along : int
        The axis that windows of an inner loop follow one another on: 1 for a row of windows, 0 for a column.
    results : int
        Windows of the layer, neighbours across the stream, whose results one window of the stream has.
    """

    window: Window
    taps: int
    along: int
    results: int = 1

    @cached_property
    def columns(self) -> int:
        """Image columns, or rows if ``along`` is 0, that a window takes in: as many as array columns are used."""
        return min(self.window.kernel[self.along], self.taps)

    @cached_property
    def advance(self) -> int:
        """Of these, how many the next window takes that this one does not."""
        images, left_over = divmod(self.window.stride[self.along], self.window.dilation[self.along])
        return self.columns if left_over else min(images, self.columns)

    @cached_property
    def turns(self) -> int:
        """Image columns of which an array column takes words in turn."""
        return -(-self.window.kernel[self.along] // self.taps)

    @cached_property
    def across(self) -> tuple[int, ...]:
        """Where in an image column, in rows from the first one on, its words lie: what any of the results needs."""
        return tuple(sorted({self.row(result, element) for result in range(self.results) for element in self.elements}))

    @property
    def elements(self) -> range:
        """The elements of the kernel across the stream."""
        return range(self.window.kernel[1 - self.along])

    def row(self, result: int, element: int) -> int:
        """The row of an image column that a result takes with an element of the kernel."""
        axis = 1 - self.along
        return result * self.window.stride[axis] + element * self.window.dilation[axis]

    def nearest(self, results: int) -> tuple[int, ...]:
        """As :attr:`across`, for a window of which only the first results are wanted: no row after their last."""
        last = self.row(results - 1, self.elements[-1])
        return tuple(min(row, last) for row in self.across)

    @property
    def rows(self) -> int:
        """Words of an image column: the command's `rows`."""
        return self.turns * len(self.across)

    @property
    def steps(self) -> int:
        """Words of a window that begins an inner loop."""
        return self.columns * self.rows

    @property
    def skip(self) -> int:
        """Words that later windows need not read."""
        return (self.columns - self.advance) * self.rows

    def cycles(self, sizes: tuple[int, int], groups: int) -> int:
        """Cycles for an output of this many rows and columns, of which each result takes ``groups`` cycles."""
        inner, outer = sizes[self.along], sizes[1 - self.along]
        full, rest = divmod(outer, self.results)
        return full * self._row_cycles(inner, groups * self.results) + (rest > 0) * self._row_cycles(
            inner, groups * rest
        )

    def _row_cycles(self, inner: int, groups: int) -> int:
        return max(self.steps, groups) + (inner - 1) * max(self.advance * self.rows, groups)


# Border classes: parts of a map whose windows take the same elements, where they need not count a border.


@dataclass(frozen=True, slots=True)
class BorderClass:
    """Neighbouring windows that lie in the input with the same elements of the kernel.

    Attributes
    ----------
    rows, columns : range
        Of the output.
    kernel_rows, kernel_columns : range
        Of the kernel: those that lie in the input. Empty where a window is wholly in the border.
    """

    rows: range
    columns: range
    kernel_rows: range
    kernel_columns: range

    @property
    def is_empty(self) -> bool:
        """Whether the windows have no element of the input."""
        return not (self.kernel_rows and self.kernel_columns)


def border_classes(window: Window, size: tuple[int, int], rows: range, columns: range) -> list[BorderClass]:
    """The classes of some rows and columns of the output, for an input of ``size`` rows and columns.

    Nine, where a window reaches no further into the border than it moves from one output to the next: corners, edges
    and the interior. One, where no window reaches into the border.
    """
    (vertical, horizontal) = (
        _axis_classes(window, axis, size[axis], outputs) for axis, outputs in enumerate((rows, columns))
    )
    return [
        BorderClass(outputs_down, outputs_across, down, across)
        for (outputs_down, down), (outputs_across, across) in itertools.product(vertical, horizontal)
    ]


def _axis_classes(window: Window, axis: int, size: int, outputs: range) -> list[tuple[range, range]]:
    """Outputs along one axis with the same elements of the kernel inside, and these elements."""
    return [
        (range(members[0], members[-1] + 1), inside)
        for inside, group in itertools.groupby(outputs, lambda output: window.inside(axis, size, output))
        for members in [list(group)]
    ]


# Connections: which bytes of its window each output tile uses, and which tiles one command computes.
#
# A byte whose weights are zero in all outputs of a tile is not read. So a tile's steps are the fewest words that cover
# the bytes that it uses, whatever made the zeros: a channel, a block of channels, a tap, or the groups of a
# convolution. Neighbours whose words lie alike share a command; so do others where that costs less than a command of
# their own.

Bool = npt.NDArray[np.bool_]
#: Runs of alike tiles that are looked at together, to find those which one command computes.
_MOST_MERGED = 12
#: One command for all tiles takes this many times the cycles that they need, at least, before others are looked for: a
#: few zeros by chance are not worth them.
_WORTH = 1.02


@dataclass(frozen=True, eq=False)
class Run:
    """Neighbouring tiles that one command computes.

    Attributes
    ----------
    tiles : range
    source : int
        Bytes from the layer's window to the first word of the first tile.
    pitch : int
        Bytes from the words of a tile to those of the next.
    starts : int64[steps]
        First byte of each word from the first word on, ascending.
    """

    tiles: range
    source: int
    pitch: int
    starts: Addresses

    def from_tile(self, tile: int) -> int:
        """Bytes from the layer's window to the first word of a tile."""
        return self.source + (tile - self.tiles.start) * self.pitch

    def without_pitch(self) -> list[Run]:
        """The same as runs whose tiles read the same words."""
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
        Where the bytes of a window lie.
    used : bool[tiles, elements]
        Whether a tile needs them; of a tile that needs none the first one counts.
    origins : sequence of int
        Bytes from the layer's window to that of each tile.
    lanes : int
        Bytes of a word.
    cost : callable
        Cycles of a command for so many tiles, and steps of each; for none, what every command costs.

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
        """Whether one command for all takes hardly more than the tiles would that have so many steps on average."""
        return whole is not None and cost(tiles, len(whole.starts)) <= _WORTH * cost(tiles, mean_steps)

    # Where all tiles use the same there are no other words, and none are fewer than those used from end to end.
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
    # The cheapest way to the end of each run of alike tiles, and the last command on it.
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
    """The first runs of what may be merged up to ``end``: few, and all."""
    return sorted({0, *range(max(end - _MOST_MERGED, 0), end)}, reverse=True)


def _alike(offsets: Addresses, used: Bool, origins: Sequence[int], lanes: int) -> list[Run]:
    """The longest runs of tiles whose words lie alike, each as far from those of the tile before."""
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
    """Tiles with words for all of them; None where their windows are not equally far apart."""
    apart = {after - before for before, after in itertools.pairwise(origins[tiles.start : tiles.stop])}
    if len(apart) != 1 or (pitch := apart.pop()) < 0:
        return None
    starts = cover(offsets[used[tiles.start : tiles.stop].any(axis=0)], lanes)
    return Run(tiles, origins[tiles.start] + int(starts[0]), pitch, starts - starts[0])
