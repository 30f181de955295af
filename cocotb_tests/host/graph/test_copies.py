"""Copies of channels: what they take, and which tensors may lie in which others so that they have less to copy."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.host.graph import ChannelRule, Graph, Layer, ViewPlace, Views, Window


def joined(*, tables: bool = False) -> tuple[Graph, Layer]:
    """A concatenation of tensors of 5, 3 and 4 channels, the last of which has a table or none."""
    maker = GraphMaker((2, 3, 12))
    parts = [maker.slice("x", first, channels) for first, channels in ((0, 5), (5, 3), (8, 4))]
    maker.concat(*parts, tables=False)
    layer = maker.graph.layers[-1]
    if tables:
        layer = layer.with_input_tables(layer.inputs, (None, None, maker.table()))
        maker.graph.layers[-1] = layer
    return maker.finish(layer.output), layer


def choices(graph: Graph, layer: Layer, places: Views | None = None) -> list[Views]:
    """What a layer suggests where some tensors are views already."""
    known = places or {}
    return list(layer.view_choices(graph.layers, graph.tensors, lambda name: known.get(name, ViewPlace(name))))


@pytest.mark.parametrize("tables", [False, True])
def test_selections_are_what_the_layer_computes(tables: bool) -> None:
    graph, layer = joined(tables=tables)
    for one in graph.layers:
        values = {name: np.random.default_rng(1).integers(-128, 128, graph.tensors[name].shape) for name in one.inputs}
        values = {name: codes.astype(np.int8) for name, codes in values.items()}
        found = np.zeros(graph.tensors[one.output].shape, np.int8)
        for part in one.selections(graph.tensors):
            codes = values[one.inputs[part.source]][..., part.first : part.first + part.channels]
            codes = codes if part.table is None else part.table[codes.astype(np.int64) + 128]
            found[..., part.target : part.target + part.channels] = codes
        np.testing.assert_array_equal(found, one.evaluate(values, graph.tensors)[one.output])
    assert [part.table is None for part in layer.selections(graph.tensors)] == [True, True, not tables]


@pytest.mark.parametrize("kind", ["convolution", "depthwise", "average_pool"])
def test_channels_in_another_order_give_the_same_in_that_order(kind: str) -> None:
    maker = GraphMaker((5, 4, 6), zero_point=0)
    window = Window((2, 3), pads=(1, 1, 0, 1))
    name = maker.convolution("x", 5, window) if kind == "convolution" else getattr(maker, kind)("x", window)
    (layer,), tensors = maker.graph.layers, maker.graph.tensors
    codes = maker.rng.integers(-128, 128, (5, 4, 6), dtype=np.int8)
    inputs = maker.rng.permutation(6)
    is_free = layer.channel_rule(*maker.graph.ends(layer)) is ChannelRule.FREE
    outputs = maker.rng.permutation(5) if is_free else inputs
    found = layer.reordered(outputs, inputs).evaluate({"x": codes[..., inputs]}, tensors)[name]
    np.testing.assert_array_equal(found, layer.evaluate({"x": codes}, tensors)[name][..., outputs])


def test_what_computes_copies_nothing() -> None:
    maker = GraphMaker((2, 3, 4))
    maker.pointwise("x")
    (layer,) = maker.graph.layers
    assert (layer.is_copy, layer.selections(maker.graph.tensors), choices(maker.graph, layer)) == (False, [], [])


def test_slices_lie_in_their_input_all_of_them_or_one() -> None:
    graph, _ = joined()
    first, second, third, _ = graph.layers
    places = {first.output: ViewPlace("x", 0), second.output: ViewPlace("x", 5), third.output: ViewPlace("x", 8)}
    assert choices(graph, second) == [places, {second.output: ViewPlace("x", 5)}]


def test_slices_of_other_tensors_are_chosen_by_themselves() -> None:
    maker = GraphMaker((2, 3, 12))
    outer = maker.slice("x", 2, 8)
    inner = maker.slice(outer, 1, 3)
    first, second = maker.graph.layers
    assert choices(maker.graph, first) == [{outer: ViewPlace("x", 2)}] * 2
    assert choices(maker.graph, second) == [{inner: ViewPlace(outer, 1)}] * 2


def test_inputs_lie_in_their_concatenation_but_for_tables() -> None:
    graph, layer = joined()
    first, second, third = layer.inputs
    views = [
        {first: ViewPlace(layer.output, 0)},
        {second: ViewPlace(layer.output, 5)},
        {third: ViewPlace(layer.output, 8)},
    ]
    assert choices(graph, layer) == views
    graph, layer = joined(tables=True)
    assert choices(graph, layer) == views[:2]


def test_a_concatenation_lies_where_its_inputs_lie_side_by_side_already() -> None:
    graph, layer = joined()
    first, second, third = layer.inputs
    inputs = choices(graph, layer)
    apart = {first: ViewPlace("x", 2), second: ViewPlace("x", 7), third: ViewPlace("x", 10)}
    assert choices(graph, layer, apart) == [{layer.output: ViewPlace("x", 2)}, *inputs]
    assert choices(graph, layer, apart | {third: ViewPlace("x", 9)}) == inputs
    assert choices(graph, layer, apart | {second: ViewPlace("other", 7)}) == inputs


def test_a_concatenation_does_not_lie_in_its_own_first_input() -> None:
    graph, layer = joined()
    first, second, third = layer.inputs
    inside = {first: ViewPlace(first, 0), second: ViewPlace(first, 5), third: ViewPlace(first, 8)}
    assert choices(graph, layer, inside) == choices(graph, layer)
