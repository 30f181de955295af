"""Binary layers: programs on the golden machine against their float evaluation, on wide and on narrow arrays."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import differing_bytes
from cocotb_tests.support.quantised.evaluation import evaluate_float
from cocotb_tests.support.quantised.graphs import BinaryGraphMaker, random_binary_graph
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.engines import BINARY_MAXIMUM, DEPTHWISE, ENGINES, MAXIMUM, XNOR, EngineConfigs
from lutterfly.golden.engines.engine import Engine
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.machine import dma
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import CompileError, compile_graph, plan_graph
from lutterfly.host.compiler.lower.windows import cover_runs
from lutterfly.host.compiler.schedule.dma import fill_border
from lutterfly.host.graph import Window
from lutterfly.host.graph.evaluate import evaluate

CONFIGS = {
    name: dataclasses.replace(
        PRESETS[name],
        engines=EngineConfigs.of(*ENGINES.values(), DEPTHWISE=PRESETS[name].engines[DEPTHWISE], FPC=FpcConfig(2)),
    )
    for name in ("tiny", "ecp5-85k", "large")
}
SAME = Window((3, 3), pads=(1, 1, 1, 1))


@pytest.mark.sampled(9)
@pytest.mark.parametrize("seed", sweep(range(60), kept=range(20)))
@pytest.mark.parametrize("name", CONFIGS)
def test_random_graphs(name: str, seed: int) -> None:
    graph, config = random_binary_graph(seed), CONFIGS[name]
    inputs = {"x": np.random.default_rng(seed).integers(-128, 128, graph.tensors["x"].shape, dtype=np.int8)}
    expected, found = evaluate_float(graph, inputs), evaluate(graph, inputs)
    for tensor, codes in expected.items():
        np.testing.assert_array_equal(found[tensor], codes, tensor)
    program = compile_graph(graph, config)
    assert differing_bytes(graph, program, config, order=ORDERS[seed % len(ORDERS)], seed=seed) == 0


@pytest.mark.parametrize("name", CONFIGS)
def test_windows_of_pooling_that_lie_in_the_border_alone(name: str) -> None:
    maker = BinaryGraphMaker((4, 5, 2))
    bits = maker.to_bits(maker.convolution("x", 13, Window((1, 1))))
    graph = maker.finish(maker.to_bits(maker.max_pool(bits, Window((1, 2), (1, 1), pads=(1, 2, 2, 2)))))
    assert differing_bytes(graph, compile_graph(graph, CONFIGS[name]), CONFIGS[name], order="random") == 0


@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize("seed", range(20))
def test_words_hold_runs_alone(lanes: int, seed: int) -> None:
    offsets = np.flatnonzero(np.random.default_rng(seed).random(150) < 0.8)
    starts, counts = cover_runs(offsets.reshape(-1, 1), lanes)
    held = [start + byte for start, count in zip(starts, counts, strict=True) for byte in range(count)]
    assert held == offsets.tolist()
    assert 1 <= counts.min() <= counts.max() <= lanes
    # None that the one before could hold as well.
    runs = np.split(offsets, np.flatnonzero(np.diff(offsets) > 1) + 1)
    assert len(starts) == sum(-(-len(run) // lanes) for run in runs)


@pytest.mark.parametrize("channels", [5, 8, 12, 16])
@pytest.mark.parametrize("pad", [1, -1])
def test_a_border_holds_the_pad_value_and_no_other_bits(channels: int, pad: int) -> None:
    maker = BinaryGraphMaker((3, 4, 2))
    name = maker.to_bits(maker.convolution("x", channels, Window((1, 1))))
    graph = maker.finish(maker.binary_convolution(name, 8, Window((3, 3), pads=(1, 2, 1, 1)), pad=pad))
    plan = plan_graph(graph, CONFIGS["ecp5-85k"])
    storage, pixel = plan.storages[name], -(-channels // 8)
    feature = np.full(CONFIGS["ecp5-85k"].memory.feature_bytes, 0xAA, np.uint8)
    for command in fill_border(storage, graph.tensors[name]):
        dma.fill(command.fields, feature)
    expected = ((1 << channels) - 1 if pad == 1 else 0).to_bytes(pixel, "little")
    for row in range(-1, 4):
        for column in range(-2, 5):
            at = storage.first + row * storage.row_pitch + column * storage.pixel_pitch
            inside = row in range(3) and column in range(4)
            assert feature[at : at + pixel].tobytes() == (b"\xaa" * pixel if inside else expected)


def test_one_border_for_all_who_want_the_same_and_classes_for_who_does_not() -> None:
    for pads, classes in (((1, 1), (0, 0)), ((-1, -1), (0, 0)), ((1, -1), (9, 0)), ((0, 1), (9, 9)), ((0, -1), (9, 0))):
        maker = BinaryGraphMaker((6, 6, 2))
        name = maker.to_bits(maker.convolution("x", 16, Window((1, 1))))
        outputs = [maker.binary_convolution(name, 8, SAME, pad=pad) for pad in pads]
        plan = plan_graph(maker.finish(*outputs), CONFIGS["ecp5-85k"])
        found = [operation.classes for operation in plan.operations if hasattr(operation, "classes")]
        assert tuple(map(len, found)) == classes, pads


def test_eight_binary_products_are_the_work_of_a_multiplier() -> None:
    maker = BinaryGraphMaker((16, 16, 64))
    graph = maker.finish(maker.binary_convolution(maker.signs("x"), 64, SAME))
    config = CONFIGS["ecp5-85k"]
    program = compile_graph(graph, config)
    layer = program.layers[-1]
    assert layer.macs == 16 * 16 * 9 * 64 * 64
    assert layer.multiplier_cycles == layer.macs / 8
    assert layer.macs / config.multipliers > program.predicted_cycles
    assert 0.4 < program.utilisation(program.predicted_cycles, config.multipliers) < 0.75


def test_slices_that_end_within_a_byte_are_refused() -> None:
    maker = BinaryGraphMaker((3, 4, 2))
    name = maker.to_bits(maker.convolution("x", 24, Window((1, 1))))
    graph = maker.finish(maker.to_bits(maker.slice(name, 8, 5)))
    message = (
        r"^slice_t1: channel 13 of t0 must begin at a byte, not within one, with 1 bits an element; let a multiple"
    )
    with pytest.raises(CompileError, match=message):
        plan_graph(graph, CONFIGS["ecp5-85k"])


@pytest.mark.parametrize(
    ("left_out", "layer"),
    [(XNOR, "binary_t1"), (BINARY_MAXIMUM, "pool_t2"), (MAXIMUM, "signs_t0")],
)
def test_an_engine_that_is_not_there_is_named(left_out: Engine, layer: str) -> None:
    maker = BinaryGraphMaker((6, 6, 9))
    name = maker.binary_convolution(maker.signs("x"), 9, SAME)
    graph = maker.finish(maker.to_bits(maker.max_pool(name, Window((2, 2)))))
    engines = CONFIGS["tiny"].engines.without(left_out)
    config = dataclasses.replace(CONFIGS["tiny"], engines=engines)
    with pytest.raises(
        CompileError, match=rf"^{layer}: engines must include {left_out.name} for this layer, not MAC, "
    ):
        plan_graph(graph, config)


@pytest.mark.regress
@pytest.mark.parametrize(("channels", "is_tile_major"), [(16, False), (80, True), (300, True)])
def test_parameters_of_border_classes_that_do_not_fit_come_tile_by_tile(channels: int, is_tile_major: bool) -> None:
    maker = BinaryGraphMaker((6, 6, 2))
    name = maker.to_bits(maker.convolution("x", channels, Window((1, 1))))
    graph, config = maker.finish(maker.binary_convolution(name, channels, SAME, pad=0)), CONFIGS["tiny"]
    plan = plan_graph(graph, config)
    assert plan.operations[-1].is_tile_major is is_tile_major
    assert differing_bytes(graph, compile_graph(graph, config), config, order="random") == 0


@pytest.mark.regress
@pytest.mark.parametrize(("channels", "weight_bytes"), [(256, 8 << 10), (1024, 16 << 10)])
def test_parameters_of_border_classes_that_stay_are_found_when_tiles_come_one_by_one(
    channels: int, weight_bytes: int
) -> None:
    """All parameters stay, class by class, while each tile's weights are streamed."""
    maker, config = BinaryGraphMaker((3, 3, 2)), CONFIGS["ecp5-85k"]
    config = dataclasses.replace(config, memory=dataclasses.replace(config.memory, weight_bytes=weight_bytes))
    name = maker.to_bits(maker.convolution("x", channels, Window((1, 1))))
    graph = maker.finish(maker.binary_convolution(name, 24, SAME, pad=0))
    plan = plan_graph(graph, config)
    operation = plan.operations[-1]
    assert not operation.is_tile_major
    assert operation.tiles > 1
    assert {command.fields["outer"] for command in plan.computes[-1]} == {1}
    for order in ORDERS:
        assert differing_bytes(graph, compile_graph(graph, config), config, order=order) == 0
