"""The graph between frontend and compiler: what its layers say of themselves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.networks.butterflies import random_epilogue, random_stages
from cocotb_tests.support.quantised.graphs import BinaryGraphMaker, GraphMaker, random_window
from lutterfly.golden.numerics.butterfly import Pattern
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import plan_graph
from lutterfly.host.frontend import describe
from lutterfly.host.graph import (
    AveragePool,
    ChannelRule,
    CodeEpilogue,
    Convolution,
    FastPointwiseConvolution,
    Graph,
    MaxPool,
    Pad,
    ProductLayer,
    Window,
)

SAME = Window((3, 3), pads=(1, 1, 1, 1))
TINY = PRESETS["tiny"]


def kinds(graph: Graph) -> list[str]:
    return [graph.kind_of(layer) for layer in graph.layers]


def fast(maker: GraphMaker, source: str) -> str:
    """A fast pointwise convolution from 8 channels to 6."""
    pattern, epilogue = Pattern.of(8, 6), random_epilogue(6, 1)
    codes = CodeEpilogue(epilogue.low, epilogue.high)
    stages, name = random_stages(pattern, 1), f"t{len(maker.graph.layers)}"
    layer = FastPointwiseConvolution(
        f"fast_{name}", (source,), name, stages, epilogue.bias, epilogue.scale, 3, epilogue.zero_point, epilogue=codes
    )
    maker.graph.layers.append(layer)
    return maker._tensor(name, (*maker.graph.tensors[source].shape[:2], 6), epilogue.zero_point)


def every_kind() -> Graph:
    """All kinds of layers, with eight channels between them but where one changes that."""
    maker = BinaryGraphMaker((6, 6, 8))
    ends = [
        maker.convolution("x", 8, SAME),
        maker.convolution("x", 4, Window((6, 6)), table=True),
        maker.convolution("x", 16, SAME, groups=2),
        maker.depthwise("x", Window((3, 3), (2, 2)), table=True),
        maker.average_pool("x", SAME),
        maker.max_pool("x", Window((2, 2), dilation=(2, 1)), table=True),
        maker.add("x", "x", table=True),
        maker.concat("x", "x"),
        maker.slice("x", 2, 5),
        maker.pointwise("x"),
        maker.binary_convolution(maker.signs("x", table=True), 8, SAME),
        fast(maker, "x"),
    ]
    pad = Pad("pad", ("x",), "padded", window=Window((1, 1), pads=(1, 1, 1, 1)), channels=8)
    maker.graph.layers.append(pad)
    ends.append(maker._tensor("padded", (8, 8, 8), maker.graph.tensors["x"].zero_point))
    return maker.finish(*ends)


def test_convolutions_are_called_by_their_groups_and_windows() -> None:
    maker = GraphMaker((6, 6, 8))
    name = maker.depthwise(maker.convolution(maker.convolution("x", 8, SAME), 16, SAME, groups=2), SAME)
    graph = maker.finish(maker.convolution(name, 10, Window((6, 6))))
    assert kinds(graph) == ["convolution", "grouped convolution", "depthwise", "fully connected"]


def test_layers_are_described_by_what_they_are_called() -> None:
    graph = every_kind()
    shown = [row.kind for row in describe(graph)]
    assert shown == [
        "convolution 3x3",
        "fully connected + table",
        "grouped convolution 3x3, 2 groups",
        "depthwise 3x3 stride 2x2 + table",
        "average pooling 3x3",
        "max pooling 2x2 dilation 2x1 + table",
        "addition + table",
        "concatenation",
        "slice",
        "table",
        "table + signs",
        "binary convolution 3x3 + signs",
        "fast pointwise convolution, 3 stages",
        "border",
    ]
    assert [text.startswith(kind) for text, kind in zip(shown, kinds(graph), strict=True)] == [True] * len(shown)


def test_programs_call_layers_the_same() -> None:
    # All but the fast one, for which this accelerator has no engine, and a copy that is none.
    graph = every_kind()
    kept = [layer for layer in graph.layers if not layer.name.startswith("fast")]
    graph = dataclasses.replace(graph, layers=kept, outputs=[name for name in graph.outputs if name != "t12"])
    plan = plan_graph(graph, TINY)
    assert [layer.kind.removesuffix(", table") for layer in plan.predictions] == kinds(plan.graph)


def test_multiply_accumulates_are_those_of_every_pixel() -> None:
    maker = GraphMaker((5, 3, 8))
    maker.convolution("x", 4, Window((3, 2)))
    maker.depthwise("x", Window((2, 1)))
    fast(maker, "x")
    found = [layer.macs(maker.graph.tensors[layer.output].shape) for layer in maker.graph.layers]
    assert found == [3 * 2 * 4 * 6 * 8, 4 * 3 * 8 * 2, 5 * 3 * Pattern.of(8, 6).live_multiplications]


def product(kind: type[ProductLayer], window: Window, zero_point: int) -> ProductLayer:
    """Averages of three channels as a layer of their own, or as the convolution that they are not."""
    scale = np.float32(1 / 9)
    given = {"window": window, "epilogue": CodeEpilogue(-100, 90)}
    if kind is Convolution:
        weights, bias = np.ones((3, *window.kernel, 1), np.int8), np.zeros(3, np.int32)
        layer = Convolution("layer", ("x",), "y", weights, bias, np.full(3, scale), 3, **given)
    else:
        layer = kind("layer", ("x",), "y", channels=3, scale=scale, **given)
    return layer.normalised(zero_point)


@pytest.mark.parametrize("zero_point", [0, 7, -128])
@pytest.mark.parametrize("kind", [AveragePool, Pad])
def test_averages_and_borders_are_depthwise_products_of_unit_weights(kind: type[ProductLayer], zero_point: int) -> None:
    maker = GraphMaker((5, 6, 3))
    values = {"x": maker.rng.integers(-128, 128, (5, 6, 3), dtype=np.int8)}
    for window in (SAME, Window((2, 3), (2, 1))):
        found, wanted = product(kind, window, zero_point), product(Convolution, window, zero_point)
        assert not isinstance(found, Convolution)
        for name in ("weights", "bias", "multiplier"):
            one, other = getattr(found, name), getattr(wanted, name)
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        assert found.groups == wanted.groups
        assert found.macs((3, 3, 3)) == 0 < wanted.macs((3, 3, 3))
        tensors = {"x": maker.graph.tensors["x"]}
        tensors["y"] = dataclasses.replace(tensors["x"], name="y", zero_point=5)
        np.testing.assert_array_equal(found.evaluate(values, tensors)["y"], wanted.evaluate(values, tensors)["y"])


def test_how_channels_depend_on_those_of_the_input() -> None:
    graph = every_kind()
    rules = {layer.name.partition("_")[0]: layer.channel_rule(*graph.ends(layer)) for layer in graph.layers[4:]}
    free, tied, joined, _, fixed = ChannelRule
    products = [layer.channel_rule(*graph.ends(layer)) for layer in graph.layers[:5]]
    assert products == [free, free, fixed, tied, tied]
    assert rules == {
        "conv": tied,
        "pool": tied,
        "add": tied,
        "concat": joined,
        "slice": fixed,
        "table": tied,
        "signs": tied,
        "binary": fixed,
        "fast": fixed,
        "pad": tied,
    }


def test_one_channel_that_becomes_signs_is_not_free() -> None:
    maker = BinaryGraphMaker((4, 4, 1))
    graph = maker.finish(maker.convolution("x", 1, SAME), maker.to_bits(maker.convolution("x", 1, SAME)))
    rules = [layer.channel_rule(*graph.ends(layer)) for layer in graph.layers]
    assert rules == [ChannelRule.FREE, ChannelRule.FIXED]


def test_which_windows_count_a_border_of_the_zero_point() -> None:
    graph = every_kind()
    counting = {layer.name for layer in graph.layers if layer.counts_border(5)}
    products = {layer.name for layer in graph.layers if not isinstance(layer, MaxPool) and "weights" in dir(layer)}
    without = next(layer.name for layer in graph.layers if isinstance(layer, AveragePool))
    binary = next(layer.name for layer in graph.layers if layer.binary_border is not None)
    assert counting == products - {without, binary}
    assert [layer.name for layer in graph.layers if layer.counts_border(-128) and layer.name not in counting] == [
        layer.name for layer in graph.layers if isinstance(layer, MaxPool)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_maxima_along_the_columns_then_along_the_rows_are_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    maker = GraphMaker((7, 6, 3), seed=seed)
    maker.max_pool("x", random_window(rng, (7, 6, 3)), table=True)
    (layer,), tensors = maker.graph.layers, maker.graph.tensors
    along, down = layer.separated("between")
    assert (along.output, along.table, down.inputs, down.output) == ("between", None, ("between",), layer.output)
    assert along.window.kernel[0] == down.window.kernel[1] == 1
    shape = (*along.window.output_size(7, 6), 3)
    tensors |= {"between": dataclasses.replace(tensors["x"], name="between", shape=shape)}
    values = {"x": rng.integers(-128, 128, (7, 6, 3), dtype=np.int8)}
    wanted = layer.evaluate(values, tensors)
    found = down.evaluate(along.evaluate(values, tensors), tensors)
    np.testing.assert_array_equal(found[layer.output], wanted[layer.output])


def test_a_table_after_a_layer_becomes_part_of_its_epilogue() -> None:
    maker = GraphMaker((4, 4, 3))
    first, second = maker.table(), maker.table()
    maker.convolution("x", 3, SAME)
    (layer,) = maker.graph.layers
    assert (layer.inner, layer.table) == (layer.output, None)
    once = layer.with_table("after", first)
    twice = once.with_table("last", second)
    assert (once.inner, once.output, twice.inner, twice.output) == (layer.output, "after", layer.output, "last")
    np.testing.assert_array_equal(twice.table, second[first.astype(np.int64) + 128])
    signs = once.with_table("signs", None)
    assert signs.table is first
    assert (twice.epilogue.low, twice.epilogue.high) == (layer.epilogue.low, layer.epilogue.high)


def test_a_table_after_a_table_has_nothing_in_between() -> None:
    maker = GraphMaker((4, 4, 3))
    maker.pointwise("x")
    layer, second = maker.graph.layers[0], maker.table()
    changed = layer.with_table("y", second)
    assert changed.inner == "y"
    np.testing.assert_array_equal(changed.table, second[layer.table.astype(np.int64) + 128])


@pytest.mark.parametrize("kind", ["concat", "slice"])
def test_what_has_no_epilogue_takes_no_table(kind: str) -> None:
    maker = GraphMaker((4, 4, 3))
    name = maker.concat("x", "x", tables=False) if kind == "concat" else maker.slice("x", 1, 2)
    layer = maker.graph.layers[0]
    assert layer.epilogue is None
    with pytest.raises(TypeError, match=f"^{layer.name}: layer must have an epilogue to take a table, not be a "):
        layer.with_table(f"{name} after", maker.table())
