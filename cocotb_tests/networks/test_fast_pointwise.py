# amaranth: UnusedElaboratable=no
"""Networks with fast pointwise convolutions on the simulated core: no byte differs, and cycles are as predicted."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

from cocotb_tests.support.networks.butterflies import DRAWN_CONFIGS, FPC_CONFIGS, Network, fast_network, random_stages
from cocotb_tests.support.oracles.exactness import assert_right
from cocotb_tests.support.tiers import sweep
from lutterfly.examples import digits
from lutterfly.golden.config import Config
from lutterfly.golden.engines import FPC
from lutterfly.golden.numerics.butterfly import Density, Direction, Pattern
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
