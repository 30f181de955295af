"""Tables of a concatenation move to the layers that write its inputs: no copy, and the same bytes."""

from __future__ import annotations

import dataclasses
from itertools import count

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import differing_bytes, exact_plan
from cocotb_tests.support.quantised.graphs import GraphMaker
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_graph, plan_graph
from lutterfly.host.compiler.layout import cuts
from lutterfly.host.compiler.operation import Cut
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.graph import Concat, Window

CONFIG = PRESETS["ecp5-85k"]
SAME = Window((3, 3), pads=(1, 1, 1, 1))


def joined(maker: GraphMaker, *sources: str) -> str:
    """A concatenation with a table for every input."""
    made = maker.concat(*sources, tables=False)
    layer = maker.graph.layers[-1]
    maker.graph.layers[-1] = Concat(layer.name, layer.inputs, made, tuple(maker.table() for _ in sources))
    return made


@pytest.mark.sampled(4)
@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("kind", ["convolution", "depthwise", "max_pool", "add", "pointwise"])
def test_every_layer_that_may_have_a_table_takes_one(kind: str, table: bool) -> None:
    maker = GraphMaker((5, 6, 8))
    first = maker.convolution("x", 8, SAME, table=True)
    make = getattr(maker, kind)
    arguments = {"convolution": (9, SAME), "depthwise": (SAME,), "max_pool": (SAME,), "add": ("x",), "pointwise": ()}
    options = {} if kind == "pointwise" else {"table": table}
    second = make("x", *arguments[kind], **options)
    plan = exact_plan(maker.finish(maker.convolution(joined(maker, first, second), 4, SAME)), CONFIG)
    # A max pooling of few channels may still be copied: it takes whole words where its pixels lie side by side.
    assert all(layer.tables == (None, None) for layer in plan.graph.layers if isinstance(layer, Concat))
    assert len(plan.views) == 2 - (kind == "max_pool")


def test_what_others_read_too_is_looked_up_by_the_copy() -> None:
    maker = GraphMaker((5, 6, 8))
    read, stored, alone = (maker.convolution("x", 6, SAME) for _ in range(3))
    made = joined(maker, "x", read, stored, alone, alone)
    plan = exact_plan(maker.finish(maker.convolution(read, 3, SAME), stored, maker.convolution(made, 4, SAME)), CONFIG)
    assert plan.views == {}
    assert [layer.table for layer in plan.graph.layers[:3]] == [None, None, None]


@pytest.mark.regress
@pytest.mark.parametrize(
    ("preset", "side", "blocks"),
    sweep(
        [("tiny", 4, False), ("tiny", 17, False), ("tiny", 17, True), ("ecp5-85k", 4, False)], kept=[("tiny", 4, False)]
    ),
)
def test_more_tables_than_their_memory_holds(
    preset: str, side: int, blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the concatenation is whole in the feature memory, or in parts of all its channels or some."""
    if blocks:
        candidates = cuts._candidates

        def in_blocks(plan: Plan, index: int, **options):
            is_concat = isinstance(plan.graph.layers[index], Concat)
            return [[Cut(1, side, 1, 1)]] if is_concat else candidates(plan, index, **options)

        monkeypatch.setattr(cuts, "_candidates", in_blocks)
    config = PRESETS[preset]
    maker = GraphMaker((side, side, 5))
    sources = [maker.convolution("x", channels, Window((1, 1))) for channels in range(1, 2 * config.memory.tables + 2)]
    others = [maker.max_pool(name, Window((2, 2), (2, 2))) for name in sources]
    # One comes twice, with two tables; another one keeps its codes.
    made = joined(maker, sources[1], *sources)
    layer = maker.graph.layers[-1]
    maker.graph.layers[-1] = dataclasses.replace(layer, tables=(*layer.tables[:3], None, *layer.tables[4:]))
    kept = maker.graph.tensors[sources[2]].zero_point
    maker.graph.tensors[made] = dataclasses.replace(maker.graph.tensors[made], zero_point=kept)
    graph = maker.finish(*others, maker.convolution(made, 4, SAME))
    plan, program = plan_graph(graph, config), compile_graph(graph, config)
    index = next(index for index, layer in enumerate(plan.graph.layers) if isinstance(layer, Concat))
    assert plan.operations[index].tiles > 2
    assert (index in plan.cuts) == (side == 17)
    for order in ORDERS:
        assert differing_bytes(graph, program, config, order=order) == 0


def test_a_moved_table_is_one_with_that_before_it() -> None:
    maker, numbers = GraphMaker((4, 4, 4)), count(1)
    # Each adds a constant, so that the order and the number of lookups show.
    maker.table = lambda: (np.arange(-128, 128) * 3 + next(numbers)).astype(np.int8)
    first, second = maker.pointwise("x"), maker.pointwise("x")
    plan = exact_plan(maker.finish(maker.convolution(joined(maker, first, second), 4, SAME)), CONFIG)
    codes = np.arange(-128, 128)
    for layer, (before, after) in zip(plan.graph.layers, ((1, 3), (2, 4)), strict=False):
        np.testing.assert_array_equal(layer.table, ((codes * 3 + before) * 3 + after).astype(np.int8))
