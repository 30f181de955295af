"""Wide windows: several neighbouring pixels in one, with the bytes that a window for each gives, in fewer cycles."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.networks.blocks import few_outputs
from cocotb_tests.support.networks.generated import Generated
from cocotb_tests.support.oracles.exactness import PATIENT, assert_exact, assert_right, kept, needs_reference
from cocotb_tests.support.oracles.execution import differing_bytes
from cocotb_tests.support.quantised.few_outputs import (
    ARRAYS,
    array,
    computes,
    first_layer,
    name_of,
    neighbours,
    planned,
    without_zeros,
)
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.memories import LocalMemory, memories
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_graph, encode, plan_graph
from lutterfly.host.compiler.lower import wide_windows
from lutterfly.host.compiler.operation import Job
from lutterfly.host.graph import Window
from lutterfly.host.program import SpreadBy
from lutterfly.host.session.verify import verify


@pytest.fixture
def widest(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many pixels in a window as possible, whatever they cost."""
    monkeypatch.setattr(wide_windows, "_cost", lambda operation, target: -operation.pixels)


@pytest.mark.regress
@pytest.mark.parametrize("config", ARRAYS, ids=name_of)
@pytest.mark.parametrize("seeds", [range(24), pytest.param(range(24, 1500), marks=pytest.mark.regress)], ids=str)
def test_no_byte_differs(config: Config, seeds: range, widest: None) -> None:
    pixels = set()
    for seed in seeds:
        graph = neighbours(seed, config.array.columns)
        plan = planned(graph, config)
        pixels |= {operation.pixels for operation in plan.operations}
        assert differing_bytes(graph, encode(plan), config, order=ORDERS[seed % len(ORDERS)], seed=seed) == 0
    assert {1, 2, 4} <= pixels


@pytest.mark.regress
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 300), marks=pytest.mark.regress)], ids=str)
def test_no_byte_differs_in_parts(seeds: range, widest: None) -> None:
    """Parts begin at any column, and end with any number of pixels."""
    config, in_parts = array(8, 8, 4, feature_bytes=512), 0
    for seed in seeds:
        graph = neighbours(seed, config.array.columns, most=20)
        plan = planned(graph, config)
        in_parts += any(plan.operations[index].pixels > 1 for index in plan.cuts)
        assert differing_bytes(graph, encode(plan), config, order=ORDERS[seed % len(ORDERS)], seed=seed) == 0
    assert in_parts > len(seeds) // 3


@pytest.mark.regress
@pytest.mark.parametrize("spread_by", SpreadBy, ids=str)
def test_no_byte_differs_on_several_cores(spread_by: SpreadBy, widest: None) -> None:
    config = dataclasses.replace(ARRAYS[1], cluster=ClusterConfig(2))
    for seed in range(8):
        graph = neighbours(seed, config.array.columns)
        program = compile_graph(graph, config, spread_by=spread_by)
        assert differing_bytes(graph, program, config, order=ORDERS[seed % len(ORDERS)], seed=seed) == 0


def test_two_neighbours_share_the_words_of_a_first_layer() -> None:
    """As in MLPerf Tiny's visual wake words: half of the windows, with as many words each."""
    config, graph = array(16, 16, 8), first_layer()
    plan, narrow = plan_graph(graph, config), planned(graph, config, wide=False)
    (operation,), (one,) = plan.operations, narrow.operations
    assert operation.fold == "2 pixels a window, 3 words per window, 94% useful"
    assert (operation.steps(6, 6, range(1)), one.steps(6, 6, range(1))) == (3 * 6 * 3, 3 * 6 * 6)
    # What is left of a row takes a window more.
    assert operation.steps(6, 5, range(1)) == 3 * 6 * 3
    assert plan.predictions[0].macs == narrow.predictions[0].macs == 6 * 6 * 27 * 8
    assert operation.connectivity.connections == one.connectivity.connections == 8 * 3
    assert operation.connectivity.dense_words == operation.connectivity.words == 3


@pytest.mark.parametrize("width", [12, 14])
def test_what_is_left_of_a_row_is_a_command_of_its_own(width: int) -> None:
    config = array(16, 16, 8)
    plan = planned(first_layer(size=(12, width)), config)
    (operation,) = plan.operations
    assert operation.pixels == 2
    lanes = [command.fields["lanes"] for command in computes(plan, 0)]
    assert {*lanes} == ({16} if width == 12 else {16, 8})
    written = np.concatenate([command.writes for command in computes(plan, 0)])
    # Each byte once.
    assert np.unique(written).size == written.size == 6 * (width // 2) * 8


@pytest.mark.regress
def test_any_part_reads_and_writes_what_windows_of_single_pixels_do(widest: None) -> None:
    """So no byte beside the output is written, and nothing is waited for that is not needed."""
    rng, config, parts = np.random.default_rng(0), array(8, 8, 4), 0
    addresses = dict.fromkeys(memories(config), 0)
    for seed in range(40):
        graph = without_zeros(neighbours(seed, config.array.columns))
        plan = planned(graph, config)
        for index, operation in enumerate(plan.operations):
            if operation.pixels == 1:
                continue
            sources, target = operation.sources, operation.target
            height, width, _ = plan.graph.tensors[operation.layer.output].shape
            rows, columns = (range(int(rng.integers(size)), size) for size in (height, width))
            job = Job(index, sources, target, rows, columns, range(1), addresses=addresses)
            (one,) = wide_windows.ConvolutionOperation(plan, index, sources, target).lower(job)
            commands = operation.lower(job)
            for wanted, found in (
                (one.reads, np.concatenate([command.reads for command in commands])),
                (one.writes, np.concatenate([command.writes for command in commands])),
            ):
                np.testing.assert_array_equal(np.unique(found), np.unique(wanted))
            parts += 1
    assert parts > 20


@pytest.mark.regress
def test_no_word_begins_after_the_last_byte_that_a_command_needs(widest: None) -> None:
    """Else it could lie beyond the memory: so would those of what is left of a row."""
    config, shorter = array(4, 4, 1), 0
    for seed in range(40):
        plan = planned(neighbours(seed, config.array.columns), config)
        lists = plan.images.get(LocalMemory.LIST, b"")
        for index, operation in enumerate(plan.operations):
            for command in computes(plan, index) if operation.pixels > 1 else ():
                fields = command.fields
                entries = np.frombuffer(lists, "<u4")[fields["list"] :][: fields["steps"]] & 0xFFFF
                last = fields["source"] + sum(
                    (fields[loop] - 1) * fields[f"source_{loop}"] for loop in ("outer", "middle", "inner")
                )
                assert last + int(entries.max()) <= command.reads.max()
                shorter += fields["lanes"] < operation.pixels * operation.output_channels
    assert shorter > 5


@pytest.mark.parametrize(
    ("change", "pixels"),
    [({}, 2), ({"pixel_bytes": 9}, 1), ({"bits": 1, "pixel_bytes": 8}, 1), ({"width": 1}, 1)],
    ids=str,
)
def test_only_whole_codes_that_lie_side_by_side_come_of_one_window(
    change: dict[str, int], pixels: int, widest: None
) -> None:
    plan = planned(first_layer(), array(16, 16, 8))
    sources, target = (plan.storages["x"],), plan.storages["t0"]
    operation = wide_windows.make_convolution(plan, 0, sources, dataclasses.replace(target, **change))
    assert operation.pixels == pixels


@pytest.mark.parametrize(
    ("outputs", "width", "most"),
    [(1, 40, 16), (3, 40, 5), (8, 40, 2), (9, 40, 1), (16, 40, 1), (17, 40, 1), (1, 3, 3), (1, 1, 1)],
)
def test_there_are_as_many_pixels_as_columns_and_rows_hold(outputs: int, width: int, most: int, widest: None) -> None:
    maker = GraphMaker((4, width, 2))
    graph = maker.finish(maker.convolution("x", outputs, Window((1, 1))))
    assert planned(graph, array(16, 16, 8)).operations[0].pixels == most


@pytest.mark.parametrize(("pads", "pixels"), [((0, 2), 4), ((2, 2), 4), ((1, 0), 3)])
def test_windows_are_no_wider_than_rows_are_apart(pads: tuple[int, int], pixels: int, widest: None) -> None:
    """Two rows of a kernel never have weights for one byte: of six pixels with a border on both sides, four."""
    maker, (left, right) = GraphMaker((9, 4, 1)), pads
    graph = maker.finish(maker.convolution("x", 1, Window((2, 3), pads=(0, left, 0, right))))
    assert planned(graph, array(16, 16, 8)).operations[0].pixels == pixels


@pytest.mark.parametrize(
    ("memory", "pixels"),
    [
        ({}, 4),
        # Lists for four and for fewer pixels; a quarter of the memory.
        ({"list_entries": 128}, 2),
        ({"weight_bytes": 512}, 3),
    ],
)
def test_there_is_room_for_lists_and_weights(memory: dict[str, int], pixels: int, widest: None) -> None:
    maker = GraphMaker((6, 11, 4))
    graph = maker.finish(maker.convolution("x", 1, Window((3, 3))))
    assert planned(graph, array(4, 4, 1, **memory)).operations[0].pixels == pixels


def test_averages_whose_border_does_not_count_are_wide_in_every_border_class(widest: None) -> None:
    maker, config = GraphMaker((7, 11, 1)), array(8, 8, 4)
    graph = maker.finish(maker.average_pool("x", Window((3, 3), (1, 2), pads=(1, 1, 1, 1))))
    plan = planned(graph, config)
    assert plan.operations[0].pixels == 5
    assert plan.operations[0].fold.endswith("border classes")
    for order in ORDERS:
        assert differing_bytes(graph, encode(plan), config, order=order) == 0


def test_dead_channels_are_skipped_in_wide_windows_as_well() -> None:
    config, graph = array(16, 16, 8), first_layer()
    (layer,) = graph.layers
    layer.weights[:, 1] = 0
    plan = planned(graph, config)
    assert plan.operations[0].fold == "2 pixels a window, 2 of 3 words, 67% of all"
    assert differing_bytes(graph, encode(plan), config, order=ORDERS[0]) == 0


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("config", ARRAYS[:2], ids=name_of)
def test_the_bytes_are_onnx_runtimes(config: Config) -> None:
    pixels = set()

    @given(network=few_outputs(), order=st.sampled_from(ORDERS))
    @settings(PATIENT, max_examples=25, derandomize=True)
    def execute(network: Generated, order: str) -> None:
        with kept(network, f"wide_windows_{name_of(config)}"):
            graph = assert_exact(network.model, network.feeds(0))
            plan = plan_graph(graph, config)
            pixels.update(operation.pixels for operation in plan.operations)
            assert differing_bytes(graph, encode(plan), config, order=order) == 0

    execute()
    assert len(pixels) > 2


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize(("preset", "most"), [("tiny", 1), ("ecp5-85k", 4)])
def test_bytes_and_cycles_on_the_core(preset: str, most: int) -> None:
    texts = []

    @given(network=few_outputs(most=most))
    @settings(PATIENT, max_examples=10, derandomize=True)
    def execute(network: Generated) -> None:
        with kept(network, f"wide_windows_on_the_core_{preset}"):
            found = verify(network.model, PRESETS[preset], samples=1)
            assert_right(found)
            texts.extend(layer.fold for layer in found.program.layers)

    execute()
    assert sum("pixels a window" in text for text in texts) > 2
