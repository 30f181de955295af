"""Networks of channels: dead filters are found as a walk over single connections finds them, and named."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.quantised.channel_graphs import graphs, live_channels
from lutterfly.golden.connections.channel_graph import ChannelGraph, ChannelLayer, Dependence
from lutterfly.golden.connections.dead_channels import DeadChannel, find_dead

SPARSE, DENSE, CHANNELWISE, SUM, CONCATENATION, SLICE = Dependence


def residual() -> ChannelGraph:
    """A stem, a block of two convolutions with a sum around it, and a fully connected layer after it."""
    return ChannelGraph(
        {"image": 3},
        (
            ChannelLayer("stem", DENSE, ("image",), 4),
            ChannelLayer("first", SPARSE, ("stem",), 6),
            ChannelLayer("relu", CHANNELWISE, ("first",), 6),
            ChannelLayer("second", SPARSE, ("relu",), 4),
            ChannelLayer("sum", SUM, ("stem", "second"), 4),
            ChannelLayer("flat", CHANNELWISE, ("sum",), 16),
            ChannelLayer("logits", DENSE, ("flat",), 10),
        ),
        ("logits",),
    )


def full() -> dict[str, np.ndarray]:
    return {"first": np.ones((4, 6), bool), "second": np.ones((6, 4), bool)}


@pytest.mark.regress
@given(graphs(most=8), st.integers(0, 2**32 - 1))
@settings(max_examples=200)
def test_what_is_dead_is_what_a_walk_does_not_meet(graph: ChannelGraph, seed: int):
    random = np.random.default_rng(seed)
    channels = graph.channels
    connections = {
        layer.name: random.random((channels[layer.sources[0]], layer.channels)) < random.choice([0.1, 0.3, 0.8])
        for layer in graph.sparse_layers
    }
    reached, needed = live_channels(graph, connections)
    everything = [(name, i) for name, width in graph.channels.items() for i in range(width)]
    wanted = [
        DeadChannel(*channel, channel in reached, channel in needed)
        for channel in everything
        if channel not in reached & needed
    ]
    assert find_dead(graph, connections) == wanted


def test_with_all_connections_nothing_is_dead():
    assert find_dead(residual(), full()) == []


def test_a_planted_filter_without_inputs_is_named():
    connections = full()
    connections["first"][:, 2] = False
    assert list(map(str, find_dead(residual(), connections))) == [
        "first: channel 2 is not reached from an input",
        "relu: channel 2 is not reached from an input",
    ]


def test_a_planted_filter_that_nothing_reads_is_named():
    connections = full()
    connections["second"][5] = False
    assert list(map(str, find_dead(residual(), connections))) == [
        "first: channel 5 does not reach a prediction",
        "relu: channel 5 does not reach a prediction",
    ]
    connections["first"][:, 5] = False
    assert str(find_dead(residual(), connections)[0]) == (
        "first: channel 5 is not reached from an input and does not reach a prediction"
    )


def test_the_way_around_a_block_keeps_channels_alive():
    connections = full()
    connections["first"][1] = False
    assert find_dead(residual(), connections) == []
    # A filter of the block without inputs is dead, though the sum after it is not.
    connections["second"][:, 3] = False
    assert list(map(str, find_dead(residual(), connections))) == ["second: channel 3 is not reached from an input"]


def test_layers_that_cover_their_inputs():
    assert residual().covering_layers() == {"second"}
    branches = ChannelGraph(
        {"image": 4},
        (
            ChannelLayer("narrow", SPARSE, ("image",), 3),
            ChannelLayer("wide", SPARSE, ("image",), 5),
            ChannelLayer("both", CONCATENATION, ("narrow", "wide"), 8),
            ChannelLayer("last", SPARSE, ("both",), 2),
        ),
        ("last",),
    )
    assert branches.covering_layers() == {"wide", "last"}
    features = ChannelGraph(branches.inputs, branches.layers, ("both", "last"))
    assert features.covering_layers() == {"wide"}


@pytest.mark.parametrize(
    ("inputs", "layers", "outputs", "message"),
    [
        ({"x": 0}, [], ["x"], "x: channels must be at least 1, not 0"),
        (
            {"x": 2},
            [("y", DENSE, ("x",), 0)],
            ["y"],
            "y: channels must be at least 1, not 0",
        ),
        (
            {"x": 2},
            [("x", DENSE, ("x",), 2)],
            ["x"],
            "x: name must be of one tensor, not of two; rename a layer",
        ),
        (
            {"x": 2},
            [("y", DENSE, ("z",), 2)],
            ["y"],
            "y: sources must be inputs or layers before it, not 'z'; list layers in order of execution",
        ),
        ({"x": 2}, [], ["y"], "outputs must be inputs or layers, not 'y'"),
        (
            {"x": 2},
            [("y", DENSE, ("x",), 2), ("z", DENSE, ("x",), 2)],
            ["y"],
            (
                "z: result must be read by a layer or be an output, and is neither; "
                "leave the layer out, or name it among the outputs"
            ),
        ),
        (
            {"x": 2},
            [("y", SUM, ("x",), 2)],
            ["y"],
            "y: sources of a sum layer must be 2 or more, not 1",
        ),
        (
            {"x": 2},
            [("y", SPARSE, ("x", "x"), 2)],
            ["y"],
            "y: sources of a sparse layer must be 1, not 2",
        ),
        (
            {"x": 2, "w": 3},
            [("y", SUM, ("x", "w"), 2)],
            ["y"],
            "y: sources of a sum must have 2 channels each, not [2, 3]",
        ),
        (
            {"x": 2, "w": 3},
            [("y", CONCATENATION, ("x", "w"), 6)],
            ["y"],
            "y: channels must be 5, the sum of its sources', not 6",
        ),
        (
            {"x": 2},
            [("y", CHANNELWISE, ("x",), 3)],
            ["y"],
            "y: channels must be a multiple of its source's 2, not 3; if it mixes channels, it is a dense layer",
        ),
    ],
)
def test_a_graph_that_is_none_is_refused(inputs: dict, layers: list, outputs: list, message: str):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ChannelGraph(inputs, tuple(ChannelLayer(*layer) for layer in layers), tuple(outputs))


def test_connections_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"^second: connections must be given, and are missing$"):
        find_dead(residual(), {"first": full()["first"]})
    with pytest.raises(ValueError, match=r"^stem: connections must be of a sparse layer, and it is none of first, sec"):
        find_dead(residual(), full() | {"stem": np.ones((3, 4), bool)})
    with pytest.raises(ValueError, match=r"^first: connections must be bool\[4, 6\], not bool\[6, 4\]$"):
        find_dead(residual(), full() | {"first": np.ones((6, 4), bool)})
    with pytest.raises(TypeError, match=r"^first: connections must be bool, not int64$"):
        find_dead(residual(), full() | {"first": np.ones((4, 6), np.int64)})


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (ChannelLayer("part", SLICE, ("x",), 3, 2), "part: channels must be among its source's 4, not 2 to 4"),
        (ChannelLayer("part", SLICE, ("x",), 2, -1), "part: channels must be among its source's 4, not -1 to 0"),
        (ChannelLayer("part", DENSE, ("x",), 2, 1), "part: first must be 0 of a dense layer, not 1"),
    ],
)
def test_slices_are_of_channels_that_exist(layer: ChannelLayer, message: str):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ChannelGraph({"x": 4}, (layer,), ("part",))
    assert ChannelGraph({"x": 4}, (ChannelLayer("part", SLICE, ("x",), 2, 2),), ("part",))
