"""Networks with connections that are off, on the simulated core: ONNX Runtime's bytes, and no cycle for them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.networks.families import network, on_their_cores
from cocotb_tests.support.networks.pruning import pruned
from cocotb_tests.support.oracles.exactness import needs_reference
from cocotb_tests.support.oracles.execution import Measured, measure
from cocotb_tests.support.oracles.trials import REFUSED, judge
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import plan_graph
from lutterfly.host.graph import Convolution, Graph, Window
from lutterfly.host.session.compare import TOLERANCE, TOLERANCE_CYCLES

SAME = Window((3, 3), pads=(1, 1, 1, 1))
DEFAULT = PRESETS["ecp5-85k"]
#: Networks of the second source that meet, with connections off: residual sums, concatenations, pooling and depthwise
#: layers with channels in another order; commands for several tiles and for one; weights that are streamed; layers in
#: parts; tiles inside pixels; groups.
QUICK = (2, 3, 4, 11, 16, 27, 34, 36, 42, 58, 63, 94, 100, 104, 127, 146, 151, 156, 159)


def assert_predicted(measured: Measured) -> None:
    for layer, cycles in zip(measured.program.layers, measured.layer_cycles, strict=True):
        assert abs(layer.cycles - cycles) <= max(TOLERANCE_CYCLES, TOLERANCE * cycles), (layer.name, cycles)


def right(seed: int) -> bool:
    """Whether a pruned network has all of ONNX Runtime's bytes and the predicted cycles; False if it is refused."""
    found = network(seed)
    problem, verification = judge(pruned(found.model, seed), found.config, found.batch)
    if problem.startswith(REFUSED) and found.config_name not in PRESETS:
        return False
    assert not problem, found.text
    if found.config_name in PRESETS:
        assert [layer for layer in verification.layers if not layer.is_right] == []
    return True


@needs_reference
@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", on_their_cores(QUICK))
def test_pruned_networks_on_the_core(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third one with channels in the order of the model."""
    if seed % 3 == 0:
        monkeypatch.setattr("lutterfly.host.compiler.search.permuted", lambda *_: None)
    assert right(seed)


@needs_reference
@pytest.mark.regress
@pytest.mark.parametrize("block", range(60))
@pytest.mark.parametrize("permute", [True, False])
def test_many_pruned_networks_on_the_core(block: int, permute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not permute:
        monkeypatch.setattr("lutterfly.host.compiler.search.permuted", lambda *_: None)
    answers = [right(seed) for seed in range(10 * block, 10 * block + 10)]
    assert sum(answers) >= 8


def with_blocks(graph: Graph, density: float, seed: int = 0) -> Graph:
    """All layers but the first with so many of their blocks of 16 inputs and 8 outputs."""
    rng, layers = np.random.default_rng(seed), list(graph.layers)
    for number, layer in enumerate(graph.layers):
        if isinstance(layer, Convolution) and layer.groups == 1:
            weights = np.where(layer.weights == 0, np.int8(1), layer.weights)
            outputs, inputs = weights.shape[::3]
            shape = -(-outputs // 8), -(-inputs // 16)
            if number:
                chosen = rng.permutation(shape[0] * shape[1]) < round(density * shape[0] * shape[1])
                kept = chosen.reshape(shape).repeat(8, axis=0)[:outputs].repeat(16, axis=1)[:, :inputs]
                weights = weights * kept[:, None, None, :].astype(np.int8)
            layers[number] = dataclasses.replace(layer, weights=weights)
    return dataclasses.replace(graph, layers=layers)


@pytest.mark.demo_core
def test_blocks_that_are_off_cost_no_cycle_and_no_weights() -> None:
    maker = GraphMaker((8, 8, 16))
    graph = maker.finish(maker.convolution(maker.convolution("x", 128, Window((1, 1))), 128, SAME))
    cycles, weights = {}, {}
    for density in (1.0, 0.5, 0.25):
        measured = measure(with_blocks(graph, density), DEFAULT)
        assert_predicted(measured)
        cycles[density] = measured.layer_cycles[1]
        plan = plan_graph(with_blocks(graph, density), DEFAULT)
        weights[density] = len(plan.operations[1].constants[LocalMemory.WEIGHT].image)
    print(f"cycles {cycles}, bytes of weights {weights}")
    for density, share in ((0.5, 0.53), (0.25, 0.28)):
        assert cycles[density] <= share * cycles[1.0]
        assert abs(weights[density] - density * weights[1.0]) <= 16 * DEFAULT.weight_word_bytes


def resnet(density: float) -> Graph:
    """ResNet-8 for CIFAR-10, its blocks off but for those of the first layer."""
    maker = GraphMaker((32, 32, 3))
    name = maker.convolution("x", 16, SAME)
    for channels in (16, 32, 64):
        window, short = SAME, name
        if channels > 16:
            window = Window((3, 3), (2, 2), pads=(0, 0, 1, 1))
            short = maker.convolution(name, channels, Window((1, 1), (2, 2)))
        inner = maker.convolution(maker.convolution(name, channels, window), channels, SAME)
        name = maker.add(inner, short)
    name = maker.global_average(name)
    return with_blocks(maker.finish(maker.fully_connected(name, 10)), density)


@pytest.mark.regress
@pytest.mark.parametrize(("requant_lanes", "most"), [(8, 65_000), (4, 69_000)])
def test_resnet_with_half_of_its_blocks(requant_lanes: int, most: int) -> None:
    """Tiles without any block, which the narrow layers have then, still write results."""
    config = dataclasses.replace(DEFAULT, array=dataclasses.replace(DEFAULT.array, requant_lanes=requant_lanes))
    cycles = {}
    for density in (1.0, 0.5):
        measured = measure(resnet(density), config)
        assert_predicted(measured)
        cycles[density] = measured.counters["cycles"]
    print(f"ResNet-8, {requant_lanes} requantisers: {cycles}")
    assert cycles[0.5] <= most < cycles[1.0]


@pytest.mark.regress
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_step_lists_that_exceed_their_memory_come_and_go(preset: str) -> None:
    """Each tile has a list of its own, and all together have more entries than there are."""
    config, rng = PRESETS[preset], np.random.default_rng(1)
    channels = {"tiny": 48, "ecp5-85k": 320}[preset]
    maker = GraphMaker((5, 5, 16))
    graph = maker.finish(maker.convolution(maker.convolution("x", channels, Window((1, 1))), channels, SAME))
    kept = rng.random((-(-channels // config.array.columns), channels // 4)) < 0.5
    kept = kept.repeat(config.array.columns, axis=0)[:channels].repeat(4, axis=1)
    layer = graph.layers[1]
    weights = np.where(layer.weights == 0, np.int8(1), layer.weights) * kept[:, None, None, :].astype(np.int8)
    graph = dataclasses.replace(graph, layers=[graph.layers[0], dataclasses.replace(layer, weights=weights)])
    plan = plan_graph(graph, config)
    assert plan.operations[1].constants[LocalMemory.LIST].tile_bytes
    assert plan.operations[1].tile_steps.sum() > config.memory.list_entries
    assert any(arrival.memory is LocalMemory.LIST for arrival in plan.arrivals)
    assert_predicted(measure(graph, config))
