"""Elements that move to other pixels: the same bytes whole, in parts, and as views that copy less."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import exact_plan, measure
from cocotb_tests.support.quantised.graphs import GraphMaker, random_arranged
from lutterfly.golden.isa import Opcode
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.host.graph import Graph, ViewPlace, Window

SAME = Window((3, 3), pads=(1, 1, 1, 1))


@pytest.mark.regress
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 200), marks=pytest.mark.regress)], ids=str)
def test_random_arrangements(seeds: range) -> None:
    met = 0
    for seed in seeds:
        plan = exact_plan(random_arranged(seed), PRESETS["tiny" if seed % 2 else "ecp5-85k"])
        met += any(place.steps != (1, 1) for place in plan.views.values())
    assert met >= len(seeds) // 4


@pytest.mark.regress
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 60), marks=pytest.mark.regress)], ids=str)
def test_random_arrangements_in_parts(seeds: range) -> None:
    config, cut = PRESETS["tiny"], 0
    config = dataclasses.replace(config, memory=dataclasses.replace(config.memory, feature_bytes=2048))
    for seed in seeds:
        cut += bool(exact_plan(random_arranged(seed, sides=(8, 14)), config).cuts)
    assert cut >= len(seeds) // 2


def test_what_only_an_upsampling_reads_is_one_of_the_pixels_that_it_writes() -> None:
    maker = GraphMaker((6, 5, 3))
    small = maker.convolution("x", 16, SAME)
    large = maker.nearest(small, (3, 2))
    plan = exact_plan(maker.finish(maker.convolution(large, 8, SAME)), PRESETS["ecp5-85k"])
    assert plan.views == {small: ViewPlace(large, steps=(3, 2))}
    assert plan.operations[1].written_bytes == 5 * 6 * 5 * 16
    # Around a pixel of it there would be others.
    maker = GraphMaker((6, 5, 3))
    small = maker.convolution("x", 16, SAME)
    outputs = maker.convolution(maker.nearest(small), 8, SAME), maker.convolution(small, 8, SAME)
    assert exact_plan(maker.finish(*outputs), PRESETS["ecp5-85k"]).views == {}


def test_an_upsampling_whose_rows_alone_are_repeated() -> None:
    """Pixels of a view lie side by side then, and its rows do not."""
    for table in (False, True):
        maker = GraphMaker((6, 5, 16))
        small = maker.max_pool("x", SAME, table=table)
        plan = exact_plan(maker.finish(maker.convolution(maker.nearest(small, (2, 1)), 8, SAME)), PRESETS["ecp5-85k"])
        assert [place.steps for place in plan.views.values()] == [(2, 1)]


def test_a_table_whose_rows_are_apart_is_counted_row_by_row() -> None:
    """A row of 25 bytes is two words, and the map of 150 were ten."""
    maker = GraphMaker((6, 5, 5))
    small = maker.pointwise(maker.pointwise("x"))
    plan = exact_plan(maker.finish(maker.convolution(maker.nearest(small, (2, 1)), 8, SAME)), PRESETS["ecp5-85k"])
    assert [operation.steps(6, 5, range(1)) for operation in plan.operations[:2]] == [10, 12]


def test_a_crop_is_no_view_of_what_it_reads() -> None:
    """The first row and column of both are the same, and the last ones are not."""
    maker = GraphMaker((6, 5, 3))
    large = maker.convolution("x", 16, SAME)
    plan = exact_plan(maker.finish(maker.convolution(maker.crop(large, (0, 0, 1, 2)), 8, SAME)), PRESETS["ecp5-85k"])
    assert plan.views == {}


def mirrored(height: int, width: int, channels: int) -> dict[str, np.ndarray]:
    """Arrangements of a map along any axis."""
    every = np.arange(height * width * channels).reshape(height, width, channels)
    return {
        "turned": every.swapaxes(0, 1),
        "upside down": every[::-1],
        "reflected": np.pad(every, ((2, 1), (1, 2), (0, 0)), mode="reflect"),
        "edge": np.pad(every, ((1, 2), (0, 3), (0, 0)), mode="edge"),
        "another value": np.pad(every, ((1, 1), (2, 0), (0, 0)), constant_values=-129 - 77),
        "more channels": np.pad(every, ((0, 0), (0, 0), (2, 17)), constant_values=-129 + 128),
        "every second": every[1::2, ::2],
        "rows to channels": every.reshape(height // 2, 2, width, channels)
        .swapaxes(1, 2)
        .reshape(height // 2, width, -1),
        "channels first": every.transpose(2, 0, 1),
    }


@pytest.mark.regress
@pytest.mark.parametrize("name", mirrored(2, 2, 1))
def test_arrangements_whole_and_in_parts(name: str) -> None:
    """In a memory that holds the map but not all of a layer beside it, and in one that holds all."""
    shape = 10, 8, 12
    maker = GraphMaker((*shape[:2], 3))
    moved = maker.arranged(mirrored(*shape)[name], maker.convolution("x", shape[2], SAME))
    graph = maker.finish(maker.convolution(moved, 8, SAME))
    large = PRESETS["tiny"]
    small = dataclasses.replace(large, memory=dataclasses.replace(large.memory, feature_bytes=2048))
    whole, cut = exact_plan(graph, large), exact_plan(graph, small)
    assert bool(cut.cuts) == (name != "every second")
    assert not whole.cuts


def widened(shape: tuple[int, int, int], channels: int) -> Graph:
    """A map, with more channels of one code, between convolutions."""
    every = np.arange(np.prod(shape)).reshape(shape)
    maker = GraphMaker((*shape[:2], 3))
    moved = np.pad(every, ((0, 0), (0, 0), (0, channels - shape[2])), constant_values=-129 - 77)
    wide = maker.arranged(moved, maker.convolution("x", shape[2], Window((1, 1))))
    return maker.finish(maker.convolution(wide, 8, Window((1, 1))))


def test_a_border_of_channels_is_a_clamp_beside_a_view() -> None:
    """It takes no table, and reads nothing that other commands could still write."""
    plan = exact_plan(widened((6, 5, 12), 20), PRESETS["tiny"])
    assert [*plan.views] == ["t0"]
    assert plan.operations[1].written_bytes == 6 * 5 * 8
    assert LocalMemory.TABLE not in plan.operations[1].constants
    copies = [command for command in plan.commands if command.opcode is Opcode.COMPUTE and command.layer == 1]
    assert [(command.fields["low"], command.fields["high"], len(command.reads)) for command in copies] == [(77, 77, 0)]


@pytest.mark.regress
def test_a_border_of_channels_of_a_map_that_does_not_fit_runs_in_rows() -> None:
    """A row of it is computed of the same row alone; the prediction is that of the simulated core."""
    graph, config = widened((40, 24, 12), 20), PRESETS["tiny"]
    assert graph.tensors["t0"].size_bytes > config.memory.feature_bytes
    cut, _ = exact_plan(graph, config).cuts[1]
    assert 1 <= cut.rows < 40
    found = measure(graph, config)
    assert found.counters["cycles"] == found.program.predicted_cycles


def test_what_is_surrounded_lies_inside() -> None:
    """Nothing but the border is copied, unless something else reads the map."""
    for is_read in (False, True):
        maker = GraphMaker((6, 5, 3))
        small = maker.convolution("x", 16, SAME)
        every = np.arange(6 * 5 * 16).reshape(6, 5, 16)
        large = maker.arranged(np.pad(every, ((1, 1), (1, 1), (0, 0)), mode="reflect"), small)
        outputs = [maker.convolution(large, 8, SAME), *([maker.convolution(small, 8, SAME)] if is_read else [])]
        plan = exact_plan(maker.finish(*outputs), PRESETS["ecp5-85k"])
        assert plan.views == ({} if is_read else {small: ViewPlace(large, row=1, column=1)})
        assert plan.operations[1].written_bytes == (8 * 7 - 6 * 5 * (not is_read)) * 16


def test_maps_that_are_joined_by_rows_are_written_where_they_belong() -> None:
    maker = GraphMaker((6, 5, 3))
    first, second = maker.convolution("x", 16, SAME), maker.convolution("x", 16, Window((3, 3), pads=(0, 1, 0, 1)))
    large = maker.arranged(np.arange(10 * 5 * 16).reshape(10, 5, 16), first, second)
    maker.graph.tensors[second] = dataclasses.replace(
        maker.graph.tensors[second], zero_point=maker.graph.tensors[first].zero_point
    )
    plan = exact_plan(maker.finish(maker.convolution(large, 8, SAME)), PRESETS["ecp5-85k"])
    assert plan.views == {first: ViewPlace(large), second: ViewPlace(large, row=6)}
    assert [layer.output for layer in plan.graph.layers] == [first, second, "t3"]
