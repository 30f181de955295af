"""Windows and phases of maps: what they read, counted element by element."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.quantised.graphs import random_window
from lutterfly.host.graph import Phase, Reach, ViewPlace, Window


def read(window: Window, axis: int, output: int) -> list[int]:
    """Where the elements of a kernel lie along an axis, for one row or column of the result."""
    first = output * window.stride[axis] - window.pads[axis]
    return [first + element * window.dilation[axis] for element in range(window.kernel[axis])]


def drawn_window(seed: int) -> tuple[Window, tuple[int, int], tuple[int, int]]:
    """A window, rows and columns of its input, and of its output."""
    rng = np.random.default_rng(seed)
    size = (int(rng.integers(1, 9)), int(rng.integers(1, 9)))
    window = random_window(rng, (*size, 1))
    return window, size, window.output_size(*size)


@pytest.mark.parametrize("seed", range(60))
def test_windows_reach_as_far_as_their_elements(seed: int) -> None:
    window, size, outputs = drawn_window(seed)
    down, across = (
        [place for output in range(outputs[axis]) for place in read(window, axis, output)] for axis in range(2)
    )
    # Above and to the left it is what the file says, which no window need read.
    found = window.reach(*size)
    assert (found.top, found.left) == window.pads[:2]
    assert found.bottom == max(max(down) - size[0] + 1, 0)
    assert found.right == max(max(across) - size[1] + 1, 0)


@pytest.mark.parametrize("seed", range(60))
def test_the_elements_inside(seed: int) -> None:
    window, size, outputs = drawn_window(seed)
    for axis in range(2):
        for output in range(outputs[axis]):
            places = read(window, axis, output)
            wanted = [element for element, place in enumerate(places) if 0 <= place < size[axis]]
            assert list(window.inside(axis, size[axis], output)) == wanted


@pytest.mark.parametrize("seed", range(40))
def test_counts_are_the_elements_inside(seed: int) -> None:
    window, (height, width), (rows, columns) = drawn_window(seed)
    expected = [
        [
            sum(0 <= y < height and 0 <= x < width for y in read(window, 0, row) for x in read(window, 1, column))
            for column in range(columns)
        ]
        for row in range(rows)
    ]
    np.testing.assert_array_equal(window.counts(height, width), expected)


def test_a_window_in_the_border_alone_has_no_elements_inside() -> None:
    window = Window((1, 1), (3, 3), pads=(2, 2, 0, 0))
    assert window.inside(0, 1, 0) == range(0)
    assert not window.counts(4, 4)[0].any()


def test_padding_that_no_window_reads_is_not_reached() -> None:
    assert Window((2, 2), (2, 2), pads=(0, 0, 1, 1)).reach(4, 4) == Reach()
    assert Window((2, 2), (2, 2), pads=(1, 0, 1, 1)).reach(4, 4) == Reach(top=1, bottom=1)


def test_windows_as_text() -> None:
    assert Window((3, 1)).text == "3x1"
    assert Window((3, 1), (1, 2)).text == "3x1 stride 1x2"
    assert Window((3, 1), (2, 1), (1, 4)).text == "3x1 stride 2x1 dilation 1x4"


@pytest.mark.parametrize("seed", range(60))
def test_some_rows_of_the_result_need_the_rows_that_their_elements_lie_in(seed: int) -> None:
    window, (height, width), (rows, columns) = drawn_window(seed)
    first = seed % rows
    part = range(first, first + 1 + seed // 7 % (rows - first))
    inside = [row for output in part for row in read(window, 0, output) if 0 <= row < height]
    found = window.rows_read(part, height)
    assert {*inside} <= {*found}
    # From the first to the last: strides and dilations may leave out rows between them.
    reach = [row for output in part for row in read(window, 0, output)]
    assert found == range(max(min(reach), 0), min(max(reach) + 1, height))
    if not found:
        return
    local = window.of_rows(part, height)
    assert local.output_size(len(found), width) == (len(part), columns)
    assert [read(local, 0, output) for output in range(len(part))] == [
        [row - found.start for row in read(window, 0, output)] for output in part
    ]
    assert local.reach(len(found), width).left == window.pads[1]


# Phases of maps: which rows and columns they are.


def drawn_phase(rng: np.random.Generator) -> Phase:
    steps = tuple(map(int, rng.integers(1, 4, 2)))
    return Phase(int(rng.integers(steps[0])), int(rng.integers(steps[1])), steps)


@pytest.mark.parametrize("seed", range(20))
def test_a_phase_of_a_phase_is_one_of_the_map(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = np.arange(40 * 40).reshape(40, 40)
    outer, inner = drawn_phase(rng), drawn_phase(rng)

    def taken(cells: np.ndarray, phase: Phase) -> np.ndarray:
        return cells[phase.row :: phase.steps[0], phase.column :: phase.steps[1]]

    np.testing.assert_array_equal(taken(cells, outer.of(inner)), taken(taken(cells, outer), inner))
    assert ViewPlace("x").of(3, outer).of(2, inner) == ViewPlace("x").of(5, outer.of(inner))


@pytest.mark.parametrize("seed", range(20))
def test_rows_within_a_part_of_the_map_are_those_of_the_phase_that_lie_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    phase = drawn_phase(rng)
    edges = np.sort(rng.integers(0, 20, (2, 2)), axis=1).tolist()
    rows, columns = (range(start, stop) for start, stop in edges)
    down, across = phase.within(rows, columns)
    assert [*phase.rows(down)] == [row for row in rows if row % phase.steps[0] == phase.row]
    assert [*phase.columns(across)] == [column for column in columns if column % phase.steps[1] == phase.column]
