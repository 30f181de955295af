# amaranth: UnusedElaboratable=no
"""Cycles of fast pointwise convolutions on the default configuration with FPC among its engines, simulated."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from cocotb_tests.support.networks.butterflies import Network, random_finish, rotating_stages, with_fast_pointwise
from cocotb_tests.support.oracles.exactness import assert_right
from lutterfly.golden.numerics.butterfly import Pattern
from lutterfly.golden.presets import PRESETS
from lutterfly.host.session.verify import verify

CONFIG = PRESETS["ecp5-85k"]


@pytest.mark.demo_core
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("channels", "height", "width", "most"), [(64, 25, 5, 700), (128, 8, 8, 750), (256, 8, 8, 2_400)]
)
def test_a_word_a_cycle(channels: int, height: int, width: int, most: int) -> None:
    """Of three layers the last one finds its input in the accelerator."""
    network, pattern = Network((channels, height, width), seed=1), Pattern.of(channels, channels)
    name = "x"
    for number in range(3):
        known = {"stages": rotating_stages(pattern, number), "finish": random_finish(channels, number, shift=3)}
        name = network.fast_pointwise(name, pattern, **known)
    found = verify(network.data(name), CONFIG, samples=1)
    assert_right(found)
    cycles = found.layers[-2].measured
    print(f"{channels} channels on {height}x{width}: {cycles} cycles")
    assert height * width * channels // CONFIG.array.lanes < cycles <= most


@pytest.mark.regress
@pytest.mark.parametrize(("network", "layers", "most"), [("kws", 4, 16_000), ("vww", 13, 52_000)])
def test_networks_with_fast_layers(models_dir: Path, network: str, layers: int, most: int) -> None:
    """All pointwise layers are fast ones, with random weights: about half the cycles of the dense network."""
    model = with_fast_pointwise(onnx.load(models_dir / f"{network}_qop.onnx"))
    assert len(model.functions) == layers
    found = verify(model.SerializeToString(), CONFIG, samples=1)
    assert_right(found)
    print(f"{network}: {found.layers[-1].measured} cycles, predicted {found.layers[-1].predicted}")
    assert found.layers[-1].measured <= most
