"""Channels that a shuffle takes lie as they lie: nothing is copied one by one, and readers have their weights so."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import ORDERS, differing_bytes, exact_plan, measure
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_graph, plan_graph
from lutterfly.host.compiler.rewrite.permute import in_orders
from lutterfly.host.graph import Arrange, Graph, Window

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
