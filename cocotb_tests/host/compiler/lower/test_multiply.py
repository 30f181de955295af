"""Commands of products: one of a dense map, else one of each row; a vector is read once for each tile of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import exact_plan
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.engines import MULTIPLY
from lutterfly.golden.presets import PRESETS
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
