# amaranth: UnusedElaboratable=no
"""ONNX files with binary layers on the simulated core: no byte differs, and cycles are as predicted."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.networks.binary_networks import binary_network
from cocotb_tests.support.oracles.exactness import assert_right
from lutterfly.examples import digits
from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
from lutterfly.host.compiler import CompileError
from lutterfly.host.model import executed
from lutterfly.host.model.model import Model
from lutterfly.host.session.session import InferenceSession
from lutterfly.host.session.verify import verify


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
def test_drawn_networks(preset: str, first: int, count: int, most_channels: int, side: int) -> None:
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
