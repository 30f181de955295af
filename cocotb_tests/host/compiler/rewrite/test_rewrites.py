"""Rewritings of the graph: channels of a shuffle stay where they are, tables move, max pooling is separated."""

from __future__ import annotations

import dataclasses
from itertools import count

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import differing_bytes, exact_plan, measure
from cocotb_tests.support.quantised.graphs import GraphMaker
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_graph, plan_graph
from lutterfly.host.compiler.layout import cuts
from lutterfly.host.compiler.operation import Cut
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.compiler.rewrite.permute import in_orders
from lutterfly.host.graph import Arrange, Concat, Graph, Window

CONFIG = PRESETS["ecp5-85k"]
POINT, SAME = Window((1, 1)), Window((3, 3), pads=(1, 1, 1, 1))
SIZE = (6, 5)


def channels_of(taken: np.ndarray, channels: int) -> np.ndarray:
    """The arrangement of some channels of every pixel."""
    pixels = np.arange(SIZE[0] * SIZE[1]).reshape(*SIZE, 1)
    return pixels * channels + taken


def shuffle(channels: int, groups: int = 2) -> np.ndarray:
    return np.arange(channels).reshape(groups, -1).T.reshape(-1)


def between_outputs() -> Graph:
    """All channels of a convolution: both are outputs of the network."""
    maker = GraphMaker((*SIZE, 3))
    wide = maker.convolution("x", 32, SAME)
    return maker.finish(wide, maker.arranged(channels_of(shuffle(32), 32), wide))


def shuffled() -> Graph:
    """All channels of a convolution, between others; a depthwise one reads them."""
    maker = GraphMaker((*SIZE, 3))
    wide = maker.convolution("x", 32, SAME)
    moved = maker.arranged(channels_of(shuffle(32), 32), wide)
    return maker.finish(maker.convolution(maker.convolution(moved, 32, SAME, groups=32), 8, POINT))


def halved() -> Graph:
    """Halves of what is shuffled: one is joined to what a convolution makes of the other, as ShuffleNetV2 has it."""
    maker = GraphMaker((*SIZE, 3))
    wide = maker.convolution("x", 32, SAME)
    kept, read = (maker.arranged(channels_of(half, 32), wide) for half in np.split(shuffle(32), 2))
    return maker.finish(
        maker.convolution(maker.concat(kept, maker.convolution(read, 16, POINT), tables=False), 8, POINT)
    )


def test_a_shuffle_vanishes() -> None:
    plan = exact_plan(shuffled(), CONFIG)
    assert not any(isinstance(layer, Arrange) for layer in plan.graph.layers)
    assert plan.graph.tensors["t2"].order == tuple(np.argsort(shuffle(32)).tolist())


def test_a_shuffle_whose_order_is_not_free_is_copied() -> None:
    plan = exact_plan(between_outputs(), CONFIG)
    (copy,) = (layer for layer in plan.graph.layers if isinstance(layer, Arrange))
    assert [(part.target, part.spread) for part in copy.pieces] == [(0, 2), (1, 2)]


def test_halves_are_copied_in_runs() -> None:
    plan = exact_plan(halved(), CONFIG)
    copies = [layer for layer in plan.graph.layers if isinstance(layer, Arrange)]
    assert [len(layer.pieces) for layer in copies] == [2, 2]
    assert all(layer.is_in_runs for layer in copies)


def test_what_was_shuffled_is_found_where_it_lies() -> None:
    """Two units: of the first one's half, which is two runs, the second one's half has the first part of each."""
    maker = GraphMaker((*SIZE, 3))
    halves, wide = np.split(shuffle(32), 2), maker.convolution("x", 32, SAME)
    for _ in range(2):
        kept, read = (maker.arranged(channels_of(half, 32), wide) for half in halves)
        wide = maker.concat(kept, maker.convolution(read, 16, POINT), tables=False)
    plan = exact_plan(maker.finish(maker.convolution(wide, 8, POINT)), CONFIG)
    copies = [layer for layer in plan.graph.layers if isinstance(layer, Arrange)]
    assert [len(layer.pieces) for layer in copies] == [2, 2, 3, 3]
    assert all(layer.is_in_runs for layer in copies)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(3))
def test_channels_in_any_order_before(seed: int) -> None:
    """What another pass has put elsewhere is found there."""
    graph = halved()
    moved = in_orders(graph, np.random.default_rng(seed).permutation)
    assert any(tensor.order for tensor in moved.tensors.values())
    plan = plan_graph(moved, CONFIG, permute=False)
    copies = [layer for layer in plan.graph.layers if isinstance(layer, Arrange)]
    for layer in copies:
        taken = {
            target: source for part in layer.pieces for target, source in zip(part.targets, part.sources, strict=True)
        }
        assert [taken[target] for target in range(16)] == sorted(taken.values())
    assert differing_bytes(graph, compile_graph(moved, CONFIG, permute=False), CONFIG, order=ORDERS[0]) == 0


@pytest.mark.demo_core
def test_cycles_on_the_simulated_core() -> None:
    """One by one, in runs and not at all: the cycles of copies of 30 pixels with 32 channels."""
    kinds = {"vanishes": shuffled(), "one by one": between_outputs(), "in runs": halved()}
    copies = {}
    for name, graph in kinds.items():
        found = measure(graph, CONFIG)
        layers = zip(found.program.layers, found.layer_cycles, strict=True)
        copies[name] = [cycles for layer, cycles in layers if layer.copied_bytes]
        assert all(
            abs(layer.cycles - cycles) <= 2
            for layer, cycles in zip(found.program.layers, found.layer_cycles, strict=True)
        )
    assert copies["vanishes"] == []
    assert len(copies["one by one"]) == 1
    assert 30 * 32 <= copies["one by one"][0] < 30 * 32 + 60
    assert all(30 * 2 <= cycles < 30 * 2 + 60 for cycles in copies["in runs"])


# Tables of a concatenation move to the layers that write its inputs: no copy, and the same bytes.

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


# Max pooling along columns, then along rows: the same bytes in fewer steps.


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
