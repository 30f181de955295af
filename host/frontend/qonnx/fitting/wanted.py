"""The codes that a file gives for sums of a product: for all of them, or for as many as are evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...fragments.fragments import MAX_POOLING, label
from ...reading.errors import ModelError
from ..reading.chain import POWERS, Chain, Evaluator, require_monotone
from ..reading.network import Network
from ..reading.product import Product
from ..reading.quantisers import Quantiser
from .thresholds import Way

#: Sums of integers that are evaluated for one layer, at first, those of all channels together.
_MOST = 1 << 19
#: Of what a channel's numbers rise or fall by, a step between sums is at most this part.
_STEP = 0.25
#: Parts of a step that is larger, and how often it is parted: more often than any two sums are apart.
_PARTS, _TIMES = 4, 16
#: Channels whose numbers change by less, in codes, need no more sums.
_STILL = 2.0**-6


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


def evaluate_sums(
    network: Network, quantiser: Quantiser, chain: Chain, product: Product, scale: np.float32, place: str
) -> Wanted:
    """Evaluate a chain on the sums of a product whose results are quantised.

    Raises
    ------
    ModelError
        If float32 may decide on a code of binary products, or pooling reads what falls as its codes rise.
    """
    evaluator = Evaluator(network, chain, quantiser, product.outputs)
    sums, (low, high) = product.sums(), product.limits()
    size = max(_MOST // product.outputs, 2)
    is_whole = product.is_exclusive_or or len(sums) <= size

    def real(part: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return evaluator.entering(product.results(part).astype(np.float32)) / np.float64(scale)

    if not is_whole:
        # The ends of each channel too: codes of sums between lie between theirs.
        sums = np.unique(np.concatenate([np.linspace(sums[0], sums[-1], size).astype(np.int64), low, high]))
        sums = _refined(sums, (low, high), (quantiser.least, quantiser.greatest), real)
    inside = (sums[:, None] >= low) & (sums[:, None] <= high)
    results, errors = product.results(sums), product.errors(sums)
    values, pooled = evaluator.run(results.astype(np.float32))
    codes = _codes(values, quantiser, scale)
    if product.is_exclusive_or and errors.any():
        require_monotone(network, chain, place)
        for side in (-1, 1):
            end = np.nextafter((results + side * errors).astype(np.float32), np.float32(side * np.inf))
            other = (_codes(evaluator.run(end)[0], quantiser, scale) != codes) & inside
            if other.any():
                at, channel = (int(index[0]) for index in np.nonzero(other))
                raise ModelError(
                    f"{place}: channel {channel} must round farther from a tie than float32 may err, not at the sum "
                    f"{sums[at]}: other orders of additions give other codes; {POWERS}"
                )
    wanted = Wanted(sums, inside, codes, real(sums), is_certain=is_whole and not errors.any())
    _check_pooling(chain, wanted, pooled, place)
    return wanted


def _refined(
    sums: npt.NDArray[np.int64],
    ends: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    limits: tuple[int, int],
    real: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float64]],
) -> npt.NDArray[np.int64]:
    """More sums where numbers change much from one to the next: operators in front may cut off all the others."""
    for _ in range(_TIMES):
        numbers = np.clip(real(sums), *limits)
        inside = (sums[:-1, None] >= ends[0]) & (sums[1:, None] <= ends[1])
        steps = np.where(inside, np.abs(np.diff(numbers, axis=0)), 0)
        whole = np.where(steps.sum(axis=0) > _STILL, steps.sum(axis=0), np.inf)
        gaps = np.flatnonzero((steps > _STEP * whole).any(axis=1) & (np.diff(sums) > 1))
        if not len(gaps):
            break
        parts = np.linspace(sums[gaps], sums[gaps + 1], _PARTS + 1).astype(np.int64)
        sums = np.union1d(sums, parts)
    return sums


def _codes(values: npt.NDArray[np.float32], quantiser: Quantiser, scale: np.float32) -> npt.NDArray[np.int64]:
    """Codes less the zero point."""
    return np.rint(values / scale).astype(np.int64) + quantiser.zero_point - quantiser.shift


def _check_pooling(chain: Chain, wanted: Wanted, pooled: list[np.ndarray], place: str) -> None:
    """Codes may be pooled instead of what pooling reads where both go the same way with the sum."""
    for node, read in zip((node for node in chain.steps if node.op_type in MAX_POOLING), pooled, strict=True):
        way = np.sign(np.diff(read, axis=0)).astype(np.int64)
        against = (way * np.sign(np.diff(wanted.codes, axis=0)) == Way.FALLING).any(axis=0)
        if against.any():
            raise ModelError(
                f"{place}: {label(node)} must pool what rises with its codes, not channel {int(against.argmax())}, "
                "which falls; put the pooling after the batch normalisation"
            )
