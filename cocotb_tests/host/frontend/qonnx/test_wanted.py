"""Sums at which operators of a QONNX chain are looked at: more where numbers change, and only there."""

from __future__ import annotations

import numpy as np

from lutterfly.host.frontend.qonnx.thresholds import _refined

SUMS = np.array([-1000, 0, 1000])


def cut_off(sums: np.ndarray) -> np.ndarray:
    """Rises from 500 to 510, and does not before and after."""
    return np.clip(sums[:, None] - 500, 0, 10).astype(np.float64)


def refined(least: int, greatest: int) -> np.ndarray:
    return _refined(SUMS, (np.array([least]), np.array([greatest])), (-128, 127), cut_off)


def test_sums_are_added_where_numbers_change() -> None:
    found = refined(-1000, 1000)
    assert {-1000, 0, 1000, *range(500, 511)} <= set(found.tolist())
    assert not ((found > -1000) & (found < 0)).any()
    # Parts of parts, not all.
    assert len(found) < 200


def test_sums_that_a_channel_does_not_have_are_left_alone() -> None:
    for least, greatest in ((-1000, 0), (-1000, 999), (1, 1000)):
        assert refined(least, greatest).tolist() == SUMS.tolist()
