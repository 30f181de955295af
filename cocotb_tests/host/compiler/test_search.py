"""Search: of the ways to plan a network, the one that is faster as a whole is chosen, and all are told."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import pytest

from cocotb_tests.host.compiler.rewrite.test_permute import masked, residual, shuffled
from cocotb_tests.support.quantised.few_outputs import ARRAYS, first_layer, neighbours, planned
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.outline import Tried
from lutterfly.host.compiler import CompileError, plan_graph, search, spread_graph
from lutterfly.host.compiler.passes import rewritten
from lutterfly.host.compiler.plan import Spread
from lutterfly.host.compiler.search import Begun, Candidate, candidates, fastest
from lutterfly.host.graph import Graph
from lutterfly.host.program import SpreadBy

CONFIG = PRESETS["ecp5-85k"]


@pytest.mark.regress
def test_wide_windows_are_chosen_only_where_all_is_faster() -> None:
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


def pruned() -> Graph:
    """A network of which channels in another order leave out words."""
    graph, masks, rng = residual(0)
    return masked(graph, shuffled(graph, masks, rng))


def tell(graph: Graph, config: Config, *told: Tried, by_layer: bool = False) -> list[Candidate]:
    """The candidates, if this becomes of the first ones, and of the others what becomes of the last one."""
    tried: list[Tried] = []
    found: list[Candidate] = []
    for candidate in candidates(graph, config, tried, by_layer=by_layer, permute=True):
        found.append(candidate)
        tried.append(told[min(len(tried), len(told) - 1)])
    return found


WIDE, NARROW = (Tried(False, 0, 0, layers, predicted_cycles=9) for layers in (1, 0))
REFUSED = Tried(False, 0, 0, 0, 0, refused="too wide")


@pytest.mark.parametrize(
    ("told", "wide"),
    [((NARROW,), [True]), ((WIDE,), [True, False]), ((REFUSED,), [True, False])],
    ids=["none are wide", "some are wide", "refused"],
)
def test_wide_windows_are_left_out_where_there_are_any_or_they_do_not_fit(
    told: tuple[Tried, ...], wide: list[bool]
) -> None:
    assert [one.is_wide for one in tell(first_layer(), ARRAYS[0], *told)] == wide


def test_both_orders_of_channels_are_tried_with_wide_windows_and_without() -> None:
    found = [(one.is_permuted, one.is_wide) for one in tell(pruned(), CONFIG, WIDE)]
    assert found == [(False, True), (False, False), (True, True), (True, False)]


def test_all_on_one_core_is_tried_unless_another_way_takes_less_than_its_array() -> None:
    config = dataclasses.replace(ARRAYS[0], cluster=ClusterConfig(2))
    assert None in {part for parts in tell(first_layer(), config, REFUSED, by_layer=True)[-1].parts for part in parts}
    slow, quick = (dataclasses.replace(NARROW, predicted_cycles=cycles) for cycles in (10**9, 1))
    alone = len(tell(first_layer(), config, slow, by_layer=True))
    assert len(tell(first_layer(), config, quick, by_layer=True)) == alone - 1


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[bool, bool], int | CompileError]:
    """By whether channels are permuted and windows are wide: predicted cycles, or why there are none."""
    given: dict[tuple[bool, bool], int | CompileError] = {}

    def all_of(_graph: Graph, config: Config, tried: Sequence[Tried], **_: bool) -> Iterator[Candidate]:
        yield from (Candidate(network, permuted, None, 0, wide) for permuted, wide in given)

    def begun(candidate: Candidate) -> Begun:
        found = given[candidate.is_permuted, candidate.is_wide]
        if isinstance(found, CompileError):
            raise found
        return begin(candidate)

    def finished(candidate: Candidate, begun: Begun) -> Spread:
        (plan,) = finish(candidate, begun).plans
        cycles = given[candidate.is_permuted, candidate.is_wide]
        return Spread.of_one(dataclasses.replace(plan, predicted_cycles=cycles))

    network, begin, finish = rewritten(first_layer(), ARRAYS[0]), Candidate.begun, Candidate.finished
    monkeypatch.setattr(search, "candidates", all_of)
    monkeypatch.setattr(Candidate, "begun", begun)
    monkeypatch.setattr(Candidate, "finished", finished)
    return given


TOO_WIDE, TOO_MUCH = CompileError("too wide"), CompileError("too much")


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({(False, True): 10**6, (False, False): 10**6 + 1}, 0),
        ({(False, True): 10**6 + 1, (False, False): 10**6}, 1),
        # Of those that are alike, the plainest one.
        ({(False, True): 10**6, (False, False): 10**6}, 1),
        ({(False, False): 10**6, (True, True): 10**6, (True, False): 10**6}, 0),
        ({(False, False): 10**6, (True, False): 10**6 - 1}, 1),
        ({(False, True): TOO_WIDE, (False, False): 10**6}, 1),
        ({(False, True): 10**6, (False, False): TOO_MUCH}, 0),
        ({(False, False): TOO_MUCH, (True, False): 10**6}, 1),
    ],
)
def test_the_fastest_that_fits_is_taken(takes: dict, given: dict, chosen: int) -> None:
    takes |= given
    found = fastest(first_layer(), ARRAYS[0])
    assert [one.is_taken for one in found.tried] == [number == chosen for number in range(len(given))]
    assert [one.refused for one in found.tried] == [
        str(one) if one in (TOO_WIDE, TOO_MUCH) else "" for one in given.values()
    ]
    assert found.predicted_cycles == [*given.values()][chosen]


def test_the_plainest_refusal_is_told_where_nothing_fits(takes: dict) -> None:
    takes |= {(False, True): TOO_WIDE, (False, False): TOO_MUCH, (True, False): TOO_WIDE}
    with pytest.raises(CompileError, match="too much"):
        fastest(first_layer(), ARRAYS[0])


def test_what_cannot_be_faster_is_not_predicted(takes: dict) -> None:
    takes |= {(False, True): 1, (False, False): 10**6}
    first, second = fastest(first_layer(), ARRAYS[0]).tried
    steps = sum(one.array_cycles for one in planned(first_layer(), ARRAYS[0], wide=False).predictions)
    assert (first.is_taken, second.predicted_cycles, second.least_cycles) == (True, 0, steps)


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_is_faster_than_the_steps_of_its_array(seed: int) -> None:
    for config in ARRAYS:
        plan = planned(neighbours(seed, config.array.columns), config)
        assert plan.predicted_cycles > sum(one.array_cycles for one in plan.predictions)


def test_cores_that_share_an_inference_are_planned_with_wide_windows_and_without() -> None:
    config = dataclasses.replace(ARRAYS[0], cluster=ClusterConfig(2))
    spread = spread_graph(first_layer(), config, SpreadBy.LAYER)
    assert {(one.row_layers + one.channel_layers, one.wide_layers) for one in spread.tried} >= {(1, 1), (1, 0)}
    assert [one.predicted_cycles for one in spread.tried if one.is_taken] == [spread.predicted_cycles]
