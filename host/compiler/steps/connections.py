"""Connections: which bytes of its window each output tile uses, and which tiles one command computes.

A byte whose weights are zero in all outputs of a tile is not read. So a tile's steps are the fewest words that cover
the bytes that it uses, whatever made the zeros: a channel, a block of channels, a tap, or the groups of a convolution.
Neighbours whose words lie alike share a command; so do others where that costs less than a command of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..data.storage import Addresses
from .windows import cover

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
