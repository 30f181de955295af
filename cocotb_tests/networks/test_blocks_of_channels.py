"""Layers that run in blocks of channels, on the simulated core: short runs on the bus, tables that come and go."""

from __future__ import annotations

import pytest

from cocotb_tests.support.networks.butterflies import Network
from cocotb_tests.support.oracles.exactness import assert_right
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler.layout import cuts
from lutterfly.host.compiler.operation import Cut
from lutterfly.host.session.verify import verify


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
