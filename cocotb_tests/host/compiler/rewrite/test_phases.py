"""Layers that give each phase of a map: no copy, no zero multiplied, and the bytes of one layer for all."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import exact_plan, measure
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import plan_graph
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.compiler.rewrite import phases
from lutterfly.host.graph import Graph, Window
from lutterfly.host.model.executed import Transposed

CONFIG = PRESETS["ecp5-85k"]
SAME = Window((3, 3), pads=(1, 1, 1, 1))
POINT = Window((1, 1))


def shuffled(channels: int, *, phases_first: bool, table: bool = False, read_twice: bool = False) -> Graph:
    """Depth to space of a convolution, between others."""
    maker = GraphMaker((6, 5, 3))
    wide = maker.convolution(maker.convolution("x", 16, SAME), 4 * channels, SAME, table=table)
    large = maker.depth_to_space(wide, phases_first=phases_first)
    outputs = [maker.convolution(large, 8, SAME)]
    return maker.finish(*outputs, *([maker.convolution(wide, 4, POINT)] if read_twice else []))


def names(plan: Plan) -> list[str]:
    return [layer.name for layer in plan.graph.layers]


@pytest.mark.parametrize("phases_first", [False, True])
@pytest.mark.parametrize("table", [False, True])
def test_a_convolution_for_each_phase_writes_where_it_belongs(phases_first: bool, table: bool) -> None:
    plan = exact_plan(shuffled(8, phases_first=phases_first, table=table), CONFIG)
    assert names(plan) == ["conv_t0", "conv_t1 phase 0", "conv_t1 phase 1", "conv_t1 phase 2", "conv_t1", "conv_t3"]
    assert {place.steps for place in plan.views.values()} == {(2, 2)}
    assert len({(place.row, place.column) for place in plan.views.values()}) == 4


def test_few_channels_are_computed_together_and_lie_side_by_side() -> None:
    """Three channels of each phase would be four tiles of the array instead of two."""
    together, apart = (exact_plan(shuffled(3, phases_first=first), CONFIG) for first in (True, False))
    for plan in (together, apart):
        assert names(plan) == ["conv_t0", "conv_t1", "arranged_t2", "conv_t3"]
        assert all(part.step == 1 for part in plan.graph.layers[2].selections(plan.graph.tensors))
    assert (together.graph.tensors["t1"].order, apart.graph.tensors["t1"].order) == (
        (),
        tuple(np.arange(12).reshape(3, 4).T.reshape(-1).tolist()),
    )
    assert abs(together.predicted_cycles - apart.predicted_cycles) <= 2


def test_what_another_layer_reads_is_computed_as_one() -> None:
    plan = exact_plan(shuffled(8, phases_first=True, read_twice=True), CONFIG)
    assert "conv_t1 phase 0" not in names(plan)
    assert "arranged_t2" in names(plan)


def test_an_output_is_computed_as_one() -> None:
    maker = GraphMaker((6, 5, 3))
    wide = maker.convolution(maker.convolution("x", 16, SAME), 32, SAME)
    graph = maker.finish(wide, maker.convolution(maker.depth_to_space(wide), 8, SAME))
    assert names(exact_plan(graph, CONFIG)) == ["conv_t0", "conv_t1", "arranged_t2", "conv_t3"]


def test_groups_are_taken_apart_within_each() -> None:
    maker = GraphMaker((6, 5, 3))
    wide = maker.depthwise(maker.convolution("x", 8, SAME), SAME, multiplier=4)
    plan = exact_plan(maker.finish(maker.convolution(maker.depth_to_space(wide, phases_first=False), 8, SAME)), CONFIG)
    parts = [layer for layer in plan.graph.layers if layer.name.startswith("conv_t1")]
    assert [layer.kind((6, 5, 8), (6, 5, 8)) for layer in parts] == ["depthwise"] * 4
    # The channels of one phase are of two groups, and there is no layer for them.
    maker = GraphMaker((6, 5, 3))
    wide = maker.depthwise(maker.convolution("x", 8, SAME), SAME, multiplier=4)
    plan = exact_plan(maker.finish(maker.convolution(maker.depth_to_space(wide), 8, SAME)), CONFIG)
    assert names(plan) == ["conv_t0", "conv_t1", "arranged_t2", "conv_t3"]


def test_no_zero_is_multiplied() -> None:
    """Each phase of a transposed convolution of 4x4 by 2 has 2x2 of the 3x3 elements of the window."""
    graph = shuffled(8, phases_first=True)
    weights = graph.layers[1].weights.copy()
    for phase in range(4):
        row, column = divmod(phase, 2)
        part = weights[8 * phase : 8 * phase + 8]
        part[:, 2 - 2 * row], part[:, :, 2 - 2 * column] = 0, 0
    sparse = dataclasses.replace(graph, layers=[*graph.layers])
    sparse.layers[1] = dataclasses.replace(graph.layers[1], weights=weights)
    whole, left = (exact_plan(one, CONFIG) for one in (graph, sparse))
    steps = [
        sum(operation.steps(6, 5, range(operation.tiles)) for operation in plan.operations[1:5])
        for plan in (whole, left)
    ]
    assert steps == [4 * 30 * 9, 4 * 30 * 4]
    # Nor is one counted.
    assert sum(layer.macs for layer in left.predictions[1:5]) == 4 * 30 * 4 * 16 * 8


def test_the_first_layer_begins_while_its_input_arrives() -> None:
    maker = GraphMaker((6, 5, 3))
    large = maker.depth_to_space(maker.convolution("x", 32, SAME))
    plan = plan_graph(maker.finish(maker.convolution(large, 8, SAME)), CONFIG)
    assert names(plan) == ["conv_t0", "arranged_t1", "conv_t2"]


@pytest.mark.demo_core
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kernel", "cycles", "copied"), [(2, 4_100, 2_092), (4, 16_388, 2_092)])
def test_a_transposed_convolution_takes_the_cycles_of_its_phases(
    monkeypatch: pytest.MonkeyPatch, kernel: int, cycles: int, copied: int
) -> None:
    """From 16x16x32 to 32x32x16, on the simulated core; and with a copy."""
    geometry = Transposed((kernel,) * 2, (2, 2), (1, 1), (kernel // 2 - 1,) * 2, (16, 16), (32, 32))
    maker = GraphMaker((16, 16, 8))
    weights = geometry.weights(maker.rng.integers(-127, 128, (32, 16, kernel, kernel), np.int8)).transpose(0, 2, 3, 1)
    window = Window(weights.shape[1:3], pads=geometry.pads)
    wide = maker.convolution(maker.convolution("x", 32, SAME), 64, window)
    maker.graph.layers[-1] = dataclasses.replace(maker.graph.layers[-1], weights=np.ascontiguousarray(weights))
    graph = maker.finish(maker.convolution(maker.depth_to_space(wide), 8, POINT))
    found = measure(graph, CONFIG)
    assert abs(sum(found.layer_cycles[1:5]) - cycles) <= 2
    monkeypatch.setattr(phases, "_is_worth_it", lambda *_: False)
    program = measure(graph, CONFIG).program
    assert [layer.cycles for layer in program.layers if layer.name == "arranged_t2"] == [copied]
