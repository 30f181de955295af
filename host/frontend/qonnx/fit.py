"""Fitting of scale and bias of the accelerator's requantisation to wanted codes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ....golden.numerics.requant import pack_parameters, requantise
from .thresholds import Wanted

# A line through numbers that rise or fall with a sum, as far as limits have not cut them off.

#: Share of the range at either end in which numbers count as cut off: more than equal ones differ by float32's
#: rounding.
_BESIDE = 2.0**-16
#: Numbers with a step of at least this share of the steepest one are not cut off.
_WHOLE = 0.99


@dataclass(frozen=True)
class Line:
    """The line ``slope * sum + at_zero``."""

    slope: float
    at_zero: float

    def departure(
        self, sums: npt.NDArray[np.int64], real: npt.NDArray[np.float64], limits: tuple[float, float]
    ) -> float:
        """Return the greatest distance of numbers from the line, where both are cut off at the limits and at the
        numbers' ends."""
        ends = max(limits[0], real.min()), min(limits[1], real.max())
        return float(np.abs(np.clip(self.slope * sums + self.at_zero, *ends) - np.clip(real, *ends)).max())


def find_line(sums: npt.NDArray[np.int64], real: npt.NDArray[np.float64]) -> Line:
    """Fit a line to the numbers that are not cut off, by least squares.

    Parameters
    ----------
    sums : int64[n]
        Ascending sums.
    real : float64[n]
        Numbers, computed in float32. Its rounding may be some per cent of a step from one sum to the next, or all of
        it, but is negligible against the whole range.
    """
    sums, real = _uncut(sums, real)
    middle, level = sums.mean(), real.mean()
    across = sums - middle
    square = across @ across
    slope = float(across @ (real - level) / square) if square else 0.0
    return Line(slope, float(level - slope * middle))


def _uncut(
    sums: npt.NDArray[np.int64], real: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the sums whose numbers are not cut off, and the numbers."""
    low, high = real.min(), real.max()
    margin = (high - low) * _BESIDE
    inside = np.flatnonzero((real > low + margin) & (real < high - margin))
    if len(inside) < 2:
        # Between Relu and limits one or two steps may be left. A step that is cut in part is less steep.
        slopes = np.abs(np.diff(real) / np.diff(sums))
        whole = np.flatnonzero(slopes >= slopes.max(initial=0) * _WHOLE)
        inside = np.union1d(whole, whole + 1) if len(whole) else np.array([0])
    return sums[inside], real[inside]


#: Offsets from the real bias that are tried.
NEIGHBOURS = (0, -1, 1)
#: A constant code gets a bias so large that sums of up to 2**19 do not change the code.
CONSTANT = 1 << 20
#: Bound of the magnitudes of a sum and a bias together, as the accelerator's have 32 bits.
_MOST = (1 << 31) - 1


@dataclass
class Affine:
    """A fit ``clip(rint(f32(factor * sum + bias) * multiplier) + zero point, low, high)``, for each channel.

    Attributes
    ----------
    factor, bias : int64[channels]
    multiplier : float32[channels]
    wrong : int64[channels]
        Greatest distance of a code from the wanted one.
    departure : float64[channels]
        Greatest distance of the numbers before rounding from a line, in codes.
    is_limited : bool
        Whether some code would be beyond the limits without the clip.
    """

    factor: npt.NDArray[np.int64]
    bias: npt.NDArray[np.int64]
    multiplier: npt.NDArray[np.float32]
    wrong: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    departure: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    is_limited: bool = False


def empty(channels: int) -> Affine:
    """Return the fit of channels whose codes are their sums."""
    bias, wrong = np.zeros((2, channels), np.int64)
    return Affine(np.ones(channels, np.int64), bias, np.ones(channels, np.float32), wrong, np.zeros(channels))


def fit_scaled(wanted: Wanted, zero_point: int, *, is_binary: bool = True) -> Affine:
    """Fit each channel, with the factor 1, or -1 where codes fall.

    Products that are not binary have the factor 0 where all codes are the same. Where their codes are not certain, they
    have the real scale and the nearest bias, whatever the codes.
    """
    fit = empty(wanted.codes.shape[1])
    limits = zero_point, wanted.low, wanted.high
    neighbours = NEIGHBOURS if is_binary or wanted.is_certain else ()
    for channel in range(len(fit.bias)):
        sums, codes, real = wanted.channel(channel)
        if (codes == codes[0]).all():
            step = CONSTANT if is_binary else 1
            found = int(is_binary), int(codes[0] - zero_point) * step, np.float32(1 / step)
        else:
            line = find_line(sums, real)
            fit.departure[channel] = line.departure(sums, real, (wanted.low - zero_point, wanted.high - zero_point))
            found = _scaled(sums, codes, line, limits, neighbours)
        if found is None:
            fit.wrong[channel] = _MOST
            continue
        fit.factor[channel], fit.bias[channel], fit.multiplier[channel] = found
        judge(fit, channel, fit.factor[channel] * sums + fit.bias[channel], codes, limits)
    return fit


def _scaled(
    sums: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int64],
    line: Line,
    limits: tuple[int, int, int],
    neighbours: Sequence[int],
) -> tuple[int, int, np.float32] | None:
    """Return factor, bias and multiplier that give the codes, if there are any, else the real ones, in 32 bits."""
    factor, slope = (1 if line.slope > 0 else -1), abs(line.slope)
    if abs(line.at_zero) >= slope * (_MOST - np.abs(sums).max()):
        return None
    real_bias = round(line.at_zero / slope)
    for neighbour in neighbours:
        found = find_multiplier(factor * sums + real_bias + neighbour, codes, slope, limits)
        if found is not None:
            return factor, real_bias + neighbour, found
    return factor, real_bias, np.float32(slope)


def judge(
    fit: Affine,
    channel: int,
    entering: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int64],
    limits: tuple[int, int, int],
) -> None:
    """Note the greatest distance of a channel's codes from the wanted ones, and whether limits make a difference."""
    found = _requantised(entering, fit.multiplier[channel], limits)
    fit.wrong[channel] = np.abs(found - codes).max()
    fit.is_limited |= bool((found != _requantised(entering, fit.multiplier[channel], (limits[0], -128, 127))).any())


def find_multiplier(
    entering: npt.NDArray[np.int64], codes: npt.NDArray[np.int64], slope: float, limits: tuple[int, int, int]
) -> np.float32 | None:
    """Return a multiplier that gives the codes, the real one if possible."""
    zero_point, low, high = limits
    number, entering_real = codes - zero_point, entering.astype(np.float64)
    with np.errstate(divide="ignore"):
        ends = np.stack([(number - 0.5) / entering_real, (number + 0.5) / entering_real])
    # For a code at a limit any larger magnitude is right, and for a sum of 0 any multiplier.
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


# Two layers give the wanted codes where no whole bias of one layer does.

#: Steps of a window, from the least code to the greatest.
STEPS = 255
_LARGEST = 127
_COPIES = (1, 2, 4, 8)


@dataclass
class WindowFit:
    """A fit by two layers: the first counts sums in windows of 256, the second gives their codes.

    Where the codes of a channel change over n sums, the number of those below a sum is

        sum of clip((factor * sum - least) / step - 255 * i, 0, 255) for i in range(parts)

    and each term is a channel of the first layer. There may be ``copies`` of each, so that the second layer's factors,
    which have 8 bits, add up to a finer one.

    Attributes
    ----------
    parts, copies : int
    step : int
        Difference of neighbouring sums.
    factor, least : int64[channels]
    second : Affine
        The fit of codes to the count.
    """

    parts: int
    copies: int
    step: int
    factor: npt.NDArray[np.int64]
    least: npt.NDArray[np.int64]
    second: Affine

    def first_biases(self) -> npt.NDArray[np.int64]:
        """Return the biases int64[channels, parts * copies] of the first layer, whose multiplier is that of one
        step."""
        below = STEPS * self.step * np.repeat(np.arange(self.parts), self.copies)
        return -self.least[:, None] - below

    def second_factors(self) -> npt.NDArray[np.int64]:
        """Return the factors int64[channels, parts * copies] of the second layer, at most 127."""
        share, rest = np.divmod(self.second.factor[:, None], self.copies)
        of_copies = share + (np.arange(self.copies) < rest)
        return np.tile(of_copies, self.parts)


def fit_windows(wanted: Wanted, zero_point: int) -> WindowFit:
    """Fit two layers, with as few channels between as possible."""
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
    return WindowFit(parts, copies, step, factor, least, second)


def _second(
    counts: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int64],
    line: Line,
    limits: tuple[int, int, int],
    copies: int,
) -> tuple[int, int, np.float32] | None:
    """Return a fit of the second layer, with a factor that makes the bias precise enough for every code."""
    if line.slope == 0 or (codes == codes[0]).all():
        return copies, (int(codes[0]) - limits[0]) * CONSTANT, np.float32(1 / CONSTANT)
    for factor, neighbour in itertools.product(range(1, _LARGEST * copies + 1), NEIGHBOURS):
        bias = round(factor * line.at_zero / line.slope) + neighbour
        found = find_multiplier(factor * counts + bias, codes, line.slope / factor, limits)
        if found is not None:
            return factor, bias, found
    return None
