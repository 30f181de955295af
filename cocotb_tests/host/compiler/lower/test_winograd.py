"""Three taps at two places by four products: the bytes of a convolution, in two thirds of its steps."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import differing_bytes, measure
from cocotb_tests.support.quantised.few_outputs import (
    WINOGRAD_ARRAYS,
    WINOGRAD_CORES,
    array,
    computes,
    name_of,
    planned,
    three_taps,
    with_winograd,
    without_zeros,
)
from cocotb_tests.support.quantised.graphs import GraphMaker
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.engines import WINOGRAD
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.memories import LocalMemory, memories
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_graph, encode, plan_graph
from lutterfly.host.compiler.lower import wide_windows, winograd
from lutterfly.host.compiler.lower.convolution import ConvolutionOperation
from lutterfly.host.compiler.lower.winograd import WinogradOperation
from lutterfly.host.compiler.operation import Job
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.graph import Window
from lutterfly.host.program import SpreadBy

SAME = Window((3, 3), pads=(1, 1, 1, 1))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is possible, whatever it costs: along the rows or the columns, as the layer's number wants."""

    def cost(operation: ConvolutionOperation, target: object) -> tuple[bool, int]:
        return not isinstance(operation, WinogradOperation), (operation.along + operation.index) % 2

    monkeypatch.setattr(wide_windows, "_cost", cost)


def of_plan(plan: Plan) -> list[WinogradOperation]:
    return [operation for operation in plan.operations if isinstance(operation, WinogradOperation)]


@pytest.mark.regress
@pytest.mark.parametrize("config", WINOGRAD_ARRAYS, ids=name_of)
@pytest.mark.parametrize("seeds", [range(30), pytest.param(range(30, 1500), marks=pytest.mark.regress)], ids=str)
def test_no_byte_differs(config: Config, seeds: range, always: None) -> None:
    along = set()
    for seed in seeds:
        graph = three_taps(seed, config.array.columns)
        plan = planned(graph, config)
        along |= {operation.along for operation in of_plan(plan)}
        assert differing_bytes(graph, encode(plan), config, order=ORDERS[seed % len(ORDERS)], seed=seed) == 0
    assert along == {0, 1}


@pytest.mark.regress
@pytest.mark.parametrize("seeds", [range(16), pytest.param(range(16, 300), marks=pytest.mark.regress)], ids=str)
def test_no_byte_differs_in_parts(seeds: range, always: None) -> None:
    """Parts begin at any row and column, and end with a pair or with one pixel."""
    config, in_parts = with_winograd(array(8, 8, 4, feature_bytes=1024)), 0
    for seed in seeds:
        graph = three_taps(seed, config.array.columns, most=18, channels=20)
        plan = planned(graph, config)
        in_parts += any(isinstance(plan.operations[index], WinogradOperation) for index in plan.cuts)
        assert differing_bytes(graph, encode(plan), config, order=ORDERS[seed % len(ORDERS)], seed=seed) == 0
    assert in_parts > len(seeds) // 4


@pytest.mark.parametrize("kernel", [(1, 3), (3, 1)], ids=str)
def test_words_with_a_weight_at_a_single_tap_are_read(kernel: tuple[int, int], always: None) -> None:
    """Blocks of channels with weights at the first tap alone, the second one and the third one, and one without any."""
    config, lanes = WINOGRAD_ARRAYS[0], WINOGRAD_ARRAYS[0].array.lanes
    maker = GraphMaker((6, 6, 4 * lanes))
    graph = without_zeros(maker.finish(maker.convolution("x", 16, Window(kernel))))
    blocks = graph.layers[0].weights.reshape(16, 3, 4, lanes)
    for block in range(4):
        blocks[:, [tap for tap in range(3) if tap != block], block] = 0
    plan = planned(graph, config)
    (operation,) = of_plan(plan)
    assert operation.places.tolist() == [[0, 0], [0, lanes], [0, 2 * lanes]]
    assert differing_bytes(graph, encode(plan), config, order=ORDERS[0]) == 0


@pytest.mark.regress
@pytest.mark.parametrize("spread_by", SpreadBy, ids=str)
def test_no_byte_differs_on_several_cores(spread_by: SpreadBy, always: None) -> None:
    config = dataclasses.replace(WINOGRAD_ARRAYS[2], cluster=ClusterConfig(2))
    for seed in range(8):
        graph = three_taps(seed, config.array.columns)
        program = compile_graph(graph, config, spread_by=spread_by)
        assert differing_bytes(graph, program, config, order=ORDERS[seed % len(ORDERS)], seed=seed) == 0


def test_two_thirds_of_the_steps_are_left() -> None:
    """As in the blocks of MLPerf Tiny's image classification."""
    maker, config = GraphMaker((8, 8, 16)), WINOGRAD_ARRAYS[0]
    graph = maker.finish(maker.convolution("x", 16, SAME))
    (operation,), (direct,) = (
        planned(graph, one).operations for one in (config, dataclasses.replace(config, engines=_without(config)))
    )
    assert isinstance(operation, WinogradOperation)
    assert operation.fold == "12 words per 2 windows, three taps by two products each"
    assert (operation.steps(8, 8, range(1)), direct.steps(8, 8, range(1))) == (12 * 32, 9 * 64)
    # What is left of a row takes a window more.
    assert operation.steps(8, 7, range(1)) == 12 * 32
    assert operation.connectivity.connections == direct.connectivity.connections
    predictions = [plan_graph(graph, one).predictions[0] for one in (config, WINOGRAD_ARRAYS[2])]
    assert {prediction.macs for prediction in predictions} == {8 * 8 * 9 * 16 * 16}


def _without(config: Config):
    return config.engines.without(WINOGRAD)


@pytest.mark.parametrize(("size", "along"), [((8, 8), 1), ((8, 7), 0), ((7, 8), 1), ((1, 8), 1), ((8, 1), 0)], ids=str)
def test_pairs_lie_along_the_even_side(size: tuple[int, int], along: int) -> None:
    maker = GraphMaker((*size, 16))
    (operation,) = planned(maker.finish(maker.convolution("x", 16, SAME)), WINOGRAD_ARRAYS[0]).operations
    assert isinstance(operation, WinogradOperation)
    assert operation.along == along


@pytest.mark.parametrize(
    ("size", "window"),
    [((1, 8), Window((3, 1), pads=(1, 0, 1, 0))), ((8, 1), Window((1, 3), pads=(0, 1, 0, 1)))],
    ids=str,
)
def test_a_pixel_without_a_neighbour_is_no_pair(size: tuple[int, int], window: Window, always: None) -> None:
    maker = GraphMaker((*size, 32))
    assert of_plan(planned(maker.finish(maker.convolution("x", 16, window)), WINOGRAD_ARRAYS[0])) == []


@pytest.mark.parametrize(
    ("window", "is_taken"),
    [
        (Window((3, 3), pads=(1, 1, 1, 1)), True),
        (Window((5, 3), (2, 1), (3, 1), (6, 1, 6, 1)), True),
        (Window((3, 1), pads=(1, 0, 1, 0)), True),
        (Window((3, 3), (2, 2), pads=(1, 1, 1, 1)), False),
        (Window((3, 3), (1, 1), (2, 2), (2, 2, 2, 2)), False),
        (Window((1, 1)), False),
        (Window((5, 5), pads=(2, 2, 2, 2)), False),
    ],
    ids=str,
)
def test_three_taps_side_by_side_are_taken(window: Window, is_taken: bool) -> None:
    # Of a single group the results would take as long as its steps.
    maker = GraphMaker((12, 12, 32 if 1 in window.kernel else 16))
    (operation,) = planned(maker.finish(maker.convolution("x", 16, window)), WINOGRAD_ARRAYS[0]).operations
    assert isinstance(operation, WinogradOperation) == is_taken


def test_results_that_would_hold_a_window_back_are_not_asked_for(always: None) -> None:
    """Eight groups of two results: a window may take five cycles."""
    config = with_winograd(array(16, 16, 2))
    maker = GraphMaker((12, 12, 16))
    assert of_plan(planned(maker.finish(maker.convolution("x", 16, SAME)), config)) == []
    maker = GraphMaker((12, 12, 16))
    assert of_plan(planned(maker.finish(maker.convolution("x", 4, SAME)), config))


def test_totals_that_could_overflow_are_added_up_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = GraphMaker((4, 4, 16))
    graph = maker.finish(maker.convolution("x", 16, SAME))
    most = int(np.abs(graph.layers[-1].weights.astype(int)).sum((1, 2, 3)).max()) * 128
    for limit, count in ((most, 1), (most - 1, 0)):
        monkeypatch.setattr(winograd.winograd, "MOST_TOTAL", limit)
        assert len(of_plan(planned(graph, WINOGRAD_ARRAYS[0]))) == count


@pytest.mark.parametrize(
    ("memory", "count"),
    # 144 weight words of 256 bytes, and lists of as many entries for one output and for both: a quarter of the memory.
    [({}, 1), ({"weight_bytes": 64 << 10}, 0), ({"list_entries": 512}, 0)],
    ids=str,
)
def test_there_is_room_for_lists_and_weights(memory: dict[str, int], count: int) -> None:
    sizes = {"weight_bytes": 128 << 10, "list_entries": 2048, "feature_bytes": 64 << 10} | memory
    maker = GraphMaker((6, 6, 192))
    graph = maker.finish(maker.convolution("x", 16, SAME))
    assert len(of_plan(planned(graph, with_winograd(array(16, 16, 8, **sizes))))) == count


@pytest.mark.regress
def test_any_part_reads_and_writes_what_windows_of_single_pixels_do(always: None) -> None:
    """So no byte beside the output is written, and nothing is waited for that is not needed."""
    rng, config, parts = np.random.default_rng(0), WINOGRAD_ARRAYS[2], 0
    addresses = dict.fromkeys(memories(config), 0)
    for seed in range(40):
        graph = without_zeros(three_taps(seed, config.array.columns))
        plan = planned(graph, config)
        for operation in of_plan(plan):
            index, sources, target = operation.index, operation.sources, operation.target
            height, width, _ = plan.graph.tensors[operation.layer.output].shape
            rows, columns = (range(int(rng.integers(size)), size) for size in (height, width))
            job = Job(index, sources, target, rows, columns, range(operation.tiles), addresses=addresses)
            direct = ConvolutionOperation(plan, index, sources, target).lower(job)
            commands = operation.lower(job)
            for name in ("reads", "writes"):
                wanted, found = (
                    np.concatenate([getattr(command, name) for command in some]) for some in (direct, commands)
                )
                np.testing.assert_array_equal(np.unique(found), np.unique(wanted))
            parts += 1
    assert parts > 20


def test_inputs_without_a_connection_are_not_waited_for(always: None) -> None:
    """Every pixel is read, with the channels of the last block alone."""
    maker = GraphMaker((6, 6, 32))
    graph = without_zeros(maker.finish(maker.convolution("x", 16, Window((3, 3)))))
    graph.layers[0].weights[..., :16] = 0
    plan = planned(graph, with_winograd(array(16, 16, 8)))
    (operation,) = of_plan(plan)
    read = np.concatenate([command.reads for command in computes(plan, 0)])
    wanted = operation.sources[0].addresses(range(6), range(6), range(16, 32))
    np.testing.assert_array_equal(np.unique(read), np.unique(wanted))


@pytest.mark.regress
def test_no_word_begins_after_the_last_byte_that_a_command_needs(always: None) -> None:
    """Else it could lie beyond the memory: so would the last input of a single output."""
    config, single = WINOGRAD_ARRAYS[1], 0
    for seed in range(40):
        graph = without_zeros(three_taps(seed, config.array.columns))
        plan = planned(graph, config)
        lists = plan.images.get(LocalMemory.LIST, b"")
        for operation in of_plan(plan):
            for command in computes(plan, operation.index):
                fields = command.fields
                entries = np.frombuffer(lists, "<u4")[fields["list"] :][: fields["steps"]] & 0xFFFF
                last = fields["source"] + sum(
                    (fields[loop] - 1) * fields[f"source_{loop}"] for loop in ("outer", "middle", "inner")
                )
                assert last + int(entries.max()) <= command.reads.max()
                single += not fields["further"]
    assert single > 10


@pytest.mark.regress
@pytest.mark.parametrize("config", sweep(WINOGRAD_CORES, kept=WINOGRAD_CORES[1:]), ids=name_of)
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 80), marks=pytest.mark.regress)], ids=str)
def test_bytes_and_cycles_on_the_core(config: Config, seeds: range, always: None) -> None:
    count = 0
    for seed in seeds:
        measured = measure(three_taps(seed, config.array.columns), config, seed=seed)
        count += sum("three taps" in layer.fold for layer in measured.program.layers)
        for layer, cycles in zip(measured.program.layers, measured.layer_cycles, strict=True):
            assert abs(layer.cycles - cycles) <= max(16, 0.003 * cycles), (seed, layer.name, layer.cycles, cycles)
    assert count >= len(seeds) // 4


def test_a_network_is_as_before_without_the_engine() -> None:
    config = PRESETS["ecp5-85k"]
    maker = GraphMaker((8, 8, 16))
    assert of_plan(plan_graph(maker.finish(maker.convolution("x", 16, SAME)), config)) == []
