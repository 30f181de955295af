"""Borders of tensors: words that cover a window, folds of the input, and views that copy nothing."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import exact_plan, measure
from cocotb_tests.support.quantised.graphs import GraphMaker, random_fork
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import plan_graph
from lutterfly.host.compiler.layout import borders
from lutterfly.host.compiler.layout.borders import fold_storage
from lutterfly.host.compiler.lower.convolution import weight_words
from lutterfly.host.compiler.lower.windows import cover, tap_offsets, window_steps
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.compiler.storage import Storage
from lutterfly.host.graph import Concat, Graph, Slice, Tensor, ViewPlace, Window

CONFIG = PRESETS["ecp5-85k"]
SAME = Window((3, 3), pads=(1, 1, 1, 1))
POINT = Window((1, 1))


def copied(plan: Plan) -> list[str]:
    return [layer.name for layer in plan.graph.layers if isinstance(layer, Concat | Slice)]


def fire(size: int = 16, modules: int = 3) -> Graph:
    """Modules of SqueezeNet: a pointwise convolution, and after it two convolutions side by side."""
    maker = GraphMaker((size, size, 8))
    name = "x"
    for _ in range(modules):
        squeezed = maker.convolution(name, 8, POINT, zero_point=-128)
        name = maker.concat(
            maker.convolution(squeezed, 16, POINT, zero_point=-128),
            maker.convolution(squeezed, 16, SAME, zero_point=-128),
            tables=False,
        )
    return maker.finish(maker.convolution(name, 10, POINT))


@pytest.mark.regress
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 240), marks=pytest.mark.regress)], ids=str)
def test_random_forks_are_exact(seeds: range) -> None:
    found = 0
    for seed in seeds:
        graph = random_fork(seed)
        found += sum(len(exact_plan(graph, PRESETS[preset]).views) for preset in ("tiny", "ecp5-85k"))
    assert found > len(seeds)


def test_channels_side_by_side_are_written_side_by_side() -> None:
    plan = exact_plan(fire(), CONFIG)
    assert copied(plan) == []
    assert plan.views == {
        f"t{n}": ViewPlace(f"t{n - n % 4 + 3}", 16 * (n % 4 - 1)) for n in range(12) if n % 4 in (1, 2)
    }


def test_channels_taken_apart_are_read_apart() -> None:
    maker = GraphMaker((8, 8, 4))
    trunk = maker.convolution("x", 32, SAME)
    halves = maker.slice(trunk, 0, 16), maker.slice(trunk, 16, 16)
    joined = maker.concat(maker.depthwise(halves[0], SAME, zero_point=3), maker.max_pool(halves[1], SAME), tables=False)
    plan = exact_plan(maker.finish(maker.convolution(joined, 4, POINT)), CONFIG)
    assert copied(plan) == ["concat_t5"]
    assert plan.views == {"t1": ViewPlace("t0"), "t2": ViewPlace("t0", 16), "t3": ViewPlace("t5")}


def test_what_a_concatenation_holds_may_be_what_an_earlier_one_joins() -> None:
    """Layers of DenseNet: each reads all those before."""
    maker = GraphMaker((8, 8, 8))
    parts = [maker.convolution("x", 16, POINT, zero_point=3)]
    for _ in range(3):
        joined = maker.concat(*parts, tables=False) if len(parts) > 1 else parts[0]
        parts.append(maker.convolution(joined, 16, SAME, zero_point=3))
    plan = exact_plan(maker.finish(maker.convolution(maker.concat(*parts, tables=False), 4, POINT)), CONFIG)
    assert copied(plan) == []
    assert len({plan.root(name) for name in parts}) == 1


def test_the_operands_of_a_sum_must_lie_alike() -> None:
    maker = GraphMaker((8, 8, 4))
    trunk = maker.convolution("x", 32, SAME)
    halves = [maker.slice(trunk, first, 16) for first in (0, 16)]
    assert copied(exact_plan(maker.finish(maker.add(*halves)), CONFIG)) == []
    maker = GraphMaker((8, 8, 4))
    trunk = maker.convolution("x", 32, SAME)
    total = maker.add(maker.slice(trunk, 8, 16), maker.convolution("x", 16, SAME))
    assert copied(exact_plan(maker.finish(total), CONFIG)) == ["slice_t1"]


def test_inputs_and_outputs_and_what_is_joined_twice_are_copied() -> None:
    maker = GraphMaker((6, 6, 4))
    inner, outer = (maker.convolution("x", channels, POINT, zero_point=3) for channels in (5, 6))
    joined = maker.concat(inner, outer, "x", inner, tables=False)
    plan = exact_plan(maker.finish(outer, maker.convolution(joined, 4, POINT)), CONFIG)
    assert plan.views == {inner: ViewPlace(joined)}
    assert plan.operations[2].written_bytes == 6 * 6 * (6 + 4 + 5)


def test_another_zero_point_needs_another_border() -> None:
    maker = GraphMaker((6, 6, 4))
    parts = [maker.convolution("x", 4, POINT, zero_point=zero_point) for zero_point in (3, 4)]
    plan = exact_plan(maker.finish(maker.convolution(maker.concat(*parts, tables=False), 4, SAME)), CONFIG)
    assert plan.views == {parts[0]: ViewPlace("t2")}


def test_a_copy_stays_where_a_view_costs_more() -> None:
    """A convolution of many outputs on few of many channels: every pixel of a window would be a word of its own."""
    maker = GraphMaker((8, 8, 4))
    trunk = maker.convolution("x", 64, POINT)
    part = maker.slice(trunk, 0, 4)
    plan = exact_plan(maker.finish(maker.convolution(part, 32, SAME), maker.convolution(trunk, 4, POINT)), CONFIG)
    assert copied(plan) == ["slice_t1"]


@pytest.mark.regress
def test_a_network_that_does_not_fit_has_no_views() -> None:
    plan = exact_plan(fire(16, 1), PRESETS["tiny"])
    assert plan.cuts
    assert plan.views == {}
    assert copied(plan) == ["concat_t3"]


@pytest.mark.demo_core
def test_cycles_on_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = fire()
    viewed = measure(graph, CONFIG)
    monkeypatch.setattr(borders, "_fits", lambda plan: False)
    copied = measure(graph, CONFIG)
    assert viewed.counters["cycles"] < 0.9 * copied.counters["cycles"]
    for measured in (viewed, copied):
        assert abs(measured.program.predicted_cycles - measured.counters["cycles"]) < 0.02 * measured.counters["cycles"]


# Windows as words: the fewest that cover a window's bytes, and the fold of the input that suits bus and array.


def planned(shape: tuple[int, int, int], channels: int, window: Window):
    maker = GraphMaker(shape)
    graph = maker.finish(maker.convolution("x", channels, window))
    plan = plan_graph(graph, CONFIG)
    return plan, graph.layers[0]


def test_three_channels_take_two_words_of_sixteen_not_nine() -> None:
    """The worked example of the fold planner: unfolded, the width alone, three rows interleaved."""
    plan, layer = planned((32, 32, 3), 16, SAME)
    by_tap = sum(len(cover(tap, 16)) for tap in tap_offsets(SAME, 3, Storage(32, 32, 3)).reshape(9, 3))
    in_width = window_steps(layer.window, 3, Storage(32, 32, 3, gap=1), 16)
    chosen = plan.storages["x"]
    assert (by_tap, in_width, window_steps(layer.window, 3, chosen, 16)) == (9, 3, 2)
    assert chosen.fold.rows == 3
    assert [round(100 * 27 / (words * 16)) for words in (by_tap, in_width, 2)] == [19, 56, 84]
    assert plan.computes[0][0].fields["steps"] == 2


def test_the_bus_decides_against_a_fold_that_only_the_array_likes() -> None:
    """Three rows interleaved would keep the array waiting for pieces of 3 bytes."""
    plan, _ = planned((96, 96, 3), 8, Window((3, 3), (2, 2), pads=(0, 0, 1, 1)))
    assert plan.storages["x"].fold is None
    assert plan.predictions[0].array_cycles == 48 * 48 * 3


@pytest.mark.sampled(7)
@pytest.mark.parametrize("requant_lanes", [4, 8])
@pytest.mark.parametrize(
    ("shape", "channels", "window"),
    [
        # With eight lanes three rows interleaved would halve the array's cycles, and arrive too late for that.
        ((8, 8, 1), 16, SAME),
        ((12, 12, 2), 24, SAME),
        ((32, 32, 3), 16, SAME),
        ((40, 40, 3), 8, Window((3, 3), (2, 2), pads=(0, 0, 1, 1))),
        ((49, 10, 1), 64, Window((10, 4), (2, 2), pads=(4, 1, 5, 1))),
    ],
)
def test_the_first_layer_is_done_as_soon_as_with_any_fold(
    requant_lanes: int, shape: tuple[int, int, int], channels: int, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(CONFIG, array=dataclasses.replace(CONFIG.array, requant_lanes=requant_lanes))
    maker = GraphMaker(shape)
    graph = maker.finish(maker.convolution("x", channels, window))
    chosen = plan_graph(graph, config).predicted_cycles
    choices, cycles = borders.fold_choices, []
    for number in range(window.kernel[0]):
        monkeypatch.setattr(borders, "fold_choices", lambda *of, number=number: choices(*of)[number:])
        cycles.append(plan_graph(graph, config).predicted_cycles)
    assert chosen == cycles[0]
    assert min(cycles) < max(cycles)
    assert chosen <= min(cycles) * 1.02 + 16


def test_tall_kernels_on_one_channel_are_folded() -> None:
    plan, layer = planned((49, 10, 1), 64, Window((10, 4), (2, 2), pads=(4, 1, 5, 1)))
    assert window_steps(layer.window, 1, plan.storages["x"], 16) == 3
    assert plan.predictions[0].array_cycles == 25 * 5 * 8 * 3


def test_rows_that_lie_side_by_side_are_one_run() -> None:
    window = Window((7, 5))
    offsets = tap_offsets(window, 3, Storage(7, 5, 3))
    assert cover(offsets, 16).tolist() == [0, 16, 32, 48, 64, 80, 96]


def test_a_dilated_kernel_row_shares_words() -> None:
    window = Window((1, 5), dilation=(1, 2))
    assert len(cover(tap_offsets(window, 1, Storage(1, 20, 1)), 16)) == 1
    assert len(cover(tap_offsets(window, 20, Storage(1, 20, 20)), 16)) == 10


@pytest.mark.parametrize("seed", range(60))
def test_cover_is_complete_disjoint_and_least(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes = int(rng.choice([2, 4, 8]))
    offsets = rng.choice(30, int(rng.integers(1, 12)), replace=False)
    starts = cover(offsets, lanes)
    hits = [sum(start <= offset < start + lanes for start in starts) for offset in offsets]
    assert hits == [1] * len(offsets)
    if len(starts) <= 4:
        # No smaller set of words holds everything, wherever the words begin.
        candidates = range(1 - lanes, 30)
        for fewer in itertools.combinations(candidates, len(starts) - 1):
            assert not all(any(start <= offset < start + lanes for start in fewer) for offset in offsets)


def test_every_weight_has_one_place_and_the_rest_is_zero() -> None:
    rng = np.random.default_rng(1)
    window = Window((3, 2), dilation=(2, 3))
    weights = rng.integers(1, 128, (5, 3, 2, 7), dtype=np.int8)
    offsets = tap_offsets(window, 7, Storage(9, 9, 7))
    starts = cover(offsets, 4)
    words = weight_words(weights, offsets, starts, 4, 2).reshape(3, len(starts), 2, 4)
    assert np.count_nonzero(words) == weights.size
    for tile, column in itertools.product(range(3), range(2)):
        output = 2 * tile + column
        total = sorted(words[tile, :, column].reshape(-1)[words[tile, :, column].reshape(-1) != 0].tolist())
        assert total == (sorted(weights[output].reshape(-1).tolist()) if output < 5 else [])


@pytest.mark.parametrize("rows", [2, 3])
def test_stored_rows_hold_those_that_a_dilated_window_takes(rows: int) -> None:
    window = Window((3, 3), (2, 1), pads=(2, 0, 2, 0), dilation=(2, 1))
    storage = fold_storage(window, Tensor("x", (9, 9, 2), 1.0, 0, ()), rows)
    found = borders.source_rows(storage, 9)
    for output, tap in itertools.product(range(window.output_size(9, 9)[0]), range(3)):
        row = 2 * output + 2 * tap - 2
        stored = (2 * output + 2 * rows * (tap // rows)) // storage.fold.step
        assert found[stored, tap % rows] == (row if 0 <= row < 9 else -1)


def test_folded_rows_overlap_only_where_they_must() -> None:
    _, layer = planned((12, 12, 2), 4, Window((4, 4), (4, 4)))
    storage = fold_storage(layer.window, Tensor("x", (12, 12, 2), 1.0, 0, ()), 4)
    assert (storage.height, storage.channels, storage.fold.step) == (3, 8, 4)
    assert storage.size_bytes == 12 * 12 * 2
