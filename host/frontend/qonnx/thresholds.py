"""Thresholds: what a chain that ends in a sign makes of every sum of a product."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ..fragments import MAX_POOLING, label
from ..source import ModelError
from .chain import POWERS, Chain, Evaluator, require_monotone
from .network import Network, Quantiser
from .products import Product

#: Decisions of one layer, at most: half a minute.
_MOST = 1 << 30
_AT_ONCE = 1 << 22


class Way(enum.IntEnum):
    """How a function of the sum goes."""

    FALLING = -1
    CONSTANT = 0
    RISING = 1


@dataclass(frozen=True)
class Thresholds:
    """Decisions of the output channels: +1 where the sum is at least, or at most, a threshold.

    Attributes
    ----------
    way : Way[channels]
    threshold : int64[channels]
        The least sum that gives +1 where the way rises, the greatest where it falls; else 0.
    always : bool[channels]
        The decision of a channel that is constant.
    pooled : list of Way[channels]
        How what each pooling reads goes.
    """

    way: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.int64]
    always: npt.NDArray[np.bool_]
    pooled: list[npt.NDArray[np.int64]]

    def takes_least(self, place: str, pools: Sequence[NodeProto]) -> npt.NDArray[np.bool_]:
        """The channels whose pooling gives the least of the signs instead of the greatest: bool[channels].

        A pooling takes the greatest of what it reads. Where that and the decision go the same way with the sum, the
        greatest sign comes of it, else the least.

        Raises
        ------
        ModelError
            If two poolings differ in this.
        """
        least = np.zeros(len(self.way), bool)
        if not pools:
            return least
        against = [(way != self.way) & (self.way != Way.CONSTANT) for way in self.pooled]
        for node, other in zip(pools[1:], against[1:], strict=True):
            if (other != against[0]).any():
                channel = int((other != against[0]).argmax())
                raise ModelError(
                    f"{place}: {label(node)} must pool what goes the same way with the sum as {label(pools[0])} does, "
                    f"not channel {channel} the other way; put both after the batch normalisation"
                )
        return against[0]


#: For sums int64[n], results and what the poolings read: float32[n, channels], at the result and at both ends of where
#: float32 may lie.
Evaluate = Callable[[npt.NDArray[np.int64]], list[tuple[np.ndarray, list[np.ndarray]]]]


def find_thresholds(
    place: str,
    sums: npt.NDArray[np.int64],
    limits: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    evaluate: Evaluate,
) -> Thresholds:
    """Evaluate a chain on every sum, and find the threshold of each channel.

    Parameters
    ----------
    place : str
        For messages.
    sums : int64[n]
        Rising.
    limits : int64[channels], int64[channels]
        The least and the greatest sum of each channel.
    evaluate : callable

    Raises
    ------
    ModelError
        If a sum lies within the error of float32 of a decision, or decisions change more than once.
    """
    channels = len(limits[0])
    if len(sums) * channels > _MOST:
        raise ModelError(
            f"{place}: the sums of the product in front must have at most {_MOST:,} values in all channels, not "
            f"{len(sums) * channels:,}; give it fewer inputs, or bits"
        )
    changes, pooled, before = _Changes(place, channels), [], None
    size = max(_AT_ONCE // channels, 2)
    for start in range(0, len(sums), size):
        part = sums[start : start + size]
        inside = (part[:, None] >= limits[0]) & (part[:, None] <= limits[1])
        (result, read), *ends = evaluate(part)
        decision = result > 0
        for other, _ in ends:
            _check_certain(place, part, inside & ((other > 0) != decision))
        changes.follow(part, decision, inside)
        ahead = read if before is None else [np.concatenate(pair) for pair in zip(before, read, strict=True)]
        pooled.append([_directions(values) for values in ahead])
        before = [values[-1:] for values in read]
    return changes.thresholds([_joined(place, parts) for parts in zip(*pooled, strict=True)])


class _Changes:
    """Where the decisions of each channel change, as sums rise: at one sum at most."""

    def __init__(self, place: str, channels: int):
        self._place = place
        self._before: tuple[int, npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None = None
        self._last = np.zeros(channels, bool)
        self._way, self._threshold, self._changed_at = np.zeros((3, channels), np.int64)

    def follow(
        self, sums: npt.NDArray[np.int64], decisions: npt.NDArray[np.bool_], inside: npt.NDArray[np.bool_]
    ) -> None:
        """Go on with further sums: decisions bool[sums, channels], which count where a channel has the sum."""
        if self._before is not None:
            at, decided, reached = self._before
            sums = np.concatenate([[at], sums])
            decisions, inside = np.vstack([decided, decisions]), np.vstack([reached, inside])
        self._before = int(sums[-1]), decisions[-1], inside[-1]
        self._last = np.where(inside.any(axis=0), _last_of(decisions, inside), self._last)
        changed = (decisions[1:] != decisions[:-1]) & inside[1:] & inside[:-1]
        for channel in np.flatnonzero(changed.any(axis=0)):
            steps = np.flatnonzero(changed[:, channel])
            if self._way[channel] or len(steps) > 1:
                first = [self._changed_at[channel]] if self._way[channel] else []
                shown = ", ".join(map(str, [*first, *sums[steps + 1]][:2]))
                raise ModelError(
                    f"{self._place}: channel {channel} must change its sign at one sum at most, not at {shown}: that "
                    "is no threshold; keep to operators that rise or fall in front of it"
                )
            rises = bool(decisions[steps[0] + 1, channel])
            self._way[channel] = Way.RISING if rises else Way.FALLING
            self._threshold[channel] = sums[steps[0] + rises]
            self._changed_at[channel] = sums[steps[0] + 1]

    def thresholds(self, pooled: list[npt.NDArray[np.int64]]) -> Thresholds:
        """What was found; the last decision of a channel without a change is its constant."""
        return Thresholds(self._way, self._threshold, self._last, pooled)


def _last_of(decisions: npt.NDArray[np.bool_], inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The last decision of each channel that counts."""
    at = len(inside) - 1 - inside[::-1].argmax(axis=0)
    return decisions[at, np.arange(inside.shape[1])]


def _check_certain(place: str, sums: npt.NDArray[np.int64], uncertain: npt.NDArray[np.bool_]) -> None:
    if uncertain.any():
        at, channel = (int(index[0]) for index in np.nonzero(uncertain))
        raise ModelError(
            f"{place}: channel {channel} must decide farther from a sum than float32 may err, not at the sum "
            f"{sums[at]}: other orders of additions give other signs; {POWERS}"
        )


def _directions(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether values of each channel rise, and whether they fall, anywhere."""
    change = np.diff(values, axis=0)
    return (change > 0).any(axis=0), (change < 0).any(axis=0)


def _joined(place: str, parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> npt.NDArray[np.int64]:
    rises, falls = (np.any(arrays, axis=0) for arrays in zip(*parts, strict=True))
    if (rises & falls).any():
        channel = int((rises & falls).argmax())
        raise ModelError(
            f"{place}: what its pooling reads must rise or fall with the sum, not both, as channel {channel} does; put "
            "the pooling after the sign"
        )
    return rises.astype(np.int64) - falls


# The codes that a file gives for sums of a product: for all of them, or for as many as are evaluated.

#: Sums of integers that are evaluated for one layer, at first, those of all channels together.
_MOST_WANTED = 1 << 19
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
    size = max(_MOST_WANTED // product.outputs, 2)
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
