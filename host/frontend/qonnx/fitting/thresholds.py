"""Thresholds: what a chain that ends in a sign makes of every sum of a product."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ...fragments.fragments import label
from ...reading.errors import ModelError
from ..reading.chain import POWERS

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
