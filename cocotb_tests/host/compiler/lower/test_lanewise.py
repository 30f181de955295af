"""Lanewise commands: as many results as there are bytes, in as few runs as those lie in."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.quantised.graphs import GraphMaker, random_graph
from lutterfly.golden.engines import ADD, MAXIMUM
from lutterfly.golden.engines.engine import Engine
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.issue import result_groups
from lutterfly.golden.units import Queue
from lutterfly.host.compiler import plan_graph
from lutterfly.host.graph import Window


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
