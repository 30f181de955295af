"""Width: wide windows are chosen where a network as a whole is faster with them."""

from __future__ import annotations

import dataclasses

import pytest

from cocotb_tests.support.quantised.few_outputs import ARRAYS, first_layer, neighbours, planned
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.host.compiler import CompileError, plan_graph
from lutterfly.host.compiler.cluster import by_layer
from lutterfly.host.compiler.cluster.by_layer import plan_by_layer
from lutterfly.host.compiler.plan import Spread
from lutterfly.host.compiler.width import fastest


@pytest.mark.regress
def test_they_are_chosen_only_where_all_is_faster() -> None:
    """And often they are."""
    faster = 0
    for config in ARRAYS:
        for seed in range(30):
            graph = neighbours(seed, config.array.columns)
            narrow, found = planned(graph, config, wide=False), plan_graph(graph, config, permute=False)
            chosen = any(operation.pixels > 1 for operation in found.operations)
            assert found.predicted_cycles < narrow.predicted_cycles or not chosen
            assert found.predicted_cycles <= narrow.predicted_cycles
            faster += chosen
    assert faster > 20


def test_the_faster_plan_counts_whichever_it_is() -> None:
    def plan(wide: bool, cycles: tuple[int, int] = (5, 4), *, fits: bool = True, pixels: int = 2) -> Spread:
        if wide and not fits:
            raise CompileError("too wide")
        plan = planned(first_layer(), ARRAYS[0], wide=wide)
        plan.predicted_cycles, plan.operations[0].pixels = cycles[wide], pixels if wide else 1
        asked.append(wide)
        return Spread.of_one(plan)

    asked: list[bool] = []
    assert fastest(plan).predicted_cycles == 4
    assert fastest(lambda wide: plan(wide, (4, 5))).predicted_cycles == 4
    # Where both are alike, that without.
    assert not fastest(lambda wide: plan(wide, (4, 4))).plans[0].has_wide_windows
    assert not fastest(lambda wide: plan(wide, fits=False)).plans[0].has_wide_windows
    asked.clear()
    assert fastest(lambda wide: plan(wide, pixels=1)).plans[0].has_wide_windows
    assert asked == [True]


@pytest.mark.parametrize("wide", [False, True])
def test_cores_that_share_an_inference_are_planned_with_them_and_without(
    wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_layer, "fastest", lambda plan: plan(wide))
    spread = plan_by_layer(first_layer(), dataclasses.replace(ARRAYS[0], cluster=ClusterConfig(2)))
    assert [operation.pixels for plan in spread.plans for operation in plan.operations] == [1 + wide] * 2
