"""Average pooling whose border does not count: every window divides by the elements that it has in the map."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings

from cocotb_tests.support.networks.blocks import networks
from cocotb_tests.support.networks.generated import FORMS, TINY, Generated, Maker
from cocotb_tests.support.oracles.exactness import PATIENT, assert_right, kept, needs_reference
from cocotb_tests.support.oracles.execution import differing_bytes
from cocotb_tests.support.quantised.graphs import GraphMaker, random_window
from lutterfly.golden.config import Config
from lutterfly.golden.engines import MAC, MAXIMUM, EngineConfigs
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_graph, encode, plan_graph
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import AveragePool, Graph, Pad, Window
from lutterfly.host.session.verify import verify

SAME = Window((3, 3), pads=(1, 1, 1, 1))
SMALL = dataclasses.replace(PRESETS["tiny"], memory=dataclasses.replace(PRESETS["tiny"].memory, feature_bytes=512))
#: Columns without a chain: averages are grouped convolutions.
UNCHAINED = dataclasses.replace(PRESETS["tiny"], engines=EngineConfigs.of(MAC, MAXIMUM))


def average_of(seed: int, sides: tuple[int, int] = (1, 10), channels: tuple[int, ...] = (1, 2, 5, 17, 33)) -> Graph:
    """An average of a random window, beside a convolution that shares its input."""
    rng = np.random.default_rng(seed)
    shape = (*map(int, rng.integers(*sides, 2)), int(rng.choice(channels)))
    maker = GraphMaker(shape, seed=seed, zero_point=int(rng.integers(-128, 128)))
    window = random_window(rng, shape)
    while window.counts(*shape[:2]).min() == 0:
        window = random_window(rng, shape)
    averaged = maker.average_pool("x", window, table=bool(rng.integers(2)))
    return maker.finish(averaged, maker.convolution("x", 4, random_window(rng, shape)))


@pytest.mark.regress
@pytest.mark.parametrize(
    "config", [PRESETS["tiny"], PRESETS["ecp5-85k"], UNCHAINED], ids=["tiny", "ecp5-85k", "unchained"]
)
@pytest.mark.parametrize("seeds", [range(30), pytest.param(range(30, 400), marks=pytest.mark.regress)], ids=str)
def test_every_class_divides_by_its_own_count(config: Config, seeds: range) -> None:
    bordered = 0
    for seed in seeds:
        graph = average_of(seed)
        program = compile_graph(graph, config)
        bordered += bool(graph.layers[0].multipliers)
        assert differing_bytes(graph, program, config, order=ORDERS[seed % len(ORDERS)], seed=seed) == 0
    assert bordered > len(seeds) // 2


@pytest.mark.regress
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 200), marks=pytest.mark.regress)], ids=str)
def test_it_runs_in_parts(seeds: range) -> None:
    cut = 0
    for seed in seeds:
        graph = average_of(seed, (8, 14), (1, 3, 4))
        plan = plan_graph(graph, SMALL)
        cut += 0 in plan.cuts and bool(graph.layers[0].multipliers)
        for order in ORDERS:
            assert differing_bytes(graph, encode(plan), SMALL, order=order, seed=seed) == 0
    assert cut > len(seeds) // 3


def test_each_count_has_one_parameter_word_and_each_class_one_command() -> None:
    maker = GraphMaker((4, 4, 60))
    plan = plan_graph(maker.finish(maker.average_pool("x", SAME)), PRESETS["tiny"])
    assert plan.operations[0].fold.endswith(", 9 border classes")
    assert len(plan.images[LocalMemory.PARAMETER]) == 3 * PRESETS["tiny"].parameter_word_bytes
    assert [len(commands) for commands in plan.computes] == [9]


def test_windows_that_all_have_one_count_take_one_command() -> None:
    maker = GraphMaker((4, 4, 4))
    graph = maker.finish(maker.average_pool("x", Window((2, 2), (2, 2))))
    assert not graph.layers[0].multipliers
    assert [len(commands) for commands in plan_graph(graph, PRESETS["tiny"]).computes] == [1]


def averaged(
    form: str, *, unsigned: bool = False, shape: tuple[int, ...] = (1, 5, 8, 9), scale: float = 0.013, **attributes
) -> Maker:
    """The input, averaged in windows."""
    made = Maker(np.random.default_rng(1), form, unsigned, TINY)
    made.start(shape, 0.02)
    ends = made.quantisation(scale, 5) if scale else (made.scale, made.zero)
    if form == "qop":
        made.tensor = made.node(
            "QLinearAveragePool", [made.tensor, made.scale, made.zero, *ends], domain="com.microsoft", **attributes
        )
    else:
        made.quantise(made.node("AveragePool", [made.dequantised()], **attributes), *ends, ())
    return made


@pytest.mark.sampled(3)
@needs_reference
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("scale", "shape", "attributes"),
    [
        (0.013, (1, 5, 8, 9), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
        (0.0135, (1, 20, 7, 6), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        (0, (1, 5, 9, 7), {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2], "strides": [2, 2]}),
        (0, (1, 1, 7, 9), {"kernel_shape": [3, 5], "pads": [2, 4, 0, 2], "strides": [2, 2]}),
        (0.013, (1, 3, 11), {"kernel_shape": [3], "pads": [1, 1]}),
        (0.013, (1, 4, 8, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ],
)
def test_the_bytes_and_cycles_on_the_core(
    scale: float, shape: tuple[int, ...], attributes: dict, form: str, *, unsigned: bool
) -> None:
    model = averaged(form, unsigned=unsigned, shape=shape, scale=scale, **attributes).serialise()
    (layer,) = import_model(model).layers
    assert isinstance(layer, AveragePool)
    assert len(layer.multipliers) > 1
    assert_right(verify(model, PRESETS["tiny"], samples=2))


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
@given(network=networks(kinds=["windowed average"], most=2))
@settings(PATIENT, max_examples=10, derandomize=True)
def test_networks_on_the_core(preset: str, network: Generated) -> None:
    with kept(network, f"windowed_average_{preset}"):
        assert_right(verify(network.model, PRESETS[preset], samples=1))


@needs_reference
def test_a_pad_in_front_counts() -> None:
    """The border of the Pad counts, that of the average does not: they are not one."""
    made = Maker(np.random.default_rng(1), "qdq", False, TINY)
    made.start((1, 4, 5, 5), 0.02)
    operands = [
        made.dequantised(),
        made.constant("pads", np.array([0, 0, 1, 1, 0, 0, 1, 1])),
        made.constant("value", np.float32(0)),
    ]
    made.quantise(made.node("Pad", operands), made.scale, made.zero, (1, 4, 7, 7))
    pooled = made.node("AveragePool", [made.dequantised()], kernel_shape=[3, 3], pads=[2, 2, 2, 2], strides=[2, 2])
    made.quantise(pooled, made.scale, made.zero, ())
    model = made.serialise()
    assert [type(layer) for layer in import_model(model).layers] == [Pad, AveragePool]
    assert verify(model, PRESETS["tiny"], samples=1).mismatched_bytes == 0


def dilated(sides: tuple[int, int], **attributes) -> bytes:
    """An average with dilation, from int8 to uint8: ONNX Runtime would fuse one of a single type into an operator that
    has no dilation."""
    made = Maker(np.random.default_rng(1), "qdq", False, TINY)
    made.start((1, 4, *sides), 0.02)
    pooled = made.node("AveragePool", [made.dequantised()], **attributes)
    made.quantise(pooled, made.constant("scale", np.float32(0.013)), made.constant("zero", np.uint8(133)), ())
    return made.serialise()


@needs_reference
def test_dilated_windows() -> None:
    model = dilated((8, 7), kernel_shape=[3, 3], pads=[2, 1, 2, 2], dilations=[2, 2])
    (average,) = import_model(model).layers
    assert sorted(average.multipliers) == [4, 6, 9]
    report = verify(model, PRESETS["tiny"], samples=2)
    assert report.is_right, report.tensors


@needs_reference
def test_windows_in_the_border_only_are_refused() -> None:
    """ONNX Runtime divides by zero there."""
    model = dilated((2, 2), kernel_shape=[2, 2], pads=[1, 1, 1, 1], dilations=[3, 3])
    with pytest.raises(ValueError, match=r"AveragePool '.*' has windows that lie in the border only"):
        import_model(model)


#: What float32 may err for a mean of nine elements of at most 128 in magnitude, as a part of the ratio of the scales.
MARGIN = (9 + 8) * 2.0**-24 * 128 * 9


@needs_reference
@pytest.mark.parametrize(("margins", "is_taken"), [(1.02, True), (0.98, False), (-0.98, False), (-1.02, True)])
def test_means_as_near_to_a_tie_as_float32_may_err_are_refused(margins: float, is_taken: bool) -> None:
    """The sum 1 lies beside half a code, farther than the margin or nearer."""
    made = Maker(np.random.default_rng(1), "qdq", False, TINY)
    made.start((1, 2, 5, 4))
    made.scale, made.zero = made.quantisation(0.02, 0)
    ratio = 0.5 / (1 - margins * MARGIN)
    ends = made.quantisation(float(np.float32(0.02)) / 9 / ratio, 0)
    made.quantise(made.node("AveragePool", [made.dequantised()], kernel_shape=[3, 3]), *ends, ())
    model, name = made.serialise(), made.nodes[-2].name
    if is_taken:
        assert [type(layer) for layer in import_model(model).layers] == [AveragePool]
        assert verify(model, PRESETS["tiny"], samples=2).mismatched_bytes == 0
        return
    message = (
        f"model: no layer can run on the accelerator (AveragePool '{name}': AveragePool '{name}' is a float mean of 9 "
        "elements, and for some sums their order decides the rounding); it needs a quantised convolution, matrix "
        "product or pointwise operator"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        import_model(model)
