# amaranth: UnusedElaboratable=no
"""Networks with binary layers, as graphs and as files, on the simulated core: its bytes, and its cycles."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.networks.binary_networks import binary_network
from cocotb_tests.support.oracles.exactness import assert_right
from cocotb_tests.support.oracles.execution import Measured, measure
from cocotb_tests.support.quantised.graphs import BinaryGraphMaker, random_binary_graph
from cocotb_tests.support.tiers import core_marks
from lutterfly.examples import digits
from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
from lutterfly.host.compiler import CompileError, batched, compile_graph
from lutterfly.host.graph import Graph, Window
from lutterfly.host.model import executed
from lutterfly.host.model.model import Model
from lutterfly.host.session.compare import TOLERANCE, TOLERANCE_CYCLES
from lutterfly.host.session.session import InferenceSession
from lutterfly.host.session.verify import verify
from lutterfly.host.simulation.simulator import MemorySettings

SAME = Window((3, 3), pads=(1, 1, 1, 1))
#: Binary multiply-accumulates of a cycle on the default configuration.
MOST = 8 * PRESETS["ecp5-85k"].multipliers
STALLS = MemorySettings(read_latency=150, write_latency=90, beat_interval=2, stall_probability=0.3, seed=5)


def assert_predicted(measured: Measured) -> None:
    for layer, cycles in zip(measured.program.layers, measured.layer_cycles, strict=True):
        assert abs(layer.cycles - cycles) <= max(TOLERANCE_CYCLES, TOLERANCE * cycles), (layer.name, cycles)


@pytest.mark.demo_core
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("channels", "share"), [(128, 0.95), (64, 0.70)])
@pytest.mark.parametrize("pad", [1, 0])
def test_a_layer_reaches_its_share_of_the_array(channels: int, share: float, pad: int) -> None:
    maker = BinaryGraphMaker((16, 16, 16))
    name = maker.to_bits(maker.convolution("x", channels, Window((1, 1))))
    for _ in range(2):
        name = maker.binary_convolution(name, channels, SAME, pad=pad)
    measured = measure(maker.finish(name), PRESETS["ecp5-85k"])
    assert_predicted(measured)
    reached = measured.program.layers[-1].macs / measured.layer_cycles[-1] / MOST
    print(f"{channels} channels, border {pad:+}: {measured.layer_cycles[-1]} cycles, {reached:.1%} of {MOST}")
    assert share <= reached <= 1


def _drawn(preset: str, seeds: range) -> list:
    return [
        pytest.param(
            preset, seed, marks=[*core_marks(preset), *[pytest.mark.regress] * (seed >= 8)], id=f"{preset}-{seed}"
        )
        for seed in seeds
    ]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("preset", "seed"), [*_drawn("tiny", range(200)), *_drawn("ecp5-85k", range(200))])
def test_drawn_networks(preset: str, seed: int) -> None:
    """Every third one with stalls on the bus."""
    graph = random_binary_graph(1000 + seed, most_channels=300 if preset == "ecp5-85k" else 120)
    settings = STALLS if seed % 3 == 0 else None
    measured = measure(graph, PRESETS[preset], seed=seed, settings=settings)
    if settings is None:
        assert_predicted(measured)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_words_of_binary_layers_are_all_there_are(preset: str) -> None:
    """No connection is off, however many words a window takes: of seed 1172, twice those that would cover its bytes."""
    for seed in (1172, *range(8)):
        program = compile_graph(random_binary_graph(seed, most_channels=120), PRESETS[preset])
        for layer in program.layers:
            assert (layer.words, layer.dense_cycles) == (layer.dense_words, layer.cycles)


def larger_than_memory(config: str) -> Graph:
    """Maps several times the feature memory, weights more than theirs."""
    side, channels, last = {"tiny": (32, 72, 80), "ecp5-85k": (60, 168, 520)}[config]
    maker = BinaryGraphMaker((side, side, 3), seed=7)
    name = maker.to_bits(maker.convolution("x", channels, Window((3, 3), (1, 1), pads=(1, 1, 1, 1))))
    name = maker.binary_convolution(name, channels, SAME)
    name = maker.to_bits(maker.max_pool(name, Window((3, 3), (2, 2), pads=(1, 1, 1, 1))))
    name = maker.binary_convolution(name, last, Window((5, 5), (3, 3), pads=(2, 1, 2, 1)), pad=-1)
    return maker.finish(maker.binary_convolution(name, 20, Window((1, 1)), bits=8))


@pytest.mark.regress
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_maps_and_weights_larger_than_their_memories(preset: str) -> None:
    graph, config = larger_than_memory(preset), PRESETS[preset]
    assert max(tensor.size_bytes for tensor in graph.tensors.values()) > config.memory.feature_bytes
    assert max(layer.weights.size for layer in graph.layers if hasattr(layer, "weights")) // 8 > (
        config.memory.weight_bytes
    )
    assert_predicted(measure(graph, config))


@pytest.mark.regress
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_fully_connected_layers_share_what_is_streamed_among_samples(preset: str) -> None:
    """The weights of the first preset do not fit its memory; those of the second stay there."""
    maker, cycles = BinaryGraphMaker((1, 1, 784), seed=3), {}
    name = maker.signs("x")
    for _ in range(2):
        name = maker.binary_convolution(name, 1024, Window((1, 1)))
    graph = maker.finish(maker.binary_convolution(name, 10, Window((1, 1)), bits=8))
    for samples in (1, 8):
        measured = measure(batched(graph, samples), PRESETS[preset])
        assert_predicted(measured)
        cycles[samples] = measured.counters["cycles"] / samples
    print(f"784-1024-1024-10 on {preset}: {cycles[1]:,.0f} cycles, {cycles[8]:,.0f} for each of eight samples")
    assert cycles[8] < (0.7 if preset == "tiny" else 1) * cycles[1]


def binary_resnet8() -> Graph:
    """ResNet-8 of MLPerf Tiny's image classification: the convolutions of its blocks are binary, residual sums int8."""
    maker = BinaryGraphMaker((32, 32, 3), seed=8)
    name = maker.convolution("x", 16, SAME)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        first = Window((3, 3), (stride, stride), pads=(0, 0, 1, 1) if stride == 2 else (1, 1, 1, 1))
        bits = maker.binary_convolution(maker.signs(name), channels, first)
        beside = maker.binary_convolution(bits, channels, SAME, bits=8)
        if stride == 2:
            name = maker.convolution(name, channels, Window((1, 1), (2, 2)))
        name = maker.add(name, beside)
    return maker.finish(maker.fully_connected(maker.global_average(name), 10))


@pytest.mark.demo_core
def test_the_shape_of_resnet8() -> None:
    """The int8 network takes 108,829 cycles."""
    measured = measure(binary_resnet8(), PRESETS["ecp5-85k"])
    assert_predicted(measured)
    total = measured.counters["cycles"]
    print(f"ResNet-8 with binary blocks: {total:,} cycles")
    for layer, cycles in zip(measured.program.layers, measured.layer_cycles, strict=True):
        print(f"  {layer.name:12}{layer.kind:26}{cycles:>8,}{cycles / total:>7.1%}")
    assert total < 108_829 / 2


# ONNX files with binary layers on the simulated core: no byte differs, and cycles are as predicted.


@pytest.mark.regress
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
@pytest.mark.parametrize(
    ("first", "count", "most_channels", "side"),
    [
        (5, 12, 17, 5),
        (0, 1, 40, 8),
        pytest.param(100, 100, 17, 5, marks=pytest.mark.regress),
        pytest.param(100, 10, 130, 8, marks=pytest.mark.regress),
    ],
)
def test_drawn_files(preset: str, first: int, count: int, most_channels: int, side: int) -> None:
    """Those too large for a memory are refused by its name."""
    exact = 0
    for seed in range(first, first + count):
        data, _ = binary_network(seed, most_channels=most_channels, side=side)
        try:
            found = verify(data, PRESETS[preset], samples=1)
        except CompileError as error:
            assert "parameter memory" in str(error), seed  # noqa: PT017
            continue
        assert_right(found)
        exact += 1
    assert exact >= 0.8 * count


@pytest.mark.regress
def test_the_digits_network_at_every_layer() -> None:
    """Real weights and images, on the default configuration: each tensor of the network, and 360 answers."""
    path, config = digits.binary_model_path(), PRESETS[DEFAULT_PRESET]
    found = verify(path.read_bytes(), config, samples=2)
    assert_right(found)
    feeds = {"pixels": digits.images()}
    session = InferenceSession(path, config)
    (logits,) = session.run(None, feeds)
    (expected,) = executed.open_session(Model(path.read_bytes())).run(None, feeds)
    np.testing.assert_array_equal(logits, expected)
    assert (logits.argmax(axis=1) == digits.labels()).mean() >= 0.93
    assert [layer.kind for layer in session.program.layers] == [
        "convolution, table",
        "binary convolution",
        "max pooling",
        "binary convolution",
        "max pooling",
        "binary fully connected",
        "binary fully connected",
    ]
