"""Networks with long runs of commands, windows or copies: many once gave wrong bytes or cycles, or a watchdog."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.networks.butterflies import Network
from cocotb_tests.support.networks.families.builder import Codes, Form, Net
from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from cocotb_tests.support.oracles.execution import measure
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config import Config
from lutterfly.golden.engines import DEPTHWISE
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import CompileError
from lutterfly.host.compiler.layout import cuts
from lutterfly.host.compiler.operation import Cut
from lutterfly.host.graph import Graph, Window
from lutterfly.host.session.compare import TOLERANCE, TOLERANCE_CYCLES
from lutterfly.host.session.verify import verify


def heads(net: Net) -> None:
    x = net.input(16, 16, 16)
    for _ in range(20):
        net.output(net.conv(x, 8))


def heads_beside_a_convolution(net: Net) -> None:
    """STOREs that wait for the array, more than their unit holds."""
    x = net.input(16, 8, 8)
    mean = net.global_average(x)
    for _ in range(60):
        net.output(net.conv(mean, 8))
    net.output(net.conv(x, 64, 3))


def dense_block(net: Net) -> None:
    features = net.input(16, 24, 24)
    for _ in range(4):
        features = net.concat([features, net.conv(features, 12, 3)])
    net.output(features)


def copies(count: int, *shape: int):
    def build(net: Net) -> None:
        x: Codes = net.input(*shape)
        net.output(net.concat([x] * count))

    return build


def pointwise(side: int):
    def build(net: Net) -> None:
        net.output(net.conv(net.input(4, side, side), 8))

    return build


@needs_reference
@pytest.mark.regress
@pytest.mark.parametrize(
    ("preset", "build"),
    [
        ("ecp5-85k", heads),
        ("ecp5-85k", heads_beside_a_convolution),
        ("ecp5-85k", dense_block),
        ("ecp5-85k", copies(4, 16, 40, 40)),
        ("tiny", pointwise(40)),
        ("tiny", pointwise(64)),
        ("tiny", copies(16, 2, 30, 4)),
    ],
    ids=[
        "heads",
        "heads beside a convolution",
        "dense block",
        "copies",
        "pointwise 40",
        "pointwise 64",
        "copies of a small map",
    ],
)
def test_every_byte_is_right(preset: str, build) -> None:
    net = Net(Form(qdq=True, unsigned=False, per_channel=False), np.random.default_rng(1))
    build(net)
    assert_right(verify(net.finish(), PRESETS[preset], samples=1))


# Depthwise layers behind one another: windows of many steps and several results in front of windows of one step.

NETWORKS, BLOCK = 300, 25
#: Of a block: networks that do not fit into the memories of a small accelerator, or its arena on the chip.
REFUSED = 4


def drawn(seed: int) -> Config:
    """`tiny` with a few chains, of other widths; every second one hands over."""
    rng = np.random.default_rng(seed)
    tiny = PRESETS["tiny"]
    taps, chains = [(1, 4), (2, 2), (1, 3), (2, 4), (3, 2), (1, 6)][seed]
    lanes, requant_lanes = int(rng.choice([8, 16])), int(rng.choice([1, 2, 4]))
    array = dataclasses.replace(tiny.array, lanes=lanes, columns=8, requant_lanes=requant_lanes)
    engines = tiny.engines.having(DEPTHWISE, DepthwiseConfig(taps=taps, chains=chains))
    return dataclasses.replace(tiny, array=array, engines=engines, hands_over=bool(seed % 2))


DRAWN = [f"drawn {seed}" for seed in range(6)]


def config_of(name: str) -> Config:
    return drawn(int(name.removeprefix("drawn "))) if name in DRAWN else PRESETS[name]


def depthwise_and_pointwise(seed: int) -> Graph:
    """A few layers as MobileNet-like blocks have them, with what follows a depthwise layer: an affine by channel."""
    rng = np.random.default_rng([seed, 58])
    shape = (int(rng.integers(3, 25)), int(rng.integers(3, 25)), int(rng.choice([3, 4, 8, 16, 17, 24, 48])))
    maker = GraphMaker(shape, seed=seed, zero_point=int(rng.integers(-128, 128)))
    name = "x"
    for _ in range(int(rng.integers(2, 6))):
        kind = rng.integers(4)
        if kind == 0:
            name = maker.convolution(name, int(rng.choice([8, 16, 24])), Window((1, 1)))
        elif kind == 1:
            name = maker.depthwise(name, Window((1, 1), strides(rng)), table=bool(rng.integers(2)))
        else:
            kernel = int(rng.choice([1, 3, 3, 5])), int(rng.choice([3, 3, 5]))
            pads = tuple((size - 1) // 2 for size in kernel) * 2
            name = maker.depthwise(name, Window(kernel, strides(rng), pads=pads))
            name = maker.depthwise(name, Window((1, 1)), table=bool(rng.integers(2)))
    return maker.finish(name)


def strides(rng: np.random.Generator) -> tuple[int, int]:
    stride = int(rng.choice([1, 1, 2]))
    return stride, stride


def refused(config: Config, seeds: range) -> list[str]:
    """Why networks have no program; the others give the reference's bytes in the predicted cycles."""
    found = []
    for seed in seeds:
        try:
            measured = measure(depthwise_and_pointwise(seed), config, seed=seed)
        except CompileError as error:
            found.append(f"{seed}: {error}")
            continue
        cycles = measured.counters["cycles"]
        assert abs(measured.program.predicted_cycles - cycles) <= max(TOLERANCE_CYCLES, TOLERANCE * cycles), seed
    return found


@pytest.mark.regress
@pytest.mark.parametrize("first", range(0, NETWORKS, BLOCK))
@pytest.mark.parametrize("name", [*PRESETS, *DRAWN])
def test_none_stops(name: str, first: int) -> None:
    assert len(reasons := refused(config_of(name), range(first, first + BLOCK))) <= REFUSED, reasons


# Layers that run in blocks of channels, on the simulated core: short runs on the bus, tables that come and go.


def check(network: Network, name: str, preset: str) -> None:
    assert_right(verify(network.data(name), PRESETS[preset], samples=1))


@pytest.mark.parametrize(
    ("preset", "channels", "side"), [pytest.param("ecp5-85k", 2048, 7, marks=pytest.mark.demo_core), ("tiny", 300, 6)]
)
def test_the_average_of_a_map_larger_than_the_memory(preset: str, channels: int, side: int) -> None:
    network = Network((channels, side, side))
    name = network.add("GlobalAveragePool", network.dequantise("x"))
    check(network, network.quantise(name, 0.01), preset)


@pytest.mark.regress
@pytest.mark.parametrize("kernel", [3, 5])
def test_a_depthwise_layer_of_which_no_window_fits(kernel: int) -> None:
    channels = PRESETS["tiny"].memory.feature_bytes // kernel**2 + 13
    network = Network((channels, 6, 5))
    name = network.convolution("x", channels, channels, kernel, groups=channels)
    check(network, network.convolution(name, channels, 5, 1), "tiny")


@pytest.mark.regress
def test_blocks_of_results_that_leave_in_short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """More bursts than may be in flight, each too short to hide the answer to the one before.

    The compiler avoids them where it can: here it has no choice, and has to predict what they cost.
    """
    monkeypatch.setattr(cuts, "_candidates", lambda *_, **__: [[Cut(2, 56, 6, 2)]])
    network = Network((16, 56, 56))
    check(network, network.convolution("x", 16, 96, 1), "ecp5-85k")


@pytest.mark.regress
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_a_concatenation_of_many_scales(preset: str) -> None:
    network = Network((6, 9, 9))
    parts = [network.convolution("x", 6, channels, 1) for channels in range(1, PRESETS[preset].memory.tables + 4)]
    # All but the first are requantised, and read by something else as well.
    floats = [network.dequantise(name, 0.05 + 0.01 * number) for number, name in enumerate(parts)]
    sums = [network.add("ReduceMean", name, axes=[2, 3]) for name in floats]
    joined = network.quantise(network.add("Concat", *floats, axis=1))
    means = network.quantise(network.add("Concat", *sums, axis=1), 0.02)
    assert_right(verify(network.data(joined, means), PRESETS[preset], samples=1))


# Copies of single bytes leave a LOAD the pauses between their commands alone: the clock has these where they are.


@pytest.mark.demo_core
def test_an_input_arrives_in_the_pauses_between_copies() -> None:
    """The last chunk of the second input goes in a pause in front of a command whose results do not wait."""
    maker = GraphMaker((1, 1, 405))
    places = np.arange(405)
    first = maker.arranged(places.reshape(3, 3, 5, 9).transpose(2, 3, 1, 0).reshape(5, 9, 9), "x")
    second = maker.arranged(places.reshape(9, 5, 9).transpose(1, 2, 0), maker.input("y", (1, 1, 405)))
    measured = measure(maker.finish(maker.add(first, second)), PRESETS["ecp5-85k"])
    assert measured.counters["cycles"] == measured.program.predicted_cycles
    # From a layer to the next one; when the first one begins is told otherwise.
    assert measured.layer_cycles[1:] == [layer.cycles for layer in measured.program.layers[1:]]
