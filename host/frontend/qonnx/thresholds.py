"""Thresholds and codes that a chain of operators gives for every sum of a product."""

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
from .network import MeasuredNetwork, Quantiser
from .products import Product

#: Most decisions of one layer; they take half a minute.
_MOST = 1 << 30
_AT_ONCE = 1 << 22


class Way(enum.IntEnum):
    """The direction of a function of the sum."""

    FALLING = -1
    CONSTANT = 0
    RISING = 1


@dataclass(frozen=True)
class Thresholds:
    """Decisions of the output channels, +1 where the sum is at least, or at most, a threshold.

    Attributes
    ----------
    way : Way[channels]
    threshold : int64[channels]
        The least sum that gives +1 where the way rises, the greatest where it falls; else 0.
    always : bool[channels]
        The decision of a channel that is constant.
    pooled : list of Way[channels]
        Direction of each pooling's input.
    """

    way: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.int64]
    always: npt.NDArray[np.bool_]
    pooled: list[npt.NDArray[np.int64]]

    def takes_least(self, place: str, pools: Sequence[NodeProto]) -> npt.NDArray[np.bool_]:
        """Return the channels whose pooling gives the least of the signs instead of the greatest: bool[channels].

        A pooling takes the greatest of its inputs. Where these and the decision have the same direction, the result is
        the greatest sign, else the least.

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


#: Function of sums int64[n] that returns the results and the inputs of poolings, float32[n, channels], for the exact
#: product and for both ends of float32's error interval.
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
        Ascending sums.
    limits : int64[channels], int64[channels]
        The least and the greatest sum of each channel.
    evaluate : callable

    Raises
    ------
    ModelError
        If a sum is within float32's error of a decision, or decisions change more than once.
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
    """The change of each channel's decisions as sums rise, of which there may be one."""

    def __init__(self, place: str, channels: int):
        self._place = place
        self._before: tuple[int, npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None = None
        self._last = np.zeros(channels, bool)
        self._way, self._threshold, self._changed_at = np.zeros((3, channels), np.int64)

    def follow(
        self, sums: npt.NDArray[np.int64], decisions: npt.NDArray[np.bool_], inside: npt.NDArray[np.bool_]
    ) -> None:
        """Continue with further sums: decisions bool[sums, channels], which count where a channel has the sum."""
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
        """Return the thresholds; the decision of a channel without a change is constant."""
        return Thresholds(self._way, self._threshold, self._last, pooled)


def _last_of(decisions: npt.NDArray[np.bool_], inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the last counting decision of each channel."""
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
    """Return whether values of each channel rise, and whether they fall, anywhere."""
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


# Codes of the file's operators for sums of a product: for all sums, or for the evaluated ones.

#: Number of sums of integers that are evaluated for one layer at first, of all channels together.
_MOST_WANTED = 1 << 19
#: Greatest step of a channel's numbers between evaluated sums, as a share of their range.
_STEP = 0.25
#: Number of parts of a larger step, and most rounds of division, which suffice for any distance of sums.
_PARTS, _TIMES = 4, 16
#: Channels whose numbers change by less than this, in codes, need no more sums.
_STILL = 2.0**-6


@dataclass
class Wanted:
    """The wanted codes of sums.

    Attributes
    ----------
    sums : int64[n]
        Ascending sums.
    inside : bool[n, channels]
        Whether a channel has the sum.
    codes : int64[n, channels]
    real : float64[n, channels]
        Numbers before rounding, zero point and limits.
    is_certain : bool
        Whether these are all sums, and their codes do not depend on the order of additions.
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
        """Return sums, codes and real numbers of a channel."""
        own = self.inside[:, at]
        return self.sums[own], self.codes[own, at], self.real[own, at]


def evaluate_sums(
    network: MeasuredNetwork, quantiser: Quantiser, chain: Chain, product: Product, scale: np.float32, place: str
) -> Wanted:
    """Evaluate a chain on the sums of a product whose results are quantised.

    Raises
    ------
    ModelError
        If float32's error may change a code of binary products, or the input of a pooling falls as its codes rise.
    """
    evaluator = Evaluator(network, chain, quantiser, product.outputs)
    sums, (low, high) = product.sums(), product.limits()
    size = max(_MOST_WANTED // product.outputs, 2)
    is_whole = product.is_exclusive_or or len(sums) <= size

    def real(part: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return evaluator.entering(product.results(part).astype(np.float32)) / np.float64(scale)

    if not is_whole:
        # The ends of each channel's range are included, as codes of sums between are between theirs.
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
    """Return more sums where numbers change much, as operators may cut off all the others."""
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
    """Return codes less the zero point."""
    return np.rint(values / scale).astype(np.int64) + quantiser.zero_point - quantiser.shift


def _check_pooling(chain: Chain, wanted: Wanted, pooled: list[np.ndarray], place: str) -> None:
    """Check that each pooling's input and the codes have the same direction, so that codes may be pooled instead."""
    for node, read in zip((node for node in chain.steps if node.op_type in MAX_POOLING), pooled, strict=True):
        way = np.sign(np.diff(read, axis=0)).astype(np.int64)
        against = (way * np.sign(np.diff(wanted.codes, axis=0)) == Way.FALLING).any(axis=0)
        if against.any():
            raise ModelError(
                f"{place}: {label(node)} must pool what rises with its codes, not channel {int(against.argmax())}, "
                "which falls; put the pooling after the batch normalisation"
            )
