"""Max pooling along columns, then along rows: the same bytes in fewer steps."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import differing_bytes
from cocotb_tests.support.quantised.graphs import GraphMaker
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_graph, plan_graph
from lutterfly.host.graph import Graph, Window

CONFIG = PRESETS["ecp5-85k"]


def pooled(size: int, channels: int, window: Window, *, seed: int = 0, table: bool = False) -> Graph:
    maker = GraphMaker((size, size, channels), seed=seed)
    trunk = maker.convolution("x", channels, Window((1, 1)), zero_point=3)
    pool = maker.max_pool(trunk, window, table=table)
    return maker.finish(pool, maker.convolution(trunk, 3, Window((3, 3), pads=(1, 1, 1, 1))))


@pytest.mark.regress
@pytest.mark.parametrize("seed", sweep(range(20), kept=range(8)))
def test_bytes_are_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel = tuple(int(n) for n in rng.integers(4, 8, 2))
    window = Window(
        kernel, (1, 1), tuple(int(n) for n in rng.integers(1, 3, 2)), tuple(int(n) + 5 for n in rng.integers(0, 3, 4))
    )
    graph = pooled(int(rng.integers(3, 9)), 5, window, seed=seed, table=bool(seed % 2))
    for preset in ("tiny", "ecp5-85k"):
        program = compile_graph(graph, PRESETS[preset])
        assert len(program.layers) == len(graph.layers) + 1
        for order in ORDERS:
            assert differing_bytes(graph, program, PRESETS[preset], order=order, seed=seed) == 0


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "separated"),
    [
        (16, 5, 1, True),
        (13, 13, 1, True),
        (16, 3, 1, False),
        (16, 3, 2, False),
        (16, 5, 2, False),
        (7, 7, 1, True),
    ],
)
def test_where_it_halves_the_steps(size: int, kernel: int, stride: int, separated: bool) -> None:
    window = Window((kernel, kernel), (stride, stride), pads=(kernel // 2,) * 4)
    names = [layer.name for layer in plan_graph(pooled(size, 8, window), CONFIG).graph.layers]
    assert ("pool_t1 along columns" in names) == separated


@pytest.mark.regress
def test_a_window_with_more_classes_than_the_lists_hold_is_separated_even_where_it_does_not_fit() -> None:
    for kernel, separated in ((13, True), (5, False)):
        window = Window((kernel, kernel), pads=(kernel // 2,) * 4)
        plan = plan_graph(pooled(13, 1000, window), CONFIG)
        assert plan.cuts
        assert ("pool_t1 along columns" in [layer.name for layer in plan.graph.layers]) == separated
