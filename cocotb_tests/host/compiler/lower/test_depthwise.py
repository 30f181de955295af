"""Depthwise commands of several chains: as many rows at a time as pay, and ONNX Runtime's bytes for every window."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.networks.mixed.configurations import CONFIGS
from cocotb_tests.support.oracles.exactness import PATIENT
from cocotb_tests.support.oracles.execution import exact_plan
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig
from lutterfly.golden.engines import DEPTHWISE
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import Queue
from lutterfly.host.compiler import Plan, plan_graph
from lutterfly.host.graph import Graph, Window


def of_chains(chains: int, *, requant_lanes: int = 8) -> Config:
    """An array of 16 columns."""
    base = PRESETS["ecp5-85k"]
    engines = base.engines.having(DEPTHWISE, DepthwiseConfig(taps=3, chains=chains))
    return dataclasses.replace(base, array=ArrayConfig(16, 16, requant_lanes), engines=engines)


def depthwise(shape: tuple[int, int, int], window: Window) -> Graph:
    maker = GraphMaker(shape)
    return maker.finish(maker.depthwise("x", window))


def commands(plan: Plan) -> list[dict[str, int]]:
    return [command.fields for command in plan.queue(Queue.COMPUTE) if command.fields["engine"] is DEPTHWISE]


pairs = st.tuples(st.integers(1, 5), st.integers(1, 5))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A depthwise layer of any window, from and to other layers."""
    kernel = draw(pairs)
    stride, dilation = (
        draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
    )
    pads = tuple(draw(st.integers(0, size - 1)) for size in (*kernel, *kernel))
    rows, columns = (draw(st.integers(1, 9)) + (k - 1) * d for k, d in zip(kernel, dilation, strict=True))
    channels = draw(st.integers(2, 19))
    maker = GraphMaker((rows, columns, channels), seed=draw(st.integers(0, 99)))
    source = "x"
    before = draw(st.sampled_from(["nothing", "convolution", "sum", "slice"]))
    if before == "convolution":
        source = maker.convolution(source, channels, Window((1, 1)))
    elif before == "sum":
        source = maker.add(source, maker.convolution(source, channels, Window((1, 1))), table=draw(st.booleans()))
    elif before == "slice" and channels > 3:
        source = maker.slice(source, 1, channels - 1)
    found = maker.depthwise(source, Window(kernel, stride, dilation, pads))
    if draw(st.booleans()):
        # It reads the rows as they come, and wants a border of them.
        found = maker.depthwise(found, Window((3, 3), pads=(1, 1, 1, 1)))
    if draw(st.booleans()):
        found = maker.concat(found, maker.convolution(found, 3, Window((1, 1))))
    return maker.finish(found)


@pytest.mark.regress
@given(graphs())
@settings(PATIENT, max_examples=40, derandomize=True)
def test_every_window_is_exact(graph: Graph) -> None:
    exact_plan(graph, CONFIGS["rows"])


@pytest.mark.regress
@given(graphs(), st.integers(1, 5))
@settings(PATIENT, max_examples=500)
def test_every_window_of_more_chains_is_exact(graph: Graph, chains: int) -> None:
    exact_plan(graph, of_chains(chains))


@pytest.mark.parametrize(
    ("chains", "rows", "counts"),
    [
        # Windows, and results of each beside the first: full ones, and what is left.
        (3, 9, [(3, 2)]),
        (3, 13, [(4, 2), (1, 0)]),
        (3, 11, [(3, 2), (1, 1)]),
        # Two at a time take as long as three and one left.
        (3, 10, [(5, 1)]),
        (1, 9, [(9, 0)]),
        (5, 3, [(1, 2)]),
    ],
)
def test_rows_are_shared_out(chains: int, rows: int, counts: list[tuple[int, int]]) -> None:
    # So wide that streams run along the rows.
    graph = depthwise((rows, 22, 16), Window((3, 3), pads=(1, 1, 1, 1)))
    found = commands(exact_plan(graph, of_chains(chains, requant_lanes=16)))
    assert [(fields["middle"], fields.get("further", 0)) for fields in found] == counts


def test_an_average_of_a_whole_map_has_one_result_a_window() -> None:
    """Whatever the chains: no window lies beside it."""
    maker = GraphMaker((5, 4, 16))
    (command,) = commands(exact_plan(maker.finish(maker.global_average("x")), of_chains(3)))
    assert (command["steps"], command["middle"], command.get("further", 0)) == (20, 1, 0)


@pytest.mark.parametrize(
    # For each result 3 words, 4 of two, 5 of three, 6 of four; two cycles in the requantiser, or one.
    ("chains", "requant_lanes", "halves"),
    [(1, 8, 6), (2, 8, 4), (1, 16, 6), (2, 16, 4), (4, 16, 3)],
)
def test_an_output_takes_a_share_of_its_words(chains: int, requant_lanes: int, halves: int) -> None:
    size = 24
    (command,) = commands(
        plan := plan_graph(
            depthwise((size, size, 16), Window((3, 3), pads=(1, 1, 1, 1))),
            of_chains(chains, requant_lanes=requant_lanes),
        )
    )
    assert command["steps"] - command["skip"] == command["rows"]
    (operation,) = plan.operations
    # The first window of each row has three columns' words.
    windows = size * (size + 2)
    assert operation.cycles(size, size, range(1)) == windows * halves / 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_more_chains_never_take_longer(stride: int) -> None:
    rng = np.random.default_rng(stride)
    for _ in range(20):
        shape = (*(int(size) for size in rng.integers(5, 30, 2)), int(rng.integers(2, 40)))
        graph = depthwise(shape, Window((3, 3), (stride, stride), pads=(1, 1, 1, 1)))
        cycles = [plan_graph(graph, of_chains(chains)).predicted_cycles for chains in (1, 2, 4)]
        # A command more takes a few cycles.
        assert cycles[1] <= cycles[0] + 8
        assert cycles[2] <= cycles[1] + 8


@pytest.mark.parametrize("chains", [1, 2])
def test_a_kernel_of_too_many_rows_runs_elsewhere(chains: int) -> None:
    assert not commands(plan_graph(depthwise((40, 40, 4), Window((33, 33))), of_chains(chains)))


@pytest.mark.parametrize(
    ("memory", "further"),
    [({}, {2}), ({"list_entries": 64}, {0}), ({"list_entries": 128}, {0, 1}), ({"weight_bytes": 2048}, {0, 1})],
)
def test_rows_need_room_for_their_lists_and_weights(memory: dict[str, int], further: set[int]) -> None:
    """Three rows have lists of 45 entries and five words of 256 bytes, two of 24 and four."""
    config = of_chains(3, requant_lanes=16)
    config = dataclasses.replace(config, memory=dataclasses.replace(config.memory, **memory))
    plan = exact_plan(depthwise((9, 22, 16), Window((3, 3), pads=(1, 1, 1, 1))), config)
    assert {fields.get("further", 0) for fields in commands(plan)} == further
