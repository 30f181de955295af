"""Spreading: cells get room and keep their order."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.synth.floorplan import spread

TILES = (32, 24)


def fullest(positions: np.ndarray, areas: np.ndarray) -> float:
    """Look-up tables of a tile, on average of 8 columns and 12 rows."""
    borders = np.arange(0, 33, 8), np.arange(0, 25, 12)
    return float(np.histogram2d(*positions.T, bins=borders, weights=areas)[0].max()) / (8 * 12)


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_a_crowd_gets_room(share: float) -> None:
    rng = np.random.default_rng(0)
    areas = rng.choice([0.5, 1.0, 2.0, 6.0], 3000)
    areas *= share * 8 * np.prod(TILES) / areas.sum()
    positions = rng.normal((20, 9), 1.0, (3000, 2))
    moved = spread(positions, areas, TILES)
    assert fullest(positions, areas) > 3 * 8 * share
    # Six look-up tables of a tile's eight, and what the last cell of a rectangle is more.
    assert fullest(moved, areas) <= 1.05 * 6
    assert np.all((moved >= 0) & (moved <= TILES))
    # Who was left is left still, but for what lies in the same column of rectangles.
    left, right = positions[:, 0] < 18, positions[:, 0] > 22
    assert moved[left, 0].max() <= moved[right, 0].min() + 8


def test_what_has_room_stays() -> None:
    positions = np.random.default_rng(1).uniform((0, 0), TILES, (400, 2))
    np.testing.assert_array_equal(spread(positions, np.ones(400), TILES), positions)


def test_what_is_outside_comes_in() -> None:
    moved = spread(np.array([[-3.0, 40.0], [50.0, -1.0]]), np.ones(2), TILES)
    assert np.all((moved >= 0) & (moved <= TILES))
    assert moved[0, 0] < moved[1, 0]
    assert moved[0, 1] > moved[1, 1]
