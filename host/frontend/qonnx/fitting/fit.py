"""Scale and bias: which numbers of the accelerator's requantisation give wanted codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .....golden.numerics.requant import pack_parameters, requantise
from .line import Line, find_line
from .wanted import Wanted

#: Biases that are tried around the real one.
NEIGHBOURS = (0, -1, 1)
#: A constant code is a bias that sums of up to 2**19 do not change.
CONSTANT = 1 << 20
#: Magnitudes of sums and biases together lie below it: the accelerator's have 32 bits.
_MOST = (1 << 31) - 1


@dataclass
class Affine:
    """``clip(rint(f32(factor * sum + bias) * multiplier) + zero point, low, high)``, for each channel.

    Attributes
    ----------
    factor, bias : int64[channels]
    multiplier : float32[channels]
    wrong : int64[channels]
        The farthest that a code is from the wanted one.
    departure : float64[channels]
        How far what is rounded is from a line, at most, in codes.
    is_limited : bool
        Whether some code would lie beyond the limits, were they not kept.
    """

    factor: npt.NDArray[np.int64]
    bias: npt.NDArray[np.int64]
    multiplier: npt.NDArray[np.float32]
    wrong: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    departure: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    is_limited: bool = False


def empty(channels: int) -> Affine:
    """Of channels whose codes are their sums."""
    bias, wrong = np.zeros((2, channels), np.int64)
    return Affine(np.ones(channels, np.int64), bias, np.ones(channels, np.float32), wrong, np.zeros(channels))


def fit_scaled(wanted: Wanted, zero_point: int, *, is_binary: bool = True) -> Affine:
    """Fit each channel: with the factor 1, or -1 where codes fall.

    Products that are not binary have the factor 0 where all codes are the same. Where their codes are not certain, they
    have the real scale and the next bias, whatever the codes.
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
    """Factor, bias and multiplier: those that give the codes, if some do, else the real ones, in 32 bits."""
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
    """How far the codes of a channel are from the wanted ones, and whether limits make a difference."""
    found = _requantised(entering, fit.multiplier[channel], limits)
    fit.wrong[channel] = np.abs(found - codes).max()
    fit.is_limited |= bool((found != _requantised(entering, fit.multiplier[channel], (limits[0], -128, 127))).any())


def find_multiplier(
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
