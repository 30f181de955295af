"""Tiles are known one by one: those of an operation differ in weights, steps and cycles where connections are off."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import differing_bytes
from cocotb_tests.support.quantised.graphs import BinaryGraphMaker, GraphMaker, plan_of
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.config import Config
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import CompileError, compile_graph, encode, plan_graph
from lutterfly.host.compiler.layout.constants import _pieces
from lutterfly.host.compiler.layout.cuts import Geometry, _estimate
from lutterfly.host.compiler.network import Network
from lutterfly.host.compiler.operation import Cut
from lutterfly.host.compiler.plan import Placed
from lutterfly.host.graph import Graph, Window

TINY = PRESETS["tiny"]


def sparse(seed: int) -> Graph:
    """Two layers in which each output reads some of the input's channels, few or many."""
    maker, name = GraphMaker((5, 5, 24), seed=seed), "x"
    for channels in (12, 9):
        name = maker.convolution(name, channels, Window((3, 3), pads=(1, 1, 1, 1)), zero_point=0)
        layer = maker.graph.layers[-1]
        kept = maker.rng.random(layer.weights.shape) < maker.rng.choice([0.02, 0.2, 0.9], (channels, 1, 1, 1))
        kept[:, 0, 0, 0] = True
        maker.graph.layers[-1] = dataclasses.replace(layer, weights=(layer.weights | 1) * kept)
    return maker.finish(name)


def with_words(words: int, feature_bytes: int = TINY.memory.feature_bytes) -> Config:
    memory = dataclasses.replace(TINY.memory, weight_bytes=words * TINY.weight_word_bytes, feature_bytes=feature_bytes)
    return dataclasses.replace(TINY, memory=memory)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("words", [2048, 256, 128])
@pytest.mark.parametrize("feature_bytes", [8192, 1024])
@pytest.mark.parametrize("seed", sweep(range(3), kept=[0]))
def test_every_byte_is_right(seed: int, feature_bytes: int, words: int) -> None:
    graph, config = sparse(seed), with_words(words, feature_bytes)
    plan = plan_graph(graph, config)
    for operation in plan.operations:
        assert len(set(operation.tile_steps)) > 1
    streams = [arrival for arrival in plan.arrivals if arrival.memory is LocalMemory.WEIGHT]
    total = sum(operation.tile_steps.sum() for operation in plan.operations)
    assert bool(streams) == (total > words)
    assert bool(plan.cuts) == (feature_bytes == 1024)
    for operation, prediction in zip(plan.operations, plan.predictions, strict=True):
        jobs = [job for job in plan.jobs if job.index == operation.index]
        steps = sum(operation.steps(len(job.rows), len(job.columns), job.tiles) for job in jobs)
        assert steps == prediction.array_cycles
    for order in ORDERS:
        assert differing_bytes(graph, encode(plan), config, order=order, seed=seed) == 0


@pytest.mark.parametrize(
    ("block", "expected"),
    [(7, [(0, 3), (3, 4), (4, 5), (5, 6), (6, 7)]), (2, [(0, 2), (2, 4), (4, 5), (5, 6), (6, 7)])],
)
def test_pieces_are_as_many_tiles_as_fit(block: int, expected: list[tuple[int, int]]) -> None:
    plan = plan_of(Placed, Network(sparse(0), TINY), cuts={0: (Cut(1, 1, block, 2), {})})
    pieces = _pieces(plan, 0, [3, 1, 1, 4, 2, 9, 1], 5)
    assert [(piece.start, piece.stop) for piece in pieces] == expected


def test_what_zeros_save_is_what_the_same_layers_take_without_them() -> None:
    graph = sparse(0)
    dense = dataclasses.replace(
        graph, layers=[dataclasses.replace(layer, weights=layer.weights | 1) for layer in graph.layers]
    )
    found, whole = (plan_graph(one, with_words(2048), permute=False).operations for one in (graph, dense))
    for few, every in zip(found, whole, strict=True):
        cycles = [operation.cycles(5, 5, range(operation.tiles)) for operation in (few, every)]
        assert few.connectivity.saved_cycles == cycles[1] - cycles[0] > 0
        assert every.connectivity.saved_cycles == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tiles", [1, 2])
def test_estimates_count_every_tile(tiles: int) -> None:
    plan = plan_graph(sparse(0), with_words(2048, 1024))
    operation, partial = plan.operations[0], plan.partial(0)

    def estimate() -> float:
        # What has been derived from the steps of other tiles.
        for name in ("_steps_before", "_cycles_before"):
            vars(operation).pop(name, None)
        return _estimate(plan, 0, Geometry(plan, 0, Cut(5, 5, tiles, 1), partial), streamed=False)

    forwards = estimate()
    operation.tile_steps = np.roll(operation.tile_steps, -1)
    assert estimate() == forwards
    operation.tile_steps[-1] += 100
    assert estimate() > forwards


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("words", "times"), [(4096, 1), (256, 5)])
def test_estimates_count_weights_that_are_streamed_in_beats(words: int, times: int) -> None:
    """Once, or for each part where they take more than an eighth of their memory."""
    plan = plan_graph(sparse(0), with_words(words, 1024))
    operation = plan.operations[0]
    geometry = Geometry(plan, 0, Cut(1, 5, operation.tiles, 1), plan.partial(0))
    streamed, stays = (_estimate(plan, 0, geometry, streamed=streamed) for streamed in (True, False))
    size = sum(len(constant.image) for constant in operation.constants.values())
    assert (size > plan.config.memory.weight_bytes / 8) == (times > 1)
    assert streamed - stays == pytest.approx(times * size / 4)


def test_the_largest_tile_must_fit() -> None:
    graph = sparse(0)
    largest = max(operation.tile_steps.max() for operation in plan_graph(graph, TINY).operations)
    words = 1 << (int(largest).bit_length() - 2)
    with pytest.raises(
        CompileError,
        match=rf"^conv_t\d: one tile of its output needs {largest * TINY.weight_word_bytes} bytes of weight memory, "
        rf"the configuration has {words * TINY.weight_word_bytes}; choose a larger --config$",
    ):
        compile_graph(graph, with_words(words))


@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_groups_that_are_zeros_of_a_layer_which_writes_bits(preset: str) -> None:
    """With two columns, a tile of eight outputs is an inner loop, which has no pitch of its own for the next tile."""
    config = PRESETS[preset]
    maker = BinaryGraphMaker((6, 6, 32))
    name = maker.to_bits(maker.convolution("x", 32, Window((3, 3), pads=(1, 1, 1, 1))))
    graph = maker.finish(maker.binary_convolution(name, 8, Window((1, 1)), bits=8))
    kept = np.arange(32)[:, None] // 8 == np.arange(32) // 8
    layer = graph.layers[0]
    weights = (layer.weights | 1) * kept[:, None, None, :].astype(np.int8)
    graph = dataclasses.replace(graph, layers=[dataclasses.replace(layer, weights=weights), *graph.layers[1:]])
    plan = plan_graph(graph, config)
    runs = plan.operations[0].runs
    assert [run.from_tile(tile) % 32 for run in runs for tile in run.tiles] == [0, 8, 16, 24]
    assert bool(runs[0].pitch) == (preset == "ecp5-85k")
    assert differing_bytes(graph, encode(plan), config, order="random", seed=0) == 0
