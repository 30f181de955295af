"""Cuts: parts that load less on a shared bus, and a first layer that begins while its input arrives."""

from __future__ import annotations

import dataclasses

import pytest

from cocotb_tests.support.quantised.few_outputs import ARRAYS
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.isa import Opcode
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import plan_graph
from lutterfly.host.compiler.layout.borders import head_start, load_estimate
from lutterfly.host.compiler.layout.cuts import COMMAND_COST, MOST_GROUPS, _groupings, row_groups
from lutterfly.host.graph import Window

POINT = Window((1, 1))


def loaded_bytes(config: Config) -> int:
    """Of an inference of a layer whose weights stream, and whose input does not fit: each part loads one of both."""
    maker = GraphMaker((14, 14, 512))
    plan = plan_graph(maker.finish(maker.convolution("x", 512, POINT)), config)
    memory = PRESETS["ecp5-85k"].memory
    assert plan.cuts
    assert plan.graph.tensors["x"].size_bytes > memory.feature_bytes
    return sum(
        command.fields["rows"] * command.fields["folds"] * command.fields["row_pieces"] * command.fields["piece_bytes"]
        for command in plan.commands
        if command.opcode is Opcode.LOAD
    )


@pytest.mark.regress
@pytest.mark.parametrize(
    ("cluster", "is_less"), [(ClusterConfig(4), True), (ClusterConfig(4, shared_port=False), False)]
)
def test_less_is_loaded_where_cores_share_the_bus(cluster: ClusterConfig, *, is_less: bool) -> None:
    memory = dataclasses.replace(PRESETS["ecp5-85k"].memory, weight_bytes=1 << 17)
    alone = dataclasses.replace(PRESETS["ecp5-85k"], memory=memory)
    found = loaded_bytes(dataclasses.replace(alone, cluster=cluster))
    assert (found < loaded_bytes(alone)) == is_less


# The first layer while its input arrives: rows in groups that grow, and when they have been computed.


def test_rows_are_grouped_in_equal_parts_and_in_growing_ones() -> None:
    ways = _groupings(15)
    assert {sum(groups) for groups in ways} == {15}
    assert {(15,), (8, 7), (5, 5, 5), (1, 2, 4, 8), (2, 4, 8, 1), (1, 1, 2, 3, 5, 3)} <= set(ways)


@pytest.mark.parametrize("channels", [4, 64])
def test_the_end_is_that_of_the_slower_of_both_and_a_group(channels: int) -> None:
    maker = GraphMaker((32, 32, 8))
    plan = plan_graph(maker.finish(maker.convolution("x", channels, Window((3, 3)))), PRESETS["ecp5-85k"])
    (operation,) = plan.operations
    computing = operation.cycles(30, 30, range(operation.tiles))
    for loading in (computing / 20, computing, 20 * computing):
        end, groups = row_groups(plan, operation, loading)
        assert sum(groups) == 30
        assert len(groups) <= MOST_GROUPS
        assert max(loading, computing) < end <= loading + computing + COMMAND_COST
    # Nothing to wait for.
    assert row_groups(plan, operation, 0)[1] == (30,)


@pytest.mark.parametrize("columns", [8, 16])
def test_a_layer_that_waits_for_its_input_leaves_it_the_cycles_between_results(columns: int) -> None:
    """The DMA writes in every cycle without a result: both together take what both write, where the array waits."""
    config = dataclasses.replace(ARRAYS[0], array=dataclasses.replace(ARRAYS[0].array, columns=columns))
    config = dataclasses.replace(config, memory=dataclasses.replace(config.memory, feature_bytes=1 << 17))
    maker = GraphMaker((64, 64, 4))
    window = Window((1, 1), (1, 2))
    plan = plan_graph(maker.finish(maker.convolution("x", columns, window)), config)
    (operation,), loading = plan.operations, load_estimate(plan.storages["x"], plan.graph.tensors["x"], config)
    computing = operation.cycles(64, 32, range(operation.tiles))
    written = operation.tiles * 64 * 32
    end, groups = row_groups(plan, operation, loading)
    assert len(groups) > 1
    assert loading < end < loading + written + computing / 2
    assert abs(plan.predictions[0].cycles - end) < 0.1 * end


def test_constants_of_a_layer_that_can_begin_early_stay() -> None:
    """Others are streamed instead: each group of rows would load them again."""
    config = dataclasses.replace(
        ARRAYS[0], memory=dataclasses.replace(ARRAYS[0].memory, feature_bytes=1 << 15, parameter_bytes=1 << 10)
    )
    maker, window = GraphMaker((48, 48, 3)), Window((3, 3), (2, 2), pads=(0, 0, 1, 1))
    name = maker.convolution(maker.convolution("x", 16, window), 16, window)
    for _ in range(8):
        name = maker.convolution(name, 16, Window((1, 1)))
    plan = plan_graph(maker.finish(name), config)
    streamed = [
        index
        for index, segments in plan.segments[LocalMemory.PARAMETER].items()
        if any(segment.is_streamed for segment in segments)
    ]
    assert streamed
    assert 0 not in streamed
    assert sum(job.index == 0 for job in plan.jobs) > 1
    assert head_start(plan, plan.operations[0]) > 0
    assert head_start(plan, plan.operations[1]) == 0
