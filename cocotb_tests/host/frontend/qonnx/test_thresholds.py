"""Thresholds of signs: where decisions change, and which way the numbers of each channel go."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from lutterfly.host.frontend.qonnx.fitting import thresholds
from lutterfly.host.frontend.qonnx.fitting.thresholds import Way, _directions, find_thresholds


@pytest.mark.parametrize("at_once", [2, 3, 5, 11])
def test_decisions_change_at_any_sum_of_any_part(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = np.arange(-5, 6)
    changes = sums[1:]
    monkeypatch.setattr(thresholds, "_AT_ONCE", at_once * (2 * len(changes) + 2))

    def evaluate(part: npt.NDArray[np.int64]) -> list[tuple[np.ndarray, list[np.ndarray]]]:
        rising = part[:, None] - changes + 0.5
        same = np.ones((len(part), 1))
        return [(np.hstack([rising, -rising, same, -same]), [])]

    channels = np.zeros(2 * len(changes) + 2, np.int64)
    found = find_thresholds("signs", sums, (channels - 5, channels + 5), evaluate)
    count = len(changes)
    assert found.way.tolist() == [Way.RISING] * count + [Way.FALLING] * count + [Way.CONSTANT] * 2
    assert found.threshold.tolist() == [*changes, *(changes - 1), 0, 0]
    assert found.always[-2:].tolist() == [True, False]


def test_what_stays_neither_rises_nor_falls() -> None:
    values = np.array([[3, 1, 2, 1], [2, 1, 2, 3], [2, 1, 3, 2]])
    rises, falls = _directions(values)
    assert rises.tolist() == [False, False, True, True]
    assert falls.tolist() == [True, False, False, True]
