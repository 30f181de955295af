"""The first layer while its input arrives: rows in groups that grow, and when they have been computed."""

from __future__ import annotations

import pytest

from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import plan_graph
from lutterfly.host.compiler.layout.streaming import COMMAND_COST, MOST_GROUPS, _candidates, row_groups
from lutterfly.host.graph import Window
from quantised.graphs import GraphMaker


def test_rows_are_grouped_in_equal_parts_and_in_growing_ones() -> None:
    ways = _candidates(15)
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
