"""Phases of maps: which rows and columns they are."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.host.graph import Phase, ViewPlace


def drawn(rng: np.random.Generator) -> Phase:
    steps = tuple(map(int, rng.integers(1, 4, 2)))
    return Phase(int(rng.integers(steps[0])), int(rng.integers(steps[1])), steps)


@pytest.mark.parametrize("seed", range(20))
def test_a_phase_of_a_phase_is_one_of_the_map(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = np.arange(40 * 40).reshape(40, 40)
    outer, inner = drawn(rng), drawn(rng)

    def taken(cells: np.ndarray, phase: Phase) -> np.ndarray:
        return cells[phase.row :: phase.steps[0], phase.column :: phase.steps[1]]

    np.testing.assert_array_equal(taken(cells, outer.of(inner)), taken(taken(cells, outer), inner))
    assert ViewPlace("x").of(3, outer).of(2, inner) == ViewPlace("x").of(5, outer.of(inner))


@pytest.mark.parametrize("seed", range(20))
def test_rows_within_a_part_of_the_map_are_those_of_the_phase_that_lie_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    phase = drawn(rng)
    edges = np.sort(rng.integers(0, 20, (2, 2)), axis=1).tolist()
    rows, columns = (range(start, stop) for start, stop in edges)
    down, across = phase.within(rows, columns)
    assert [*phase.rows(down)] == [row for row in rows if row % phase.steps[0] == phase.row]
    assert [*phase.columns(across)] == [column for column in columns if column % phase.steps[1] == phase.column]
