"""Scale and bias in two layers, where no whole bias of one layer gives the wanted codes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .fit import CONSTANT, NEIGHBOURS, Affine, empty, find_multiplier, judge
from .line import Line, find_line
from .wanted import Wanted

#: Steps of a window: from the least code to the greatest.
STEPS = 255
_LARGEST = 127
_COPIES = (1, 2, 4, 8)


@dataclass
class Windows:
    """Two layers in a row: the first counts sums in windows of 256, the second gives their codes.

    Where the codes of a channel change over n sums, the count of those that are below the sum is

        sum of clip((factor * sum - least) / step - 255 * i, 0, 255) for i in range(parts)

    and each term is a channel of the first layer. There may be ``copies`` of each, so that the second layer's factors,
    which have 8 bits, add up to a finer one.

    Attributes
    ----------
    parts, copies : int
    step : int
        From one sum to the next.
    factor, least : int64[channels]
    second : Affine
        Of the count.
    """

    parts: int
    copies: int
    step: int
    factor: npt.NDArray[np.int64]
    least: npt.NDArray[np.int64]
    second: Affine

    def first_biases(self) -> npt.NDArray[np.int64]:
        """int64[channels, parts * copies]: of the first layer, whose multiplier is that of one step."""
        below = STEPS * self.step * np.repeat(np.arange(self.parts), self.copies)
        return -self.least[:, None] - below

    def second_factors(self) -> npt.NDArray[np.int64]:
        """int64[channels, parts * copies]: of the second layer, at most 127."""
        share, rest = np.divmod(self.second.factor[:, None], self.copies)
        of_copies = share + (np.arange(self.copies) < rest)
        return np.tile(of_copies, self.parts)


def fit_windows(wanted: Wanted, zero_point: int) -> Windows:
    """Fit two layers, with as few channels between as will do."""
    channels, step = wanted.codes.shape[1], int(np.diff(wanted.sums).min())
    factor, least, ways = (np.zeros(channels, np.int64) for _ in range(3))
    lines, counts, number = [], [], []
    for channel in range(channels):
        sums, codes, real = wanted.channel(channel)
        line = find_line(sums, real)
        factor[channel] = 1 if line.slope >= 0 else -1
        changes = np.flatnonzero(codes[1:] != codes[:-1])
        begin, end = (changes[0], changes[-1] + 1) if len(changes) else (0, 0)
        least[channel] = (factor[channel] * sums[[begin, end]]).min()
        ways[channel] = (factor[channel] * sums[[begin, end]]).max() - least[channel]
        counts.append((factor[channel] * sums - least[channel]) // step)
        slope = abs(line.slope)
        lines.append(Line(slope * step, line.at_zero + slope * least[channel]))
        number.append(codes)
    parts = max(-(-int(ways.max()) // (step * STEPS)), 1)
    counts = [np.clip(count, 0, parts * STEPS) for count in counts]
    limits, second = (zero_point, wanted.low, wanted.high), empty(channels)
    second.wrong[:] = 1
    for copies in _COPIES:
        for channel in np.flatnonzero(second.wrong):
            found = _second(counts[channel], number[channel], lines[channel], limits, copies)
            if found is not None:
                second.factor[channel], second.bias[channel], second.multiplier[channel] = found
                entering = found[0] * counts[channel] + found[1]
                judge(second, channel, entering, number[channel], limits)
        if not second.wrong.any():
            break
    return Windows(parts, copies, step, factor, least, second)


def _second(
    counts: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int64],
    line: Line,
    limits: tuple[int, int, int],
    copies: int,
) -> tuple[int, int, np.float32] | None:
    """A factor whose fraction of the bias is near enough to the real one for every code."""
    if line.slope == 0 or (codes == codes[0]).all():
        return copies, (int(codes[0]) - limits[0]) * CONSTANT, np.float32(1 / CONSTANT)
    for factor, neighbour in itertools.product(range(1, _LARGEST * copies + 1), NEIGHBOURS):
        bias = round(factor * line.at_zero / line.slope) + neighbour
        found = find_multiplier(factor * counts + bias, codes, line.slope / factor, limits)
        if found is not None:
            return factor, bias, found
    return None
