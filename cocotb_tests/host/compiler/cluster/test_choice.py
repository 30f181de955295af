"""Choice: rows where weights are few, channels where they are many, one core where a layer is small."""

from __future__ import annotations

import dataclasses

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler.cluster.by_layer import choose_parts
from lutterfly.host.compiler.cluster.estimate import Estimate
from lutterfly.host.compiler.cluster.split import Split
from lutterfly.host.compiler.passes import OPERATIONS, rewritten, run
from lutterfly.host.graph import Graph, Window

SAME = Window((3, 3), pads=(1, 1, 1, 1))
POINT = Window((1, 1))
CONFIG = dataclasses.replace(PRESETS["ecp5-85k"], cluster=ClusterConfig(2))


def chosen(graph: Graph, config: Config = CONFIG) -> list[Split]:
    network = rewritten(graph, config)
    executed = run(network, OPERATIONS)
    estimate = Estimate(network, executed)
    (parts, *_) = choose_parts(network, executed)
    splits = [
        next(split for split in Split if estimate.parts(index, split) == of_layer)
        for index, of_layer in enumerate(parts)
    ]
    # Nothing is chosen that promises less than one core.
    assert estimate.cycles(splits) <= estimate.cycles([Split.ONE] * len(splits))
    return splits


def test_maps_are_split_into_rows() -> None:
    maker = GraphMaker((32, 32, 16))
    hidden = maker.convolution("x", 16, SAME)
    assert chosen(maker.finish(maker.convolution(hidden, 16, SAME))) == [Split.ROWS, Split.ROWS]


def test_channels_are_split_where_every_core_would_load_the_same_weights() -> None:
    maker = GraphMaker((4, 4, 1024))
    hidden = maker.convolution("x", 1024, POINT)
    assert chosen(maker.finish(maker.convolution(hidden, 1024, POINT))) == [Split.CHANNELS, Split.CHANNELS]


def test_what_is_small_stays_on_one_core() -> None:
    maker = GraphMaker((4, 4, 8))
    hidden = maker.convolution("x", 8, SAME)
    assert chosen(maker.finish(maker.convolution(hidden, 8, SAME))) == [Split.ONE, Split.ONE]


def test_an_uneven_map_is_split_into_channels() -> None:
    """Three rows are two and one; the channels are halves."""
    maker = GraphMaker((3, 3, 64))
    hidden = maker.convolution("x", 128, SAME)
    assert chosen(maker.finish(maker.convolution(hidden, 128, SAME))) == [Split.CHANNELS, Split.CHANNELS]
