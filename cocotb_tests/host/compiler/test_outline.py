"""The outline of a plan: it says of each memory what the program loads into it."""

from __future__ import annotations

import itertools

import pytest

from cocotb_tests.support.oracles.reported import NETWORKS, report_of
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.isa import Opcode
from lutterfly.golden.memories import LocalMemory, constant_memories
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import Queue
from lutterfly.host.compiler import plan_graph
from lutterfly.host.compiler.outline import constant_blocks
from lutterfly.host.graph import Window
from lutterfly.host.program import bus_bytes


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", NETWORKS)
def test_what_stays_is_what_the_prologue_loads(network: str) -> None:
    plan, _ = report_of(network)
    blocks = constant_blocks(plan)
    for memory in constant_memories(plan.config):
        staying = [block for block in blocks if block.memory == memory.name and not block.is_streamed]
        assert sum(block.size_bytes for block in staying) == len(plan.images[memory])
        for one, other in itertools.pairwise(staying):
            assert one.address + one.size_bytes == other.address


@pytest.mark.parametrize("network", NETWORKS)
def test_what_is_streamed_is_what_the_body_loads(network: str) -> None:
    plan, _ = report_of(network)
    streamed = {(block.memory, block.size_bytes) for block in constant_blocks(plan) if block.is_streamed}
    loaded = {
        (command.fields["memory"].name, bus_bytes(command.fields))
        for command in plan.queue(Queue.DMA)
        if command.opcode is Opcode.LOAD and command.fields["memory"] != LocalMemory.FEATURE
    }
    assert streamed == loaded
    assert bool(streamed) == (network == "large")


@pytest.mark.parametrize("network", NETWORKS)
def test_layers_account_for_all_bytes_on_the_bus(network: str) -> None:
    plan, facts = report_of(network)
    layers = facts.program.layers
    assert sum(layer.loaded_bytes + layer.stored_bytes for layer in layers) == facts.moved_bytes
    # Dense tensors: what host and accelerator exchange.
    assert sum(layer.loaded_bytes for layer in layers) >= sum(port.size_bytes for port in facts.program.inputs)
    assert sum(layer.stored_bytes for layer in layers) >= sum(port.size_bytes for port in facts.program.outputs)
    assert all(0 < layer.feature_bytes <= plan.config.memory.feature_bytes for layer in layers)
    assert any(layer.streamed_weight_bytes for layer in layers) == (network == "large")


@pytest.mark.parametrize("network", NETWORKS)
def test_spilled_tensors_are_those_that_the_program_leaves_in_external_memory(network: str) -> None:
    plan, facts = report_of(network)
    spilled = {name for layer in plan.predictions for name in layer.spilled}
    assert spilled == {tensor.name for tensor in facts.program.cores[0].spilled} - set(plan.graph.outputs)
    assert bool(spilled) == (network == "large")


def test_equal_tables_are_one_block() -> None:
    maker = GraphMaker((4, 4, 8))
    plan = plan_graph(maker.finish(maker.pointwise(maker.pointwise("x"))), PRESETS["tiny"])
    tables = [block for block in constant_blocks(plan) if block.memory == LocalMemory.TABLE.name]
    distinct = {layer.table.tobytes() for layer in plan.graph.layers}
    assert len(tables) == len(distinct)
    assert sorted(index for block in tables for index in block.layers) == [0, 1]


def test_a_layer_without_weights_and_one_with() -> None:
    maker = GraphMaker((4, 4, 8))
    name = maker.max_pool(maker.convolution("x", 6, Window((1, 1))), Window((2, 2), (2, 2)))
    plan = plan_graph(maker.finish(name), PRESETS["tiny"])
    convolution, pooling = plan.predictions
    # 6 output channels are three tiles of two columns; 8 input channels two words of four lanes.
    assert convolution.weight_bytes == 3 * 2 * PRESETS["tiny"].weight_word_bytes
    assert (pooling.weight_bytes, pooling.streamed_weight_bytes, pooling.in_parts) == (0, 0, ())
    # Input and output of each, without borders: the input of the convolution is gone when the pooling runs.
    assert (convolution.feature_bytes, pooling.feature_bytes) == (4 * 4 * 8 + 4 * 4 * 6, 4 * 4 * 6 + 2 * 2 * 6)
    assert (convolution.loaded_bytes, pooling.stored_bytes) == (4 * 4 * 8, 2 * 2 * 6)
