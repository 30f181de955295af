"""Splits: even parts in whole units, and what cannot be taken apart."""

from __future__ import annotations

import pytest

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.host.compiler.cluster.split import Split, evenly, part_of, parts_of
from lutterfly.host.compiler.network import Region
from lutterfly.host.graph import Window

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
