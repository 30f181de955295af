"""Views: concatenations and splits that copy nothing, where nothing speaks against it, and the bytes that they had."""

from __future__ import annotations

import pytest

from cocotb_tests.support.oracles.execution import exact_plan, measure
from cocotb_tests.support.quantised.graphs import GraphMaker, random_fork
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler.layout import borders
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.graph import Concat, Graph, Slice, ViewPlace, Window

CONFIG = PRESETS["ecp5-85k"]
SAME = Window((3, 3), pads=(1, 1, 1, 1))
POINT = Window((1, 1))


def copied(plan: Plan) -> list[str]:
    return [layer.name for layer in plan.graph.layers if isinstance(layer, Concat | Slice)]


def fire(size: int = 16, modules: int = 3) -> Graph:
    """Modules of SqueezeNet: a pointwise convolution, and after it two convolutions side by side."""
    maker = GraphMaker((size, size, 8))
    name = "x"
    for _ in range(modules):
        squeezed = maker.convolution(name, 8, POINT, zero_point=-128)
        name = maker.concat(
            maker.convolution(squeezed, 16, POINT, zero_point=-128),
            maker.convolution(squeezed, 16, SAME, zero_point=-128),
            tables=False,
        )
    return maker.finish(maker.convolution(name, 10, POINT))


@pytest.mark.regress
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 240), marks=pytest.mark.regress)], ids=str)
def test_random_forks_are_exact(seeds: range) -> None:
    found = 0
    for seed in seeds:
        graph = random_fork(seed)
        found += sum(len(exact_plan(graph, PRESETS[preset]).views) for preset in ("tiny", "ecp5-85k"))
    assert found > len(seeds)


def test_channels_side_by_side_are_written_side_by_side() -> None:
    plan = exact_plan(fire(), CONFIG)
    assert copied(plan) == []
    assert plan.views == {
        f"t{n}": ViewPlace(f"t{n - n % 4 + 3}", 16 * (n % 4 - 1)) for n in range(12) if n % 4 in (1, 2)
    }


def test_channels_taken_apart_are_read_apart() -> None:
    maker = GraphMaker((8, 8, 4))
    trunk = maker.convolution("x", 32, SAME)
    halves = maker.slice(trunk, 0, 16), maker.slice(trunk, 16, 16)
    joined = maker.concat(maker.depthwise(halves[0], SAME, zero_point=3), maker.max_pool(halves[1], SAME), tables=False)
    plan = exact_plan(maker.finish(maker.convolution(joined, 4, POINT)), CONFIG)
    assert copied(plan) == ["concat_t5"]
    assert plan.views == {"t1": ViewPlace("t0"), "t2": ViewPlace("t0", 16), "t3": ViewPlace("t5")}


def test_what_a_concatenation_holds_may_be_what_an_earlier_one_joins() -> None:
    """Layers of DenseNet: each reads all those before."""
    maker = GraphMaker((8, 8, 8))
    parts = [maker.convolution("x", 16, POINT, zero_point=3)]
    for _ in range(3):
        joined = maker.concat(*parts, tables=False) if len(parts) > 1 else parts[0]
        parts.append(maker.convolution(joined, 16, SAME, zero_point=3))
    plan = exact_plan(maker.finish(maker.convolution(maker.concat(*parts, tables=False), 4, POINT)), CONFIG)
    assert copied(plan) == []
    assert len({plan.root(name) for name in parts}) == 1


def test_the_operands_of_a_sum_must_lie_alike() -> None:
    maker = GraphMaker((8, 8, 4))
    trunk = maker.convolution("x", 32, SAME)
    halves = [maker.slice(trunk, first, 16) for first in (0, 16)]
    assert copied(exact_plan(maker.finish(maker.add(*halves)), CONFIG)) == []
    maker = GraphMaker((8, 8, 4))
    trunk = maker.convolution("x", 32, SAME)
    total = maker.add(maker.slice(trunk, 8, 16), maker.convolution("x", 16, SAME))
    assert copied(exact_plan(maker.finish(total), CONFIG)) == ["slice_t1"]


def test_inputs_and_outputs_and_what_is_joined_twice_are_copied() -> None:
    maker = GraphMaker((6, 6, 4))
    inner, outer = (maker.convolution("x", channels, POINT, zero_point=3) for channels in (5, 6))
    joined = maker.concat(inner, outer, "x", inner, tables=False)
    plan = exact_plan(maker.finish(outer, maker.convolution(joined, 4, POINT)), CONFIG)
    assert plan.views == {inner: ViewPlace(joined)}
    assert plan.operations[2].written_bytes == 6 * 6 * (6 + 4 + 5)


def test_another_zero_point_needs_another_border() -> None:
    maker = GraphMaker((6, 6, 4))
    parts = [maker.convolution("x", 4, POINT, zero_point=zero_point) for zero_point in (3, 4)]
    plan = exact_plan(maker.finish(maker.convolution(maker.concat(*parts, tables=False), 4, SAME)), CONFIG)
    assert plan.views == {parts[0]: ViewPlace("t2")}


def test_a_copy_stays_where_a_view_costs_more() -> None:
    """A convolution of many outputs on few of many channels: every pixel of a window would be a word of its own."""
    maker = GraphMaker((8, 8, 4))
    trunk = maker.convolution("x", 64, POINT)
    part = maker.slice(trunk, 0, 4)
    plan = exact_plan(maker.finish(maker.convolution(part, 32, SAME), maker.convolution(trunk, 4, POINT)), CONFIG)
    assert copied(plan) == ["slice_t1"]


@pytest.mark.regress
def test_a_network_that_does_not_fit_has_no_views() -> None:
    plan = exact_plan(fire(16, 1), PRESETS["tiny"])
    assert plan.cuts
    assert plan.views == {}
    assert copied(plan) == ["concat_t3"]


def test_cycles_on_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = fire()
    viewed = measure(graph, CONFIG)
    monkeypatch.setattr(borders, "_fits", lambda plan: False)
    copied = measure(graph, CONFIG)
    assert viewed.counters["cycles"] < 0.9 * copied.counters["cycles"]
    for measured in (viewed, copied):
        assert abs(measured.program.predicted_cycles - measured.counters["cycles"]) < 0.02 * measured.counters["cycles"]
