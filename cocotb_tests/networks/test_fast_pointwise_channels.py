# amaranth: UnusedElaboratable=no
"""One fast pointwise convolution of any channels from 3 to 256 each, in the words of the default configuration."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.networks.butterflies import Network, random_finish, random_stages, rotating_stages
from cocotb_tests.support.oracles.exactness import assert_right
from lutterfly.golden.config import Config
from lutterfly.golden.engines import FPC
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.numerics.butterfly import Density, Pattern, count_stages
from lutterfly.golden.presets import PRESETS
from lutterfly.host.session.verify import verify

_DEFAULT = PRESETS["ecp5-85k"]
CONFIGS: dict[str, Config] = {
    "bottom-up": _DEFAULT,
    # Two skips, of which only the wider layers have one.
    "top-down": dataclasses.replace(
        _DEFAULT, engines=_DEFAULT.engines.having(FPC, FpcConfig(256, "top-down", skips=((0, 7), (2, 7))))
    ),
    # Eleven columns of weights, three of them the engine's own.
    "heavier": dataclasses.replace(
        _DEFAULT,
        engines=_DEFAULT.engines.having(
            FPC, FpcConfig(128, densities=(*["full"] * 4, *["cross"] * 3), skips=((0, 6), (1, 4)))
        ),
    ),
}
#: Around the words and their powers of two.
_EDGES = [3, 4, 5, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 192, 255, 256]


def lighter(hardware: Density, rng: np.random.Generator) -> Density:
    """A density of no more weights."""
    kinds = [Density.FULL, Density.CROSS, Density.UNIT]
    return kinds[int(rng.integers(kinds.index(hardware), len(kinds)))]


def layer(seed: int, hardware: Pattern) -> bytes:
    """A layer on a small map: any numbers of channels, lighter densities, weights and codes that saturate, tables."""
    rng = np.random.default_rng(seed)
    edges = [edge for edge in _EDGES if edge <= hardware.width]
    inputs, outputs = (int(rng.choice(edges) if rng.integers(2) else rng.integers(3, edges[-1] + 1)) for _ in range(2))
    used = [index for index, distance in enumerate(hardware.distances) if distance < 1 << count_stages(inputs, outputs)]
    densities = [hardware.densities[index] for index in used]
    if rng.integers(3) == 0:
        densities = [lighter(density, rng) for density in densities]
    there = [skip for skip in hardware.skips if set(skip) <= set(used) and rng.integers(2)]
    skips = [(used.index(first), used.index(last)) for first, last in there]
    pattern = Pattern.of(inputs, outputs, hardware.direction or "", densities, skips)
    extreme = rng.integers(3) == 0
    stages = random_stages(pattern, seed, extreme=extreme) if rng.integers(2) else rotating_stages(pattern, seed)
    network = Network((inputs, *rng.integers(1, 4, 2).tolist()), seed=seed)
    finish = random_finish(outputs, seed, shift=int(rng.integers(2, 7)) if rng.integers(2) else None)
    name = network.fast_pointwise("x", pattern, zero_point=int(rng.integers(-128, 128)), stages=stages, finish=finish)
    return network.data(network.table(name) if rng.integers(3) == 0 else name)


@pytest.mark.regress
@pytest.mark.parametrize(
    ("name", "first", "count"),
    [
        ("bottom-up", 0, 24),
        *[pytest.param(name, 1000, 200, marks=pytest.mark.regress) for name in CONFIGS],
    ],
)
def test_any_channels(name: str, first: int, count: int) -> None:
    config = CONFIGS[name]
    for seed in range(first, first + count):
        assert_right(verify(layer(seed, config.engines[FPC].pattern), config, samples=2))


@pytest.mark.regress
@pytest.mark.parametrize("convolution", [False, True])
def test_more_parameters_than_their_memory(convolution: bool) -> None:
    """Those of layers that all have one tile are streamed, whether or not others have more."""
    network, name, layers = Network((256, 2, 3), seed=1), "x", 18
    for seed in range(layers):
        finish = random_finish(256, seed)
        name = network.fast_pointwise(name, Pattern.of(256, 256, "bottom-up"), seed=seed, finish=finish)
        if convolution and seed == 9:
            name = network.convolution(name, 256, 256, 1)
    assert layers * finish.parameters.nbytes > _DEFAULT.memory.parameter_bytes
    assert_right(verify(network.data(name), _DEFAULT, samples=1))
