"""Runs of channels that are copied together, and about what copies cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ..channels import Selection
from ..tensor import Shape

Channels = npt.NDArray[np.int64]

#: Channels of the output from one of a run to the next that are tried.
SPREADS = (1, 2, 3, 4, 8)
#: What a command costs beside its steps, and bytes that a step copies: about, in cycles, to choose by.
COMMAND, _BYTES = 30, 8


def channel_runs(targets: Channels, sources: Channels) -> list[tuple[range, range]]:
    """Channels that are equally far apart before and after, in the runs that are copied in the fewest steps.

    Parameters
    ----------
    targets : int64[channels]
        Of the output, ascending.
    sources : int64[channels]
        Which of the input each of them is.

    Returns
    -------
    list of (range, range)
        Channels of the output, and those of the input, which may be one for all.
    """
    ways = [[*_runs(targets, sources, spread)] for spread in SPREADS]
    return min(ways, key=lambda runs: sum(_cost(*run) for run in runs))


def cost_of(pieces: Sequence[Selection], shape: Shape) -> int:
    """About how many cycles pieces take, of an output of a shape."""
    cost = 0
    for part in pieces:
        rows, columns = part.within(range(shape[0]), range(shape[1]))
        is_run = part.channels == 1 or (part.spread, part.vectors[2]) == (1, (0, 0, 1))
        cost += COMMAND + len(rows) * len(columns) * words(part.channels, is_run=is_run)
    return cost


def words(channels: int, *, is_run: bool) -> int:
    """Steps for a pixel: channels that lie side by side before and after are copied together."""
    return -(-channels // _BYTES) if is_run else channels


def _cost(targets: range, sources: range) -> int:
    is_run = targets.step == 1 and (sources.step == 1 or len(targets) == 1)
    return COMMAND + words(len(targets), is_run=is_run)


def _runs(targets: Channels, sources: Channels, spread: int) -> Iterator[tuple[range, range]]:
    for first in range(spread):
        own = targets % spread == first
        places, taken = targets[own].tolist(), sources[own].tolist()
        start = 0
        while start < len(places):
            step = taken[start + 1] - taken[start] if start + 1 < len(taken) else 1
            end = start + 1
            while end < len(places) and step > 0 and _follow(places, taken, end) == (spread, step):
                end += 1
            count = end - start
            step = step if count > 1 else 1
            yield (
                range(places[start], places[start] + spread * count, spread),
                range(taken[start], taken[start] + step * count, step),
            )
            start = end


def _follow(places: list[int], taken: list[int], at: int) -> tuple[int, int]:
    return places[at] - places[at - 1], taken[at] - taken[at - 1]
