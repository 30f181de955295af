"""Networks with long runs of commands: each once gave wrong bytes, a watchdog, or a prediction that was too low."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.networks.families.builder import Codes, Form, Net
from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.session.verify import verify

pytestmark = needs_reference


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
