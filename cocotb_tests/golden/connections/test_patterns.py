"""Connection patterns and folds: no dead filter, exact densities, nested along a schedule, and what is refused."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.quantised.channel_graphs import graphs, live_channels
from lutterfly.golden.connections.channel_graph import ChannelGraph, ChannelLayer, Dependence
from lutterfly.golden.connections.dead_channels import find_dead
from lutterfly.golden.connections.dimension_folding import fold_split, folding_multiple, plan_fold
from lutterfly.golden.connections.patterns import ConnectionPattern, count_blocks, draw, grid

SCHEDULE = (0.01, 0.05, 0.25, 1.0)

granularities = st.tuples(st.integers(1, 6), st.integers(1, 6))
seeds = st.integers(0, 2**32 - 1)


def chain(*channels: int) -> ChannelGraph:
    """Sparse convolutions after one another."""
    names = [f"conv{i}" for i in range(1, len(channels))]
    sources = ["input", *names]
    layers = [
        ChannelLayer(name, Dependence.SPARSE, (source,), width)
        for name, source, width in zip(names, sources, channels[1:], strict=False)
    ]
    return ChannelGraph({"input": channels[0]}, tuple(layers), (names[-1],))


def connections(patterns: dict[str, ConnectionPattern]) -> dict[str, np.ndarray]:
    return {name: pattern.connections for name, pattern in patterns.items()}


# 125 networks, two seeds and four densities: 1,000 sets of patterns.
@pytest.mark.regress
@given(graphs(), granularities, st.lists(seeds, min_size=2, max_size=2))
@settings(max_examples=125)
def test_no_filter_is_dead(graph: ChannelGraph, granularity: tuple[int, int], drawn: list[int]):
    for seed in drawn:
        for density in SCHEDULE:
            assert find_dead(graph, connections(draw(graph, density, granularity=granularity, seed=seed))) == []


@given(graphs(most=8), granularities, seeds)
@settings(max_examples=50)
def test_every_connection_lies_on_a_path_from_an_input_to_a_prediction(
    graph: ChannelGraph, granularity: tuple[int, int], seed: int
):
    found = connections(draw(graph, 0.01, granularity=granularity, seed=seed))
    reached, needed = live_channels(graph, found)
    for layer in graph.sparse_layers:
        for i, o in np.argwhere(found[layer.name]).tolist():
            assert (layer.sources[0], i) in reached
            assert (layer.name, o) in needed


@given(graphs(), granularities, seeds)
@settings(max_examples=50)
def test_patterns_nest_along_a_schedule(graph: ChannelGraph, granularity: tuple[int, int], seed: int):
    steps = [draw(graph, density, granularity=granularity, seed=seed) for density in SCHEDULE]
    for before, after in itertools.pairwise(steps):
        assert all(after[name].contains(pattern) for name, pattern in before.items())
    assert all(pattern.connections.all() for pattern in steps[-1].values())


@given(graphs(), granularities, seeds, st.floats(0.001, 1))
@settings(max_examples=100)
def test_densities_are_exact(graph: ChannelGraph, granularity: tuple[int, int], seed: int, density: float):
    for layer in graph.sparse_layers:
        pattern = draw(graph, density, granularity=granularity, seed=seed)[layer.name]
        rows, columns = grid(pattern.inputs, pattern.outputs, granularity)
        least = max(rows, columns) if layer.name in graph.covering_layers() else columns
        assert pattern.blocks.shape == (rows, columns)
        assert pattern.blocks.sum() == max(round(density * rows * columns), least)


@pytest.mark.parametrize("alpha", [0.125, 0.25, 0.5, 1.0])
def test_whole_blocks_have_the_density_that_is_asked_for(alpha: float):
    patterns = draw(chain(128, 128, 256), alpha, seed=3)
    for pattern in patterns.values():
        assert pattern.density == pattern.block_density == alpha
        whole = pattern.connections.reshape(pattern.inputs // 16, 16, -1, 8)
        assert (whole.all(axis=(1, 3)) == whole.any(axis=(1, 3))).all()
        np.testing.assert_array_equal(whole.any(axis=(1, 3)), pattern.blocks)


def test_each_layer_has_its_density_and_the_first_its_least():
    patterns = draw(chain(128, 128, 128), {"conv1": 0.01, "conv2": 0.5}, seed=0)
    assert [int(pattern.blocks.sum()) for pattern in patterns.values()] == [16, 64]
    assert patterns["conv1"].blocks.any(axis=0).all()
    assert patterns["conv1"].blocks.any(axis=1).all()


def test_blocks_at_the_end_have_what_is_left():
    pattern = draw(chain(20, 10), 0.5, seed=0)["conv1"]
    assert pattern.blocks.shape == (2, 2)
    assert pattern.connections.shape == (20, 10)
    wanted = sum(pattern.blocks[r, c] * (16, 4)[r] * (8, 2)[c] for r in range(2) for c in range(2)) / 200
    assert pattern.density == wanted


def test_all_blocks_are_drawn_alike():
    """Of 8 x 8 blocks half, 2,000 times: each is met 1,000 times, with a standard deviation of 22."""
    counts = sum(draw(chain(8, 8), 0.5, granularity=(1, 1), seed=seed)["conv1"].blocks * 1 for seed in range(2000))
    assert abs(counts - 1000).max() < 5 * 22.4


def test_layers_and_seeds_draw_apart():
    first, second = (draw(chain(64, 64, 64), 0.25, seed=seed) for seed in (0, 1))
    assert (first["conv1"].blocks != first["conv2"].blocks).any()
    assert (first["conv1"].blocks != second["conv1"].blocks).any()
    again = draw(chain(64, 64, 64), 0.25, seed=0)
    assert all((again[name].blocks == pattern.blocks).all() for name, pattern in first.items())


def test_a_pattern_contains_another_only_with_all_its_connections():
    small, large = (draw(chain(64, 64), density, seed=0)["conv1"] for density in (0.25, 0.5))
    assert large.contains(small)
    assert not small.contains(large)


@pytest.mark.parametrize("density", [0, -0.5, 1.01, float("nan")])
def test_a_density_beyond_its_range_is_refused(density: float):
    message = f"conv1: density must be more than 0 and at most 1, not {density}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        draw(chain(8, 8), density, seed=0)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"^conv2: density must be given, and is missing; 1 connects everything$"):
        draw(chain(8, 8, 8), {"conv1": 0.5}, seed=0)
    with pytest.raises(ValueError, match=r"^conv9: density must be of a sparse layer, and it is none of conv1$"):
        draw(chain(8, 8), {"conv1": 0.5, "conv9": 0.5}, seed=0)
    with pytest.raises(ValueError, match=r"^granularity must be at least 1, not \(0, 8\)$"):
        draw(chain(8, 8), 0.5, granularity=(0, 8), seed=0)
    with pytest.raises(ValueError, match=r"^inputs must be at least 1, not 0$"):
        grid(0, 8, (1, 1))
    with pytest.raises(ValueError, match=r"^blocks must be bool\[2, 2\], not bool\[2, 1\]$"):
        ConnectionPattern(20, 10, (16, 8), np.ones((2, 1), bool))
    with pytest.raises(TypeError, match=r"^blocks must be bool, not uint8$"):
        ConnectionPattern(20, 10, (16, 8), np.ones((2, 2), np.uint8))


def test_the_least_and_the_most():
    assert count_blocks(1, 4, 16, covers_rows=True) == 64
    assert count_blocks(1e-9, 4, 16, covers_rows=True) == 16
    assert count_blocks(1e-9, 16, 4, covers_rows=True) == 16
    assert count_blocks(1e-9, 16, 4, covers_rows=False) == 4


# The fold planner of the source, on the examples that the source works out.


@pytest.mark.parametrize(("channels", "multiple"), [(3, 16), (5, 8), (4, 16), (32, 2), (33, 1), (64, 1), (1, 64)])
def test_multiple(channels: int, multiple: int) -> None:
    assert folding_multiple(channels, 64) == multiple


@pytest.mark.parametrize(
    ("folds", "aligned", "padding"), [((4, 4), (4, 8), 26), ((2, 8), (2, 8), 10), ((1, 16), (1, 16), 10)]
)
def test_splits_of_a_flat_kernel(folds: tuple[int, int], aligned: tuple[int, int], padding: int) -> None:
    plan = fold_split((1, 6), (1, 1), folds)
    assert plan.padding == padding
    assert tuple(n * size for n, size in zip(plan.folds, plan.kernel, strict=True)) == aligned


def test_a_flat_kernel_is_folded_in_width() -> None:
    assert plan_fold((1, 6), (1, 1), 4, 64).folds == (1, 16)


def test_overlap_goes_to_the_height() -> None:
    plan = plan_fold((6, 6), (2, 2), 4, 64)
    assert (plan.folds, plan.kernel, plan.stride) == ((8, 2), (1, 3), (1, 1))


def test_a_kernel_that_becomes_one_by_one() -> None:
    plan = plan_fold((4, 4), (4, 4), 4, 64)
    assert (plan.folds, plan.kernel, plan.stride) == ((4, 4), (1, 1), (1, 1))
    assert plan.saving == 0.9375


def test_alignment_must_be_a_power_of_two() -> None:
    with pytest.raises(ValueError, match=r"^alignment must be a power of two, not 48$"):
        folding_multiple(3, 48)
