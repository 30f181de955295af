"""Splits: even parts in whole units, and local graphs whose parts are the tensors of the network."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import chain
from cocotb_tests.support.networks.mixed import FIRST_WIDE, network
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.host.compiler.cluster.split import Local, Parts, Split, evenly, local_graphs, part_of, parts_of
from lutterfly.host.compiler.network import Region
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Add, Graph, Window
from lutterfly.host.graph.evaluate import evaluate

SAME = Window((3, 3), pads=(1, 1, 1, 1))


@pytest.mark.parametrize(
    ("count", "cores", "unit", "sizes"),
    [
        (7, 2, 1, [4, 3]),
        (3, 4, 1, [1, 1, 1, 0]),
        (40, 2, 16, [32, 8]),
        (16, 4, 8, [8, 8, 0, 0]),
        (1, 2, 8, [1, 0]),
    ],
)
def test_parts_are_even(count: int, cores: int, unit: int, sizes: list[int]) -> None:
    parts = evenly(count, cores, unit)
    assert [len(part) for part in parts] == sizes
    assert [number for part in parts for number in part] == [*range(count)]


def test_rows_need_what_their_windows_reach() -> None:
    maker = GraphMaker((8, 6, 4))
    maker.convolution("x", 8, SAME)
    graph = maker.finish("t0")
    (layer,) = graph.layers
    first, second = parts_of(graph, layer, Split.ROWS, 2, 8)
    assert (first, second) == (Region(range(4), range(8)), Region(range(4, 8), range(8)))
    upper, needed = part_of(graph, layer, first)
    assert (needed, upper.window.pads) == ([Region(range(5), range(4))], (1, 1, 0, 1))
    lower, needed = part_of(graph, layer, second)
    assert (needed, lower.window.pads) == ([Region(range(3, 8), range(4))], (0, 1, 1, 1))


def test_channels_need_all_or_their_own() -> None:
    maker = GraphMaker((4, 4, 16))
    maker.depthwise(maker.convolution("x", 16, SAME), SAME)
    graph = maker.finish("t1")
    dense, depthwise = graph.layers
    second = Region(range(4), range(8, 16))
    assert parts_of(graph, dense, Split.CHANNELS, 2, 8)[1] == second
    assert part_of(graph, dense, second)[1] == [Region(range(4), range(16))]
    assert part_of(graph, depthwise, second)[1] == [Region(range(4), range(8, 16))]


def test_what_cannot_be_split_stays_together() -> None:
    maker = GraphMaker((4, 4, 8))
    grouped = maker.convolution("x", 8, SAME, groups=4)
    maker.fully_connected(maker.concat(grouped, "x"), 12)
    graph = maker.finish("t2")
    layers = dict(zip(("grouped", "concat", "whole"), graph.layers, strict=True))
    possible = {
        name: {split for split in Split if parts_of(graph, layer, split, 2, 4)} for name, layer in layers.items()
    }
    assert possible == {
        "grouped": {Split.ONE, Split.ROWS},
        "concat": {Split.ONE, Split.ROWS},
        "whole": {Split.ONE, Split.CHANNELS},
    }
    assert parts_of(graph, layers["whole"], Split.CHANNELS, 2, 16) is None
    assert parts_of(graph, layers["concat"], Split.ONE, 3, 4) == (Region(range(4), range(16)), None, None)


def test_rows_that_lie_in_the_padding_alone_are_no_part() -> None:
    maker = GraphMaker((2, 4, 4))
    maker.convolution("x", 4, Window((2, 2), pads=(2, 0, 2, 0)))
    graph = maker.finish("t0")
    assert parts_of(graph, graph.layers[0], Split.ROWS, 2, 4) is not None
    assert parts_of(graph, graph.layers[0], Split.ROWS, 4, 4) is None
    assert part_of(graph, graph.layers[0], Region(range(1), range(4))) is None


# Local graphs: the parts of all cores, put together, are the network's tensors.


def drawn_parts(graph: Graph, cores: int, rng: np.random.Generator) -> list[Parts]:
    """A split of every layer, of those that it can be."""
    found = []
    for layer in graph.layers:
        choices = [parts_of(graph, layer, split, cores, 8) for split in Split]
        found.append(rng.choice(np.array([*filter(None, choices), None], object)[:-1]))
    return [tuple(parts) for parts in found]


def cut(codes: np.ndarray, region: Region) -> np.ndarray:
    return codes[region.rows.start : region.rows.stop, :, region.channels.start : region.channels.stop]


def check(graph: Graph, locals_: list[Local], seed: int) -> int:
    """Layers that were taken apart; every part of every tensor is that of the network."""
    rng = np.random.default_rng(seed)
    inputs = {name: rng.integers(-128, 128, graph.tensors[name].shape, np.int8) for name in graph.inputs}
    inputs = {
        name: np.where(codes < 0, -1, 1).astype(np.int8) if graph.tensors[name].bits == 1 else codes
        for name, codes in inputs.items()
    }
    known = evaluate(graph, inputs)
    covered = {layer.output: np.zeros(known[layer.output].shape, int) for layer in graph.layers}
    parts = 0
    for local in locals_:
        for layer in local.graph.layers:
            excerpts = {name: local.excerpts[name] for name in layer.inputs}
            values = {name: cut(known[excerpt.tensor.name], excerpt.region) for name, excerpt in excerpts.items()}
            for name, codes in layer.evaluate(values, local.graph.tensors).items():
                np.testing.assert_array_equal(codes, cut(known[name], local.excerpts[name].region), layer.name)
                assert codes.shape == local.graph.tensors[name].shape
            cut(covered[layer.output], local.excerpts[layer.output].region)[:] += 1
            parts += local.excerpts[layer.output].tensor.shape != local.graph.tensors[layer.output].shape
    assert all((count == 1).all() for count in covered.values())
    return parts


def check_exchanges(graph: Graph, locals_: list[Local]) -> int:
    """What is read and not computed is given by others, and stored by them; gives how many tensors are exchanged."""
    for local in locals_:
        assert [*local.exchanges] == [*locals_[0].exchanges]
        for layer in local.graph.layers:
            for name in layer.inputs:
                excerpt = local.excerpts[name]
                if excerpt.tensor.name in graph.inputs:
                    continue
                here = np.zeros((excerpt.tensor.shape[0], 1, excerpt.tensor.shape[2]), bool)
                exchange = local.exchanges.get(excerpt.tensor.name)
                own = excerpt.region if exchange is None else exchange.own
                for region in filter(None, (own, *(exchange.arrives if exchange else ()))):
                    cut(here, region)[:] = True
                assert cut(here, excerpt.region).all(), name
    for name in locals_[0].exchanges:
        exchanges = [local.exchanges[name] for local in locals_]
        shape = graph.tensors[name].shape
        stored = np.zeros((shape[0], 1, shape[2]), bool)
        for exchange in exchanges:
            for region in exchange.leaves:
                assert exchange.own.holds(region)
                cut(stored, region)[:] = True
        for exchange in exchanges:
            for region in exchange.arrives:
                assert cut(stored, region).all(), name
                assert exchange.own is None or exchange.own.meet(region) is None
    return len(locals_[0].exchanges)


def spread(graph: Graph, cores: int, seed: int) -> tuple[int, int]:
    parts = drawn_parts(graph, cores, np.random.default_rng(seed))
    found = local_graphs(graph, parts, [layer for layer in graph.layers if isinstance(layer, Add)])
    return check(graph, found, seed), check_exchanges(graph, found)


@pytest.mark.regress
@pytest.mark.parametrize("cores", [2, 4])
def test_parts_of_chains_are_the_whole(cores: int):
    found = [spread(import_model(chain(seed).model), cores, seed) for seed in range(30)]
    assert sum(parts for parts, _ in found) > 30
    assert sum(exchanged for _, exchanged in found) > 15


@pytest.mark.regress
@pytest.mark.parametrize("cores", [2, 8])
@pytest.mark.parametrize("first", [0, FIRST_WIDE])
def test_parts_of_mixed_networks_are_the_whole(cores: int, first: int):
    found = []
    for seed in range(first, first + 12):
        graph = import_model(network(seed, "tiny").model)
        found += [spread(graph, cores, again) for again in (seed, seed + 1)]
    assert sum(parts for parts, _ in found) > 60
    assert sum(exchanged for _, exchanged in found) > 60
