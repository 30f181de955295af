"""Estimate: halves of what the array does, and more where the cores have to meet or share the bus."""

from __future__ import annotations

import dataclasses

import pytest

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler.cluster.estimate import Estimate
from lutterfly.host.compiler.cluster.split import Split
from lutterfly.host.compiler.passes import OPERATIONS, rewritten, run
from lutterfly.host.graph import Graph, Window

SAME = Window((3, 3), pads=(1, 1, 1, 1))
POINT = Window((1, 1))


def config(*, shared_port: bool = True) -> Config:
    return dataclasses.replace(PRESETS["ecp5-85k"], cluster=ClusterConfig(2, shared_port))


def estimate(graph: Graph, config: Config = config()) -> Estimate:  # noqa: B008
    network = rewritten(graph, config)
    return Estimate(network, run(network, OPERATIONS))


def two_convolutions(window: Window) -> Graph:
    maker = GraphMaker((32, 32, 16))
    return maker.finish(maker.convolution(maker.convolution("x", 16, window), 16, window))


def test_halves_of_the_rows_take_half_and_a_meeting() -> None:
    found = estimate(two_convolutions(SAME))
    one, rows = (found.cycles([split, split]) for split in (Split.ONE, Split.ROWS))
    assert one / 2 < rows < one / 2 + 500


def test_windows_of_a_pixel_need_no_meeting() -> None:
    found = estimate(two_convolutions(POINT))
    one, rows, mixed = (
        found.cycles(splits) for splits in ([Split.ONE] * 2, [Split.ROWS] * 2, [Split.ROWS, Split.CHANNELS])
    )
    # The bus brings the input, and takes the output, to and from both.
    assert rows < 0.8 * one
    assert mixed > rows + 1000


@pytest.mark.parametrize(("shared_port", "factor"), [(True, 1.5), (False, 0.9)])
def test_weights_that_every_core_loads_count_on_a_bus_that_they_share(shared_port: bool, factor: float) -> None:
    maker = GraphMaker((4, 1, 1024))
    graph = maker.finish(maker.convolution(maker.convolution("x", 1024, POINT), 1024, POINT))
    found = estimate(graph, config(shared_port=shared_port))
    rows, channels = (found.cycles([split] * 2) for split in (Split.ROWS, Split.CHANNELS))
    assert rows > factor * channels


def test_a_tensor_that_does_not_fit_is_on_the_bus_twice() -> None:
    maker = GraphMaker((64, 64, 32))
    graph = maker.finish(maker.convolution(maker.convolution("x", 32, POINT), 32, POINT))
    small = dataclasses.replace(config(), memory=dataclasses.replace(config().memory, feature_bytes=1 << 20))
    spilled, whole = (estimate(graph, each).cycles([Split.ROWS] * 2) for each in (config(), small))
    assert spilled > whole
