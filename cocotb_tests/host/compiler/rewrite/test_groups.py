"""Shuffles between grouped convolutions: these have their channels in the order in which nothing is moved."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import exact_plan, measure
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.graph import Arrange, Graph, Window

CONFIG = PRESETS["ecp5-85k"]
POINT, SAME = Window((1, 1)), Window((3, 3), pads=(1, 1, 1, 1))
SIZE = (6, 5)


def shuffled(maker: GraphMaker, source: str, groups: int) -> str:
    """Channels of groups one by one."""
    channels = maker.graph.tensors[source].shape[2]
    taken = np.arange(channels).reshape(groups, -1).T.reshape(-1)
    return maker.arranged(np.arange(SIZE[0] * SIZE[1]).reshape(*SIZE, 1) * channels + taken, source)


def units(channels: int, groups: int, *, window: Window = POINT, count: int = 1, residual: bool = True) -> Graph:
    """Units of ShuffleNet: a grouped convolution, a shuffle, a depthwise and a grouped convolution, and a sum."""
    maker = GraphMaker((*SIZE, 3))
    trunk = maker.convolution("x", channels, SAME)
    for _ in range(count):
        moved = shuffled(maker, maker.convolution(trunk, channels, window, groups=groups), groups)
        end = maker.convolution(maker.depthwise(moved, SAME), channels, POINT, groups=groups)
        trunk = maker.add(trunk, end) if residual else end
    return maker.finish(maker.convolution(trunk, 4, POINT))


def of_the_trunk() -> Graph:
    """The result of each unit is shuffled, in front of its sum."""
    maker = GraphMaker((*SIZE, 3))
    trunk = maker.convolution("x", 32, SAME)
    for _ in range(2):
        trunk = maker.add(trunk, shuffled(maker, maker.convolution(trunk, 32, POINT, groups=4), 4))
    return maker.finish(maker.convolution(trunk, 8, POINT, groups=4))


def read_before_as_well() -> Graph:
    """What is shuffled is an output too, so that its channels stay where they are."""
    maker = GraphMaker((*SIZE, 3))
    wide = maker.convolution(maker.convolution("x", 32, SAME), 32, POINT, groups=2)
    return maker.finish(wide, maker.convolution(shuffled(maker, wide, 2), 32, POINT, groups=2))


def one_behind_the_other() -> Graph:
    maker = GraphMaker((*SIZE, 3))
    wide = maker.convolution("x", 48, SAME)
    for groups in (4, 3, 4):
        wide = maker.convolution(shuffled(maker, wide, groups), 48, POINT, groups=groups)
    return maker.finish(wide)


def at_the_end() -> Graph:
    maker = GraphMaker((*SIZE, 3))
    return maker.finish(shuffled(maker, maker.convolution(maker.convolution("x", 32, SAME), 32, POINT, groups=2), 2))


def copied(plan: Plan) -> int:
    """Bytes that shuffles copy."""
    copies = zip(plan.graph.layers, plan.operations, strict=True)
    return sum(operation.written_bytes for layer, operation in copies if isinstance(layer, Arrange))


@pytest.mark.parametrize(
    "make",
    [
        lambda: units(64, 4),
        lambda: units(32, 4, window=SAME),
        lambda: units(48, 4, residual=False),
        lambda: units(60, 3, count=2),
        of_the_trunk,
        read_before_as_well,
        one_behind_the_other,
        at_the_end,
    ],
)
@pytest.mark.parametrize("preset", ["ecp5-85k", pytest.param("tiny", marks=pytest.mark.regress)])
def test_nothing_is_copied(make: Callable[[], Graph], preset: str) -> None:
    plan = exact_plan(make(), PRESETS[preset])
    if preset == "ecp5-85k":
        assert copied(plan) == 0


def test_groups_that_make_and_groups_that_read_lie_side_by_side() -> None:
    """Each of four groups reads four channels of each group before: eight outputs are of two of these."""
    plan = exact_plan(units(64, 4), CONFIG)
    before, _, after = plan.graph.layers[1:4]
    for layer, groups in ((before, 2), (after, 1)):
        reads = layer.connections.reshape(8, 8, 4, 16).any(axis=(1, 3))
        assert (reads.sum(axis=1) == groups).all()
    assert before.macs(plan.graph.tensors[before.output].shape) == 30 * 64 * 16
    assert plan.graph.kind_of(before) == "grouped convolution"


@pytest.mark.demo_core
def test_cycles_on_the_simulated_core() -> None:
    """A copy took 30 * 64 cycles; two words instead of one for each window take 30 * 8 more."""
    found = measure(units(64, 4, residual=False), CONFIG)
    assert found.counters["cycles"] == found.program.predicted_cycles
    assert sum(layer.copied_bytes for layer in found.program.layers) == 0
    assert 30 * 8 * 2 <= found.layer_cycles[1] < 30 * 8 * 2 + 60


def test_groups_stay_where_nothing_is_shuffled() -> None:
    maker = GraphMaker((*SIZE, 3))
    wide = maker.convolution(maker.convolution("x", 32, SAME), 32, POINT, groups=4)
    plan = exact_plan(maker.finish(wide), CONFIG)
    assert [layer.groups for layer in plan.graph.layers] == [1, 4]
