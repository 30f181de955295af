"""Networks that make maps larger, from PyTorch through `quantize` to the simulated core: ONNX Runtime's bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import describe, import_model
from lutterfly.host.session.verify import verify

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402

from cocotb_tests.support.networks.torch_networks import (  # noqa: E402
    Autoencoder,
    DetectorHead,
    SuperResolution,
    UNet,
    quantised,
)

pytestmark = [
    needs_reference,
    # PyTorch's exporter warns of what it uses itself.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]

#: Each network, the shape of its input, and how often which layer that moves elements remains.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int], dict[str, int]]] = {
    "kernel 2": (lambda: UNet(nn.ConvTranspose2d(16, 8, 2, 2), 8), (1, 12, 10), {"depth to space": 1}),
    "kernel 4": (lambda: UNet(nn.ConvTranspose2d(16, 8, 4, 2, 1), 8), (1, 12, 10), {"depth to space": 1}),
    "output padding": (lambda: UNet(nn.ConvTranspose2d(16, 8, 3, 2, 1, 1), 8), (1, 12, 10), {"depth to space": 1}),
    "odd": (lambda: UNet(nn.ConvTranspose2d(16, 4, 3, 2), 4), (1, 13, 11), {"depth to space": 1, "crop": 1}),
    "nearest": (lambda: UNet(nn.Upsample(scale_factor=2), 16), (1, 12, 10), {"nearest upsampling": 1}),
    "shuffled": (lambda: UNet(nn.PixelShuffle(2), 4), (1, 12, 10), {"depth to space": 1}),
    "detector": (DetectorHead, (3, 16, 16), {"nearest upsampling": 1}),
    "super-resolution": (SuperResolution, (1, 8, 10), {"depth to space": 1}),
    "autoencoder": (Autoencoder, (1, 12, 12), {"depth to space": 2}),
}


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_byte_is_onnx_runtimes(name: str, dynamo: bool) -> None:
    data = quantised(*NETWORKS[name][:2], dynamo=dynamo)
    rows = describe(import_model(data))
    moving = [row.kind for row in rows if row.where == "accelerator" and row.kind in ("crop", *NETWORKS[name][2])]
    assert {kind: moving.count(kind) for kind in moving} == NETWORKS[name][2]
    found = verify(data, PRESETS["ecp5-85k"], samples=2)
    assert_right(found)
    (core,) = found.loaded.program.cores
    phases = [layer for layer in core.layers if " phase " in layer.name]
    assert bool(phases) == (name not in ("odd", "nearest", "shuffled", "detector"))


@pytest.mark.parametrize("name", ["kernel 4", "nearest", "autoencoder"])
def test_networks_larger_than_the_memories(name: str) -> None:
    assert_right(verify(quantised(*NETWORKS[name][:2], dynamo=False), PRESETS["tiny"], samples=1))
