"""Thresholds of signs: which way the numbers of each channel go."""

from __future__ import annotations

import numpy as np

from lutterfly.host.frontend.qonnx.fitting.thresholds import _directions


def test_what_stays_neither_rises_nor_falls() -> None:
    values = np.array([[3, 1, 2, 1], [2, 1, 2, 3], [2, 1, 3, 2]])
    rises, falls = _directions(values)
    assert rises.tolist() == [False, False, True, True]
    assert falls.tolist() == [True, False, False, True]
