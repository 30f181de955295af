"""Networks with products of two activations, from PyTorch through `quantize` to the simulated core."""

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
    Attention,
    ConvNext,
    Gated,
    MobileNetV3,
    quantised,
)

pytestmark = [
    needs_reference,
    # PyTorch's exporter warns of what it uses itself.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]

#: Of the images.
SHAPE = (3, 16, 12)
#: Each network, and its layers that multiply.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "MobileNetV3": (lambda: MobileNetV3(nn.Hardswish(), nn.Hardsigmoid()), ["product by vector"]),
    "EfficientNet": (lambda: MobileNetV3(nn.SiLU(), nn.Sigmoid()), ["product by vector"]),
    "RegNetY": (lambda: MobileNetV3(nn.ReLU(), nn.Sigmoid()), ["product by vector"]),
    "gated": (Gated, ["product"]),
    "attention": (Attention, ["product by vector"]),
    "ConvNeXt": (ConvNext, ["product", "product"]),
}


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_byte_is_onnx_runtimes(name: str, dynamo: bool) -> None:
    data = quantised(NETWORKS[name][0], SHAPE, least=0.3, dynamo=dynamo)
    rows = describe(import_model(data))
    assert [row.kind for row in rows if row.kind.startswith("product")] == NETWORKS[name][1]
    assert_right(verify(data, PRESETS["ecp5-85k"], samples=2))


@pytest.mark.parametrize("name", ["MobileNetV3", "gated", "attention"])
def test_networks_larger_than_the_memories(name: str) -> None:
    assert_right(verify(quantised(NETWORKS[name][0], SHAPE, least=0.3, dynamo=False), PRESETS["tiny"], samples=1))
