"""MobileNet v1 at 224x224 on `ecp5-85k`, which holds neither its weights nor its activations: ONNX Runtime's bytes."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from cocotb_tests.support.networks.large import BLOCKS, IMAGE, LAYERS, MACS, WEIGHTS, mobilenet
from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from cocotb_tests.support.oracles.execution import put_input
from lutterfly.golden.machine import machine
from lutterfly.golden.machine.images import new_arena
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Program
from lutterfly.host.compiler import encode, plan_graph
from lutterfly.host.compiler.layout.cuts import Geometry
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import AveragePool
from lutterfly.host.graph.evaluate import from_onnx, to_onnx
from lutterfly.host.model import reference
from lutterfly.host.model.model import Model
from lutterfly.host.session.verify import verify

pytestmark = needs_reference

CONFIG = PRESETS["ecp5-85k"]


@functools.cache
def network() -> bytes:
    return mobilenet()


@functools.cache
def planned() -> tuple[Plan, Program]:
    plan = plan_graph(import_model(network()), CONFIG)
    return plan, encode(plan)


def image(seed: int) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(seed).integers(-128, 128, IMAGE, np.int8)}


@pytest.mark.regress
def test_it_is_the_network_of_the_paper():
    plan, program = planned()
    assert sum(layer.macs for layer in program.layers) == MACS
    assert sum(layer.weights.size for layer in plan.graph.layers if not isinstance(layer, AveragePool)) == WEIGHTS
    assert [layer.kind for layer in program.layers] == [
        "convolution",
        *["depthwise", "convolution"] * (len(BLOCKS) - 1),
        "average pooling",
        "fully connected",
    ]
    assert len(program.layers) == LAYERS


def test_activations_use_their_range_and_seldom_saturate():
    one, other = (reference.run(Model(network()), image(seed)) for seed in (0, 1))
    for name, codes in one.items():
        assert codes.std() > 20, name
        # The least code is ReLU's zero.
        assert np.mean(codes == 127) < 0.02, name
        assert np.mean(codes == -128) < 0.6, name
        assert np.mean(codes != other[name]) > 0.3, name


@pytest.mark.regress
def test_layers_run_in_parts_with_streamed_weights_and_spilled_activations():
    plan, program = planned()
    parts = {index: Geometry(plan, index, cut, plan.partial(index)) for index, (cut, _) in plan.cuts.items()}
    assert sum(len(geometry.rows) > 1 for geometry in parts.values()) > 10
    assert sum(len(geometry.tiles) > 1 for geometry in parts.values()) > 5
    assert sum(arrival.size for arrival in plan.arrivals if arrival.memory is LocalMemory.WEIGHT) > 0
    spilled = {tensor.name for tensor in program.cores[0].spilled} - set(plan.graph.outputs)
    assert len(spilled) > 10


@pytest.mark.regress
def test_the_bound_of_each_layer_is_reported():
    """Products per byte decide: few in a depthwise layer and in a fully connected one, many in a pointwise one."""
    _, program = planned()
    for layer in program.layers:
        expected = "array" if layer.kind == "convolution" else "bus"
        assert layer.bound == expected, layer
        assert layer.cycles >= max(layer.array_cycles, 0.9 * layer.bus_cycles), layer


@pytest.mark.regress
def test_every_byte_of_every_layer_on_the_golden_machine():
    (plan, program), feeds = planned(), image(2)
    graph, known = plan.graph, reference.run(Model(network()), feeds)
    golden, arena = machine.Machine(CONFIG, seed=0), new_arena(program, CONFIG)
    golden.run_prologue(program, arena, order="random")
    (name,), (port,) = graph.inputs, program.inputs
    tensor = graph.tensors[name]
    put_input(arena, port, from_onnx(tensor.views[0], tensor.shape, feeds["image"]))
    (written,) = golden.run_body(program, arena, order="random")
    assert written.keys() == {layer.output for layer in graph.layers}
    for name, codes in written.items():
        for view in graph.tensors[name].views:
            np.testing.assert_array_equal(to_onnx(view, codes), known[view.name], view.name)


@pytest.mark.regress
@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param(2, id="first five layers"),
        pytest.param(len(BLOCKS) - 1, id="all layers", marks=pytest.mark.regress),
    ],
)
def test_bytes_and_cycles_on_the_core(blocks: int):
    found = verify(mobilenet(blocks=blocks), CONFIG, samples=1)
    assert len(found.program.layers) == (LAYERS if blocks == len(BLOCKS) - 1 else 1 + 2 * blocks)
    assert_right(found)
    for tensor in found.tensors:
        # Not by these: the input, and what the user gets, which the core alone stores.
        assert tensor.name == "image" or tensor.name.endswith("(output)") or None not in (tensor.machine, tensor.rtl)
