"""Permute: channels in another order empty words, and all that touches them follows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.networks.families import network
from cocotb_tests.support.networks.pruning import pruned
from cocotb_tests.support.oracles.exactness import needs_reference
from cocotb_tests.support.oracles.execution import differing_bytes
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import encode, plan_graph, search
from lutterfly.host.compiler.lower import wide_windows
from lutterfly.host.compiler.rewrite.permute import _OrderSearch, in_orders, permuted
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Convolution, Graph, Window
from lutterfly.host.graph.evaluate import evaluate

CONFIG = PRESETS["ecp5-85k"]
SAME = Window((3, 3), pads=(1, 1, 1, 1))


def masked(graph: Graph, masks: dict[int, np.ndarray]) -> Graph:
    """With only these connections, bool[outputs, inputs] by the number of the layer; else all of them."""
    layers = list(graph.layers)
    for number, layer in enumerate(graph.layers):
        if isinstance(layer, Convolution) and layer.groups == 1:
            weights = np.where(layer.weights == 0, np.int8(1), layer.weights)
            weights *= masks.get(number, np.ones(weights.shape[::3], bool))[:, None, None, :].astype(np.int8)
            layers[number] = dataclasses.replace(layer, weights=weights)
    return dataclasses.replace(graph, layers=layers)


def blocks(rng: np.random.Generator, outputs: int, inputs: int, density: float) -> np.ndarray:
    found = rng.random((outputs // 8, inputs // 16)) < density
    found[:, 0] = True
    return found.repeat(8, axis=0).repeat(16, axis=1)


def residual(seed: int) -> tuple[Graph, dict[int, np.ndarray], np.random.Generator]:
    """Two layers around a sum, which a depthwise layer and a pooling follow."""
    maker, rng = GraphMaker((6, 6, 32), seed=seed), np.random.default_rng(seed)
    first = maker.convolution("x", 64, SAME)
    name = maker.add(first, maker.convolution(maker.convolution(first, 64, SAME), 64, SAME))
    name = maker.max_pool(maker.depthwise(name, SAME), Window((2, 2), (2, 2)))
    name = maker.concat(name, maker.convolution(name, 16, Window((1, 1))))
    graph = maker.finish(maker.convolution(name, 24, Window((1, 1))))
    shapes = {
        number: layer.weights.shape[::3]
        for number, layer in enumerate(graph.layers)
        if isinstance(layer, Convolution) and layer.groups == 1
    }
    return graph, {number: blocks(rng, *shape, 0.3) for number, shape in shapes.items()}, rng


def shuffled(graph: Graph, masks: dict[int, np.ndarray], rng: np.random.Generator) -> dict[int, np.ndarray]:
    """Masks as if the channels between the layers were in other orders, which all that touches them shares."""
    orders: dict[str, np.ndarray] = {}
    for layer in graph.layers:
        channels = graph.tensors[layer.output].shape[2]
        if isinstance(layer, Convolution) and layer.groups == 1:
            orders[layer.output] = rng.permutation(channels)
        elif len(layer.inputs) > 1 and channels != graph.tensors[layer.inputs[0]].shape[2]:
            sizes = np.cumsum([0, *(graph.tensors[name].shape[2] for name in layer.inputs)])
            orders[layer.output] = np.concatenate([orders[name] + sizes[i] for i, name in enumerate(layer.inputs)])
        else:
            for name in layer.inputs[1:]:
                orders[name] = orders[layer.inputs[0]]
            orders[layer.output] = orders[layer.inputs[0]]
    orders |= {name: np.arange(graph.tensors[name].shape[2]) for name in (*graph.inputs, *graph.outputs)}
    return {
        number: mask[orders[graph.layers[number].output]][:, orders[graph.layers[number].input]]
        for number, mask in masks.items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_the_reordered_graph_computes_the_same(seed: int) -> None:
    graph, masks, rng = residual(seed)
    graph = masked(graph, shuffled(graph, masks, rng))
    found = permuted(graph, CONFIG)
    assert found is not None
    codes = {"x": rng.integers(-128, 128, (6, 6, 32), dtype=np.int8)}
    before, after = evaluate(graph, codes), evaluate(found, codes)
    moved = 0
    for name, tensor in found.tensors.items():
        order = list(tensor.order) or slice(None)
        moved += bool(tensor.order)
        np.testing.assert_array_equal(after[name], before[name][..., order])
    assert moved >= 5
    assert not any(found.tensors[name].order for name in ("x", *found.outputs))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("permute", [True, False])
def test_every_tensor_is_found_where_the_model_has_it(seed: int, permute: bool) -> None:
    graph, masks, rng = residual(seed)
    graph = masked(graph, shuffled(graph, masks, rng))
    plan = plan_graph(graph, CONFIG, permute=permute)
    assert any(tensor.order for tensor in plan.graph.tensors.values()) == permute
    assert differing_bytes(graph, encode(plan), CONFIG, order="random", seed=seed) == 0


def test_blocks_that_somebody_has_scattered_are_found_again() -> None:
    maker, rng = GraphMaker((8, 8, 32)), np.random.default_rng(5)
    name = "x"
    for channels in (128, 128, 32):
        name = maker.convolution(name, channels, SAME)
    graph = maker.finish(name)
    masks = {0: np.ones((128, 32), bool), 1: blocks(rng, 128, 128, 0.2), 2: np.ones((32, 128), bool)}
    ordered = plan_graph(masked(graph, masks), CONFIG, permute=False).predicted_cycles
    scattered = masked(graph, shuffled(graph, masks, rng))
    assert plan_graph(scattered, CONFIG, permute=False).predicted_cycles > 1.5 * ordered
    assert plan_graph(scattered, CONFIG).predicted_cycles <= 1.02 * ordered


def test_channels_that_nobody_reads_come_together() -> None:
    maker, rng = GraphMaker((8, 8, 16)), np.random.default_rng(2)
    graph = maker.finish(maker.convolution(maker.convolution("x", 128, SAME), 32, SAME))
    live = rng.permutation(128) < 32
    graph = masked(graph, {1: np.broadcast_to(live, (32, 128))})
    steps = [plan_graph(graph, CONFIG, permute=permute).operations[1].tile_steps for permute in (False, True)]
    assert [set(of_tiles.tolist()) for of_tiles in steps] == [{63}, {18}]


@pytest.mark.parametrize(("helps", "rounds"), [([False], 1), ([True, False], 2), ([True, True, True, True], 3)])
def test_orders_are_chosen_anew_while_that_helps(
    helps: list[bool], rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, masks, rng = residual(0)
    left = iter(helps)
    monkeypatch.setattr(_OrderSearch, "improve", lambda self: next(left))
    permuted(masked(graph, shuffled(graph, masks, rng)), CONFIG)
    assert len(helps) - len(list(left)) == rounds


def test_another_order_is_taken_only_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = GraphMaker((6, 6, 32))
    graph = maker.finish(maker.convolution("x", 64, SAME))
    as_fast = dataclasses.replace(graph, notes=["another order"])
    monkeypatch.setattr(search, "permuted", lambda graph, config: as_fast)
    assert plan_graph(graph, CONFIG).graph.notes == []


@needs_reference
def test_another_order_may_need_other_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A concatenation of this U-Net becomes a view only where its channels have changed their places."""
    # Wide windows make the copy worth it in both orders.
    monkeypatch.setattr(wide_windows, "_wide", lambda *_: ())
    config = dataclasses.replace(CONFIG, array=dataclasses.replace(CONFIG.array, requant_lanes=4))
    graph = import_model(pruned(network(42).model, 42), "unet")
    plan, plain = (plan_graph(graph, config, permute=permute) for permute in (True, False))
    assert len(plan.predictions) < len(plain.predictions)
    words = {layer.name: layer.words for layer in plain.predictions}
    assert any(layer.words < layer.model_words for layer in plan.predictions)
    assert all(layer.model_words == words[layer.name] for layer in plan.predictions)


def test_a_dense_network_is_left_alone() -> None:
    maker = GraphMaker((6, 6, 32))
    graph = maker.finish(maker.convolution(maker.convolution("x", 64, SAME), 32, SAME))
    assert permuted(masked(graph, {}), CONFIG) is None


def branches(seed: int) -> Graph:
    """Sums with an input, with itself and of concatenations with other parts, a slice, groups, pools, tables."""
    maker, rng = GraphMaker((5, 5, 6), seed=seed), np.random.default_rng(seed)
    first, second = maker.convolution("x", 6, SAME), maker.convolution("x", 10, SAME)
    name = maker.concat(first, second)
    sums = [maker.add(name, maker.convolution(name, 16, SAME)), maker.add(maker.convolution(name, 16, SAME), name)]
    name = maker.add(*sums) if rng.integers(2) else maker.concat(*sums)
    wide = maker.convolution(maker.max_pool(name, SAME), 16, Window((1, 1)))
    part = maker.convolution(maker.slice(wide, 3, 7), 9, SAME)
    grouped = maker.convolution(maker.depthwise(wide, SAME), 4, SAME, groups=2)
    other = maker.add(maker.convolution("x", 6, Window((1, 1))), "x")
    free = maker.convolution(maker.convolution(other, 12, SAME), 5, SAME)
    return maker.finish(part, grouped, free, sums[0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_any_order_that_is_free_gives_the_same(seed: int, preset: str) -> None:
    graph, rng, config = branches(seed), np.random.default_rng(seed), PRESETS[preset]
    found = in_orders(graph, rng.permutation)
    codes = {"x": rng.integers(-128, 128, (5, 5, 6), dtype=np.int8)}
    before, after = evaluate(graph, codes), evaluate(found, codes)
    for name, tensor in found.tensors.items():
        np.testing.assert_array_equal(after[name], before[name][..., list(tensor.order) or slice(None)], name)
    assert any(tensor.order for tensor in found.tensors.values())
    assert not any(found.tensors[name].order for name in ("x", *found.outputs))
    assert differing_bytes(graph, encode(plan_graph(found, config, permute=False)), config, order="random") == 0


def sums(name: str, seed: int) -> Graph:
    """Sums of parts that meet in other pairs, of other sizes, or twice, and what else gives a part its place."""
    maker = GraphMaker((4, 4, 6), seed=seed)
    if name == "slice":
        wide = maker.convolution("x", 32, SAME)
        return maker.finish(*(maker.convolution(maker.slice(wide, 8, 16), 4, SAME) for _ in range(2)))
    a, b, c = (maker.convolution("x", 6, SAME) for _ in range(3))
    operands = {
        "input first": lambda: ("x", a),
        "input second": lambda: (a, "x"),
        "part of the input": lambda: (maker.concat(a, b), maker.concat(c, "x")),
        "part of the input first": lambda: (maker.concat("x", a), maker.concat(b, c)),
        "other sizes": lambda: (maker.concat(a, b), maker.convolution("x", 12, SAME)),
        "other sizes first": lambda: (maker.convolution("x", 12, SAME), maker.concat(a, b)),
        "as many of other sizes": lambda: (maker.concat(a, maker.convolution("x", 9, SAME)), wide()),
        "one twice": lambda: (maker.concat(a, b), maker.concat(c, c)),
        "one twice first": lambda: (maker.concat(c, c), maker.concat(a, b)),
        "crosswise": lambda: (maker.concat(a, b), maker.concat(b, a)),
        "chained": lambda: (maker.concat(a, a, b), maker.concat(b, c, c)),
    }

    def wide() -> str:
        return maker.concat(maker.convolution("x", 9, SAME), b)

    return maker.finish(maker.convolution(maker.add(*operands[name]()), 5, SAME))


#: Whether the channels of the sum, or of what is sliced, may move.
MOVES = {
    "slice": False,
    "input first": False,
    "input second": False,
    "part of the input": True,
    "part of the input first": True,
    "other sizes": False,
    "other sizes first": False,
    "as many of other sizes": False,
    "one twice": True,
    "one twice first": True,
    "crosswise": True,
    "chained": True,
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", MOVES)
def test_parts_that_meet_are_in_one_order(name: str, seed: int) -> None:
    graph, rng = sums(name, seed), np.random.default_rng(seed)
    found = in_orders(graph, rng.permutation)
    codes = {"x": rng.integers(-128, 128, (4, 4, 6), dtype=np.int8)}
    before, after = evaluate(graph, codes), evaluate(found, codes)
    for tensor in found.tensors.values():
        order = list(tensor.order) or slice(None)
        np.testing.assert_array_equal(after[tensor.name], before[tensor.name][..., order], tensor.name)
    last = next(layer for layer in graph.layers[::-1] if not isinstance(layer, Convolution))
    assert bool(found.tensors[last.input if name == "slice" else last.output].order) is MOVES[name]
