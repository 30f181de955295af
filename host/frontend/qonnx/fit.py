"""Scale and bias: which numbers of the accelerator's requantisation give wanted codes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ....golden.requant import pack_parameters, requantise

#: Biases that are tried around the real one.
_NEIGHBOURS = (0, -1, 1)
#: A constant code is a bias that sums of up to 2**19 do not change.
_CONSTANT = 1 << 20
#: Steps of a window: from the least code to the greatest.
STEPS = 255
_LARGEST = 127
_COPIES = (1, 2, 4, 8)


@dataclass
class Wanted:
    """Codes for sums.

    Attributes
    ----------
    sums : int64[n]
        Rising.
    inside : bool[n, channels]
        Whether a channel has the sum.
    codes : int64[n, channels]
    real : float64[n, channels]
        What is rounded, before the zero point is added and limits are kept.
    is_certain : bool
        Whether these are all sums, and their codes those of any order of additions.
    """

    sums: npt.NDArray[np.int64]
    inside: npt.NDArray[np.bool_]
    codes: npt.NDArray[np.int64]
    real: npt.NDArray[np.float64]
    is_certain: bool = True

    @property
    def low(self) -> int:
        """The least code of all."""
        return int(self.codes[self.inside].min())

    @property
    def high(self) -> int:
        """The greatest code of all."""
        return int(self.codes[self.inside].max())

    def channel(self, at: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Sums, codes and real numbers of a channel."""
        own = self.inside[:, at]
        return self.sums[own], self.codes[own, at], self.real[own, at]


@dataclass
class Affine:
    """``clip(rint(f32(factor * sum + bias) * multiplier) + zero point, low, high)``, for each channel.

    Attributes
    ----------
    factor, bias : int64[channels]
    multiplier : float32[channels]
    wrong : int64[channels]
        The farthest that a code is from the wanted one.
    is_limited : bool
        Whether some code would lie beyond the limits, were they not kept.
    """

    factor: npt.NDArray[np.int64]
    bias: npt.NDArray[np.int64]
    multiplier: npt.NDArray[np.float32]
    wrong: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    is_limited: bool = False


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


def _empty(channels: int) -> Affine:
    bias, wrong = np.zeros((2, channels), np.int64)
    return Affine(np.ones(channels, np.int64), bias, np.ones(channels, np.float32), wrong)


def fit_scaled(wanted: Wanted, zero_point: int, *, nearest: bool = False) -> Affine:
    """Fit each channel: with the factor 1, or -1 where codes fall.

    ``nearest`` takes the real scale and the next bias.
    """
    fit = _empty(wanted.codes.shape[1])
    limits = zero_point, wanted.low, wanted.high
    for channel in range(len(fit.bias)):
        sums, codes, real = wanted.channel(channel)
        slope, at_zero = _line(sums, real)
        if slope == 0 or (codes == codes[0]).all():
            fit.bias[channel], fit.multiplier[channel] = (codes[0] - zero_point) * _CONSTANT, 1 / _CONSTANT
        else:
            factor = 1 if slope > 0 else -1
            bias = np.rint(at_zero / abs(slope)).astype(np.int64)
            neighbours = _NEIGHBOURS[:1] if nearest else _NEIGHBOURS
            found = None
            for neighbour in neighbours:
                found = _multiplier(factor * sums + bias + neighbour, codes, abs(slope), limits)
                if found is not None:
                    bias += neighbour
                    break
            fit.factor[channel], fit.bias[channel] = factor, bias
            fit.multiplier[channel] = np.float32(abs(slope)) if found is None else found
        _judge(fit, channel, fit.factor[channel] * sums + fit.bias[channel], codes, limits)
    return fit


def _judge(
    fit: Affine,
    channel: int,
    entering: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int64],
    limits: tuple[int, int, int],
) -> None:
    """How far the codes of a channel are from the wanted ones, and whether limits make a difference."""
    found = _requantised(entering, fit.multiplier[channel], limits)
    fit.wrong[channel] = np.abs(found - codes).max()
    fit.is_limited |= bool((found != _requantised(entering, fit.multiplier[channel], (limits[0], -128, 127))).any())


def fit_windows(wanted: Wanted, zero_point: int) -> Windows:
    """Fit two layers, with as few channels between as will do."""
    channels, step = wanted.codes.shape[1], int(np.diff(wanted.sums).min())
    factor, least, ways = (np.zeros(channels, np.int64) for _ in range(3))
    lines, counts, number = [], [], []
    for channel in range(channels):
        sums, codes, real = wanted.channel(channel)
        slope, at_zero = _line(sums, real)
        factor[channel] = 1 if slope >= 0 else -1
        changes = np.flatnonzero(codes[1:] != codes[:-1])
        begin, end = (changes[0], changes[-1] + 1) if len(changes) else (0, 0)
        least[channel] = (factor[channel] * sums[[begin, end]]).min()
        ways[channel] = (factor[channel] * sums[[begin, end]]).max() - least[channel]
        counts.append((factor[channel] * sums - least[channel]) // step)
        lines.append((abs(slope) * step, at_zero + abs(slope) * least[channel]))
        number.append(codes)
    parts = max(-(-int(ways.max()) // (step * STEPS)), 1)
    counts = [np.clip(count, 0, parts * STEPS) for count in counts]
    limits, second = (zero_point, wanted.low, wanted.high), _empty(channels)
    second.wrong[:] = 1
    for copies in _COPIES:
        for channel in np.flatnonzero(second.wrong):
            found = _second(counts[channel], number[channel], lines[channel], limits, copies)
            if found is not None:
                second.factor[channel], second.bias[channel], second.multiplier[channel] = found
                entering = found[0] * counts[channel] + found[1]
                _judge(second, channel, entering, number[channel], limits)
        if not second.wrong.any():
            break
    return Windows(parts, copies, step, factor, least, second)


def _second(
    counts: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int64],
    line: tuple[float, float],
    limits: tuple[int, int, int],
    copies: int,
) -> tuple[int, int, np.float32] | None:
    """A factor whose fraction of the bias is near enough to the real one for every code."""
    slope, at_zero = line
    if slope == 0 or (codes == codes[0]).all():
        return copies, (int(codes[0]) - limits[0]) * _CONSTANT, np.float32(1 / _CONSTANT)
    for factor, neighbour in itertools.product(range(1, _LARGEST * copies + 1), _NEIGHBOURS):
        bias = round(factor * at_zero / slope) + neighbour
        found = _multiplier(factor * counts + bias, codes, slope / factor, limits)
        if found is not None:
            return factor, bias, found
    return None


def _line(sums: npt.NDArray[np.int64], real: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Slope, and value at the sum 0, where the real numbers change: elsewhere Relu has cut them."""
    slopes = np.diff(real) / np.diff(sums)
    steepest = np.abs(slopes).max(initial=0)
    if steepest == 0:
        return 0.0, float(real[0])
    # A step that is cut in part is less steep; float32 makes the others differ a little.
    whole = np.flatnonzero(np.abs(slopes) > steepest * 0.99)
    begin, end = whole[0], whole[-1] + 1
    slope = (real[end] - real[begin]) / (sums[end] - sums[begin])
    return float(slope), float(real[begin] - slope * sums[begin])


def _multiplier(
    entering: npt.NDArray[np.int64], codes: npt.NDArray[np.int64], slope: float, limits: tuple[int, int, int]
) -> np.float32 | None:
    """A multiplier that gives the codes, the real one if it does."""
    zero_point, low, high = limits
    number, entering_real = codes - zero_point, entering.astype(np.float64)
    with np.errstate(divide="ignore"):
        ends = np.stack([(number - 0.5) / entering_real, (number + 0.5) / entering_real])
    # Beyond a limit any larger magnitude will do, and at 0 any multiplier.
    cut = np.where(entering >= 0, codes == high, codes == low), np.where(entering >= 0, codes == low, codes == high)
    below = np.where((entering == 0) | cut[1], -np.inf, ends.min(axis=0)).max()
    above = np.where((entering == 0) | cut[0], np.inf, ends.max(axis=0)).min()
    if not below <= above or not np.isfinite(below):
        candidates = [slope]
    else:
        candidates = [slope, (below + min(above, 2 * max(below, slope))) / 2]
    for candidate in map(np.float32, candidates):
        if candidate > 0 and (_requantised(entering, candidate, limits) == codes).all():
            return candidate
    return None


def _requantised(
    entering: npt.NDArray[np.int64], multiplier: np.float32, limits: tuple[int, int, int]
) -> npt.NDArray[np.int64]:
    parameters = pack_parameters(np.zeros(1, np.int32), np.array([multiplier], np.float32))
    return requantise(entering.astype(np.int32)[:, None], parameters, *limits)[:, 0].astype(np.int64)
