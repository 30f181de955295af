# amaranth: UnusedElaboratable=no
"""Networks with fast pointwise convolutions on the simulated core: no byte differs, and cycles are as predicted."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from cocotb_tests.support.networks.butterflies import (
    DRAWN_CONFIGS,
    FPC_CONFIGS,
    Network,
    fast_network,
    random_epilogue,
    random_stages,
    rotating_stages,
    with_fast_pointwise,
)
from cocotb_tests.support.oracles.exactness import assert_right
from cocotb_tests.support.tiers import sweep
from lutterfly.examples import digits
from lutterfly.golden.config import Config
from lutterfly.golden.engines import FPC
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.numerics.butterfly import Density, Direction, Pattern, count_stages
from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
from lutterfly.host.compiler import CompileError, compile_model
from lutterfly.host.frontend import ModelError
from lutterfly.host.model import executed
from lutterfly.host.model.model import Model
from lutterfly.host.session.session import InferenceSession
from lutterfly.host.session.verify import verify


def mixed() -> bytes:
    """Fast pointwise layers of several sizes between other layers, with a skip, a table and what saturates."""
    network = Network((6, 5, 4), seed=1)
    first = network.fast_pointwise("x", Pattern.of(6, 8, skips=[(0, 2)]))
    second = network.convolution(first, 8, 7, 3)
    extreme = Pattern.of(7, 3)
    third = network.fast_pointwise(second, extreme, stages=random_stages(extreme, 5, extreme=True))
    fourth = network.table(third)
    lighter = Pattern.of(3, 4, densities=[Density.CROSS, Density.UNIT])
    return network.data(network.fast_pointwise(fourth, lighter, zero_point=-7))


def wide() -> bytes:
    """Pixels of eight words, top-down: more channels in than out, and fewer."""
    network = Network((64, 3, 5), seed=2)
    first = network.fast_pointwise("x", Pattern.of(64, 50, "top-down", skips=[(0, 5)]))
    second = network.fast_pointwise(first, Pattern.of(50, 64, "top-down"))
    third = network.fast_pointwise(second, Pattern.of(64, 5, "top-down"))
    return network.data(network.fast_pointwise(third, Pattern.of(5, 17, "top-down")))


def several() -> bytes:
    """Layers whose weights are in two memories, of one pixel and of many, one after the other."""
    network = Network((16, 5, 3), seed=4)
    first = network.fast_pointwise("x", Pattern.of(16, 16))
    second = network.fast_pointwise(first, Pattern.of(16, 3), seed=1)
    return network.data(network.fast_pointwise(second, Pattern.of(3, 11), seed=2))


@pytest.mark.regress
@pytest.mark.parametrize(
    ("name", "make"),
    # A simulator for each.
    sweep([("bottom-up", mixed), ("top-down", wide), ("further", several)], kept=[("bottom-up", mixed)]),
)
def test_no_byte_differs(name: str, make) -> None:
    assert_right(verify(make(), FPC_CONFIGS[name], samples=2))


@pytest.mark.regress
@pytest.mark.parametrize(
    ("name", "count", "most_channels"),
    [
        ("default", 16, 70),
        pytest.param("default", 220, 70, marks=pytest.mark.regress),
        pytest.param("bottom-up", 200, 24, marks=pytest.mark.regress),
        pytest.param("top-down", 200, 24, marks=pytest.mark.regress),
    ],
)
def test_drawn_networks(name: str, count: int, most_channels: int) -> None:
    """Those whose layers frontend and butterfly have: the others are refused with a remedy."""
    exact, refused = 0, []
    config = DRAWN_CONFIGS[name]
    for seed in range(count):
        directions, is_standard = [Direction(config.engines[FPC].direction)], not config.engines[FPC].densities
        data, _ = fast_network(seed, most_channels=most_channels, directions=directions, is_standard=is_standard)
        try:
            found = verify(data, config, samples=1)
        except (CompileError, ModelError) as error:
            refused.append(str(error))
            continue
        assert not found.mismatched_bytes, seed
        assert found.is_right, (seed, [layer for layer in found.layers if not layer.is_right])
        exact += 1
    assert exact >= count // 4
    assert all(re.search(r"choose (a )?(larger )?--config|is not supported: .*; ", message) for message in refused)


def one(pattern: Pattern) -> bytes:
    network = Network((pattern.inputs, 2, 2))
    return network.data(network.fast_pointwise("x", pattern))


SMALL = FPC_CONFIGS["bottom-up"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (Pattern.of(9, 4), "channels must be at most 8, not 9; choose --config ecp5-85k"),
        (
            Pattern.of(8, 8, "top-down"),
            'in this order, not [4, 2, 1]; choose a --config with "FPC": {"width": 8, "direction": "top-down"',
        ),
        (
            Pattern.of(4, 4, densities=["cross", "full"]),
            'densities[1] must be at most cross, not full; choose a --config with "FPC": {"width": 4',
        ),
        (
            Pattern.of(8, 8, skips=[(1, 1)]),
            "skips must be among [(0, 2), (0, 1)], and (1, 1) is (1, 1) there; choose a --config with",
        ),
        (
            Pattern.of(512, 8),
            "channels must be at most 8, not 512; no configuration has that: width must be between 2 and 256, not 512",
        ),
        (
            dataclasses.replace(Pattern.of(8, 8), distances=(2, 1, 4)),
            "not [2, 1, 4]; its distances must ascend (bottom-up) or descend (top-down)",
        ),
    ],
)
def test_what_the_butterfly_has_not_is_refused(pattern: Pattern, message: str) -> None:
    with pytest.raises(CompileError, match=f"FastPointwiseConv.*{re.escape(message)}"):
        compile_model(one(pattern), SMALL, "model")


def test_the_remedy_makes_a_configuration_that_has_the_layer() -> None:
    """What a refusal says to put in a configuration makes one for which the layer compiles."""
    data = one(Pattern.of(8, 6, "top-down", skips=[(0, 2)]))
    with pytest.raises(CompileError, match=r'choose a --config with "FPC": .* among its engines$') as refusal:
        compile_model(data, SMALL, "model")
    part = str(refusal.value).split('"FPC": ')[1].removesuffix(" among its engines")
    plain = json.loads(SMALL.to_json())
    plain["engines"]["FPC"] = json.loads(part)
    config = Config.from_json(json.dumps(plain))
    assert compile_model(data, config, "model").layers


def test_an_accelerator_without_the_engine_refuses_the_layer() -> None:
    message = (
        "FastPointwiseConv.*: engines must include FPC for this layer, not MAC, MAXIMUM, DEPTHWISE, XNOR, ADD, BINARY_"
    )
    with pytest.raises(CompileError, match=message):
        compile_model(one(Pattern.of(8, 8)), PRESETS["tiny"], "model")


@pytest.mark.regress
def test_memories_that_hold_too_little_are_cut_around() -> None:
    """A map that does not fit the feature memory runs in parts."""
    config = dataclasses.replace(SMALL, memory=dataclasses.replace(SMALL.memory, feature_bytes=1 << 11))
    network = Network((8, 24, 20), seed=3)
    found = verify(network.data(network.fast_pointwise("x", Pattern.of(8, 7))), config, samples=1)
    assert_right(found)


@pytest.mark.regress
def test_the_digits_network_at_every_layer() -> None:
    """Real weights and images, on the default configuration: each tensor of the network, and 360 answers."""
    path, config = digits.fast_model_path(), PRESETS[DEFAULT_PRESET]
    found = verify(path.read_bytes(), config, samples=2)
    assert_right(found)
    assert len(found.layers) == 1 + 9
    feeds = {"pixels": digits.images()}
    session = InferenceSession(path, config)
    (logits,) = session.run(None, feeds)
    (expected,) = executed.open_session(Model(path.read_bytes())).run(None, feeds)
    np.testing.assert_array_equal(logits, expected)
    assert (logits.argmax(axis=1) == digits.labels()).mean() >= 0.98
    assert [layer.kind for layer in session.program.layers].count("fast pointwise convolution") == 3


# One fast pointwise convolution of any channels from 3 to 256 each, in the words of the default configuration.

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
    epilogue = random_epilogue(outputs, seed, shift=int(rng.integers(2, 7)) if rng.integers(2) else None)
    name = network.fast_pointwise(
        "x", pattern, zero_point=int(rng.integers(-128, 128)), stages=stages, epilogue=epilogue
    )
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
        epilogue = random_epilogue(256, seed)
        name = network.fast_pointwise(name, Pattern.of(256, 256, "bottom-up"), seed=seed, epilogue=epilogue)
        if convolution and seed == 9:
            name = network.convolution(name, 256, 256, 1)
    assert layers * epilogue.parameters.nbytes > _DEFAULT.memory.parameter_bytes
    assert_right(verify(network.data(name), _DEFAULT, samples=1))


# Cycles of fast pointwise convolutions on the default configuration with FPC among its engines, simulated.

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
        known = {"stages": rotating_stages(pattern, number), "epilogue": random_epilogue(channels, number, shift=3)}
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
