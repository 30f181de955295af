"""Commands of products and of other pairs of activations: as few as the bytes of their maps allow."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import exact_plan
from cocotb_tests.support.quantised.graphs import GraphMaker, random_graph
from lutterfly.golden.engines import ADD, MAXIMUM, MULTIPLY
from lutterfly.golden.engines.engine import Engine
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.issue import result_groups
from lutterfly.golden.units import Queue
from lutterfly.host.compiler import CompileError, compile_graph, plan_graph
from lutterfly.host.graph import Graph, Window

TINY = PRESETS["tiny"]
SAME, POINT = Window((3, 3), pads=(1, 1, 1, 1)), Window((1, 1))


def squeezed(maker: GraphMaker, source: str) -> str:
    """A vector of its channels."""
    channels = maker.graph.tensors[source].shape[2]
    return maker.convolution(maker.global_average(source), channels, POINT)


def by_vector(*, bordered: str = "", shape: tuple[int, int, int] = (5, 4, 6)) -> Graph:
    """A map by a vector; a convolution reads the ``"map"``, the ``"product"`` or none of them with a border."""
    maker = GraphMaker(shape)
    first = maker.convolution("x", shape[2], POINT)
    beside = [maker.convolution(first, 3, SAME)] if bordered == "map" else []
    product = maker.multiply(first, squeezed(maker, first), table=True)
    after = maker.convolution(product, 3, SAME if bordered == "product" else POINT)
    return maker.finish(after, *beside)


def commands(graph: Graph) -> list:
    queue = plan_graph(graph, TINY).queue(Queue.COMPUTE)
    return [command for command in queue if command.fields["engine"] is MULTIPLY]


def test_a_dense_map_is_one_command() -> None:
    (command,) = commands(by_vector())
    fields = command.fields
    assert (fields["outer"], fields["middle"], fields["inner"], fields["skip"]) == (2, 1, 20, 1)
    assert len(np.unique(command.writes)) == 5 * 4 * 6


@pytest.mark.parametrize("bordered", ["map", "product"])
def test_rows_that_lie_apart_are_commands_of_their_own(bordered: str) -> None:
    found = commands(by_vector(bordered=bordered))
    assert [(command.fields["middle"], command.fields["inner"]) for command in found] == [(1, 4)] * 5
    # Each has a list of its own: the vector stays, and the rows do not.
    assert len({command.fields["list"] for command in found}) == 5
    assert sum(len(np.unique(command.writes)) for command in found) == 5 * 4 * 6


def test_two_dense_maps_are_one_run() -> None:
    maker = GraphMaker((5, 4, 6))
    graph = maker.finish(maker.multiply("x", maker.convolution("x", 6, POINT)))
    (command,) = commands(graph)
    fields = command.fields
    assert (fields["middle"], fields["inner"], fields["skip"]) == (1, 1, 0)
    assert (fields["outer"] - 1) * fields["lanes"] + fields["last_lanes"] == 5 * 4 * 6


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bordered", ["", "map", "product"])
@pytest.mark.parametrize("shape", [(5, 4, 6), (1, 7, 1), (24, 24, 9)])
def test_the_golden_machine_gives_the_graphs_codes(shape: tuple[int, int, int], bordered: str) -> None:
    """The largest map does not fit the feature memory."""
    exact_plan(by_vector(bordered=bordered, shape=shape), TINY)


def test_an_accelerator_without_the_engine_is_refused() -> None:
    config = dataclasses.replace(TINY, engines=TINY.engines.without(MULTIPLY))
    with pytest.raises(CompileError, match=r"^multiply_t3: .*MULTIPLY"):
        compile_graph(by_vector(), config)


# Lanewise commands: as many results as there are bytes, in as few runs as those lie in.


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", [MAXIMUM, ADD])
def test_lanewise_commands_give_as_many_results_as_they_write(engine: Engine) -> None:
    maker = GraphMaker((5, 4, 6))
    # Without borders a whole map is one run.
    dense = maker.finish(maker.pointwise(maker.add("x", maker.convolution("x", 6, Window((1, 1))))))
    commands = [
        command
        for graph in (dense, *map(random_graph, range(40)))
        for command in plan_graph(graph, PRESETS["tiny"]).queue(Queue.COMPUTE)
        if command.fields["engine"] is engine
    ]
    assert len(commands) > 5
    assert any(command.fields["middle"] == command.fields["inner"] == 1 for command in commands)
    for command in commands:
        fields = command.fields
        results = (fields["outer"] - 1) * fields["lanes"] + fields["last_lanes"]
        assert fields["middle"] * fields["inner"] * results == len(np.unique(command.writes))


@pytest.mark.parametrize(("window", "size"), [(Window((2, 2), (2, 2)), (6, 5)), (Window((1, 1)), (12, 10))])
def test_cycles_are_those_of_its_command(window: Window, size: tuple[int, int]) -> None:
    config = PRESETS["ecp5-85k"]
    maker = GraphMaker((12, 10, 24))
    plan = plan_graph(maker.finish(maker.max_pool("x", window)), config)
    (operation,), (command,) = plan.operations, plan.queue(Queue.COMPUTE)
    fields = command.fields
    windows = fields["outer"] * fields["middle"] * fields["inner"]
    groups = result_groups(config, config.array.lanes)
    assert operation.cycles(*size, range(operation.tiles)) == windows * max(fields["steps"], groups)
