"""Connections: every byte that a tile uses is in one of its words, and commands are merged where that is cheaper."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lutterfly.host.compiler.lower.windows import Run, cover, plan_runs

#: Cycles of a command beside its steps.
COMMAND = 20


def cost_of(windows: int):
    return lambda tiles, steps: tiles * windows * steps + COMMAND


def total(runs: list[Run], windows: int) -> int:
    return sum(cost_of(windows)(len(run.tiles), len(run.starts)) for run in runs)


@st.composite
def layers(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, list[int], int, int]:
    """Offsets, what is used of them, origins of the tiles, lanes, windows."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    elements, tiles = draw(st.integers(1, 60)), draw(st.integers(1, 20))
    offsets = rng.choice(2 * elements, elements, replace=False)
    density = draw(st.sampled_from([0.0, 0.05, 0.3, 0.9, 1.0]))
    patterns = rng.random((draw(st.integers(1, 4)), elements)) < density
    used = patterns[rng.integers(len(patterns), size=tiles)]
    pitch = draw(st.sampled_from([0, 4, 7]))
    origins = [tile // draw(st.integers(1, 2)) * pitch for tile in range(tiles)]
    return offsets, used, sorted(origins), draw(st.sampled_from([2, 4, 16])), draw(st.sampled_from([1, 5, 64]))


@pytest.mark.regress
@settings(max_examples=300)
@given(layers())
def test_every_used_byte_is_read_once_by_its_tile(layer) -> None:
    offsets, used, origins, lanes, windows = layer
    runs = plan_runs(offsets, used, origins, lanes=lanes, cost=cost_of(windows))
    assert [tile for run in runs for tile in run.tiles] == list(range(len(used)))
    for run in runs:
        assert run.pitch >= 0
        assert run.starts[0] == 0
        for tile in run.tiles:
            words = run.from_tile(tile) + run.starts
            wanted = offsets[used[tile]] + origins[tile]
            hits = ((wanted[:, None] >= words) & (wanted[:, None] < words + lanes)).sum(axis=1)
            assert (hits == 1).all()


@pytest.mark.regress
@settings(max_examples=300)
@given(layers())
def test_no_simple_choice_of_commands_is_cheaper(layer) -> None:
    offsets, used, origins, lanes, windows = layer
    runs = plan_runs(offsets, used, origins, lanes=lanes, cost=cost_of(windows))
    used[~used.any(axis=1), 0] = True
    steps = [max(len(cover(offsets[row], lanes)), 1) for row in used]
    # One command for all is left alone where it is that near to what its tiles need.
    least = 1.02 * (sum(windows * count for count in steps) + COMMAND)
    assert total(runs, windows) <= max(sum(windows * count + COMMAND for count in steps) + COMMAND, least)
    if len({after - before for before, after in itertools.pairwise(origins)}) <= 1:
        whole = max(len(cover(offsets[used.any(axis=0)], lanes)), 1)
        assert total(runs, windows) <= len(used) * windows * whole + COMMAND


def test_groups_are_one_command_and_one_list() -> None:
    used = np.zeros((4, 64), bool)
    for tile in range(4):
        used[tile, 16 * tile : 16 * tile + 16] = True
    (run,) = plan_runs(np.arange(64), used, [0] * 4, lanes=16, cost=cost_of(1))
    assert (run.tiles, run.source, run.pitch, run.starts.tolist()) == (range(4), 0, 16, [0])


@pytest.mark.parametrize(("windows", "commands"), [(1, 1), (64, 3)])
def test_commands_are_merged_where_they_cost_more_than_the_words(windows: int, commands: int) -> None:
    used = np.ones((3, 64), bool)
    used[1, 16:] = False
    assert len(plan_runs(np.arange(64), used, [0] * 3, lanes=16, cost=cost_of(windows))) == commands


def test_a_tile_without_connections_takes_one_word() -> None:
    used = np.ones((2, 64), bool)
    used[1] = False
    runs = plan_runs(np.arange(64), used, [0, 0], lanes=16, cost=cost_of(64))
    assert [len(run.starts) for run in runs] == [4, 1]


def test_neighbours_share_a_command_where_that_is_cheaper_than_their_own() -> None:
    used = np.zeros((4, 64), bool)
    for tile, count in enumerate((64, 48, 16, 16)):
        used[tile, :count] = True
    runs = plan_runs(np.arange(64), used, [0] * 4, lanes=16, cost=cost_of(10))
    assert [(run.tiles, len(run.starts)) for run in runs] == [(range(2), 4), (range(2, 4), 1)]
