"""Networks with what `quantize` rewrites, from PyTorch to the simulated core: the bytes of ONNX Runtime."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import describe, import_model
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import quantize
from lutterfly.host.quantize.float_model import prepare
from lutterfly.host.quantize.static_quantisation import relative_errors
from lutterfly.host.session.verify import verify

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from cocotb_tests.support.networks.torch_networks import (  # noqa: E402
    UNet,
    convolution,
    settle,
)

pytestmark = [
    needs_reference,
    # PyTorch's exporter warns of what it uses itself.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


class SlopedNetwork(nn.Module):
    """A residual block in which every channel has a slope of its own for negative values, some below zero."""

    def __init__(self, channels: int = 12) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, 2, 1), nn.PReLU(channels))
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.PReLU(channels))
        self.last, self.head = nn.PReLU(channels), nn.Linear(channels, 5)
        slopes = torch.linspace(0.05, 0.6, channels)
        for layer, given in ((self.stem[1], slopes), (self.body[1], slopes - 0.3), (self.last, slopes.flip(0))):
            layer.weight.data.copy_(given)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.stem(images)
        return self.head(self.last(self.body(maps) + maps).amax((2, 3)))


class PreActivated(nn.Module):
    """A DenseNet's block and its transition: batch normalisation first, behind a concatenation."""

    def __init__(self, channels: int = 8, growth: int = 6, layers: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.layers = nn.ModuleList()
        for _ in range(layers):
            narrow = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 2 * growth, 1, bias=False))
            wide = nn.Sequential(nn.BatchNorm2d(2 * growth), nn.ReLU(), nn.Conv2d(2 * growth, growth, 3, padding=1))
            self.layers.append(nn.Sequential(narrow, wide))
            channels += growth
        self.transition = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1), nn.AvgPool2d(2)
        )
        self.last = nn.Sequential(nn.BatchNorm2d(channels // 2), nn.ReLU())
        self.head = nn.Linear(channels // 2, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.stem(images)
        for layer in self.layers:
            maps = torch.cat([maps, layer(maps)], dim=1)
        return self.head(self.last(self.transition(maps)).mean((2, 3)))


class Averaged(nn.Module):
    """Averages of even windows, of 3x3 parts of the map, of its rows; factors and offsets of channels."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.stem, self.middle = convolution(1, channels, 3), convolution(channels, channels, 3)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, channels).reshape(1, channels, 1, 1))
        self.shift = nn.Parameter(torch.linspace(-0.3, 0.3, channels).reshape(1, channels, 1, 1))
        self.parts, self.last = nn.AdaptiveAvgPool2d((3, 3)), nn.Conv2d(channels, channels, 3, padding=1)
        self.heads = nn.ModuleList([nn.Linear(9 * channels, 5), nn.Linear(3 * channels, 5)])

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        maps = functional.avg_pool2d(self.stem(images) * self.scale + self.shift, 2)
        parts = self.last(self.parts(self.middle(maps)))
        return self.heads[0](parts.flatten(1)), self.heads[1](parts.mean(3).flatten(1))


#: Each network, the shape of its input, and operators that it is exported with and that are no longer there.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int], set[str]]] = {
    "slopes": (SlopedNetwork, (1, 14, 10), {"PRelu"}),
    "pre-activated": (PreActivated, (1, 12, 10), {"BatchNormalization", "AveragePool"}),
    "averages": (Averaged, (1, 12, 18), {"AveragePool"}),
    "bilinear": (lambda: UNet(bilinear(), 16), (1, 12, 10), {"Resize"}),
    "bilinear to a size": (lambda: UNet(bilinear(size=(12, 9)), 16), (1, 12, 9), {"Resize"}),
    "aligned corners": (lambda: UNet(bilinear(align_corners=True), 16), (1, 12, 10), {"Resize"}),
    "rows, then columns": (
        lambda: UNet(
            nn.Sequential(nn.ConvTranspose2d(16, 8, (2, 1), (2, 1)), nn.ConvTranspose2d(8, 8, (1, 2), (1, 2))), 8
        ),
        (1, 12, 10),
        {"ConvTranspose"},
    ),
}


def bilinear(**given: object) -> nn.Upsample:
    return nn.Upsample(mode="bilinear", **({"scale_factor": 2} if "size" not in given else {}), **given)


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_byte_is_onnx_runtimes(name: str, dynamo: bool) -> None:
    make, shape, rewritten = NETWORKS[name]
    torch.manual_seed(1)
    images = torch.randn(64, *shape)
    model, target = settle(make(), images, least=0.0), io.BytesIO()
    torch.onnx.export(model, (images[:1],), target, input_names=["image"], dynamo=dynamo, verbose=False)
    exported = target.getvalue()
    assert rewritten <= {node.op_type for node in onnx.load_from_string(exported).graph.node}
    data = quantize(exported, {"image": images.numpy()})
    assert not rewritten & {node.op_type for node in onnx.load_from_string(data).graph.node}
    rows = describe(import_model(data))
    assert {row.where for row in rows if row.kind not in ("QuantizeLinear", "DequantizeLinear")} == {"accelerator"}
    others = {"image": np.random.default_rng(1).normal(size=(8, *shape)).astype(np.float32)}
    assert max(relative_errors(Model(exported), Model(data), others).values()) < 0.1
    assert_right(verify(data, PRESETS["ecp5-85k"], samples=2))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_larger_than_the_memories(name: str) -> None:
    make, shape, _ = NETWORKS[name]
    torch.manual_seed(1)
    images = torch.randn(16, *shape)
    model, target = settle(make(), images, least=0.0), io.BytesIO()
    torch.onnx.export(model, (images[:1],), target, input_names=["image"], dynamo=False, verbose=False)
    assert_right(verify(quantize(target.getvalue(), {"image": images.numpy()}), PRESETS["tiny"], samples=1))


@pytest.mark.parametrize(
    ("sizes", "operators"),
    [((5, 5), ["Conv", "DepthToSpace"]), ((4, 6), ["Conv"]), ((5, 7), ["Conv", "Reshape", "Transpose", "Reshape"])],
)
def test_averages_to_any_size(sizes: tuple[int, int], operators: list[str], tmp_path: Path) -> None:
    """The newer exporter writes hundreds of nodes that gather and add."""
    torch.manual_seed(1)
    images, target = torch.randn(8, 4, 12, 18), io.BytesIO()
    model = nn.Sequential(nn.AdaptiveAvgPool2d(sizes), nn.ReLU()).eval()
    torch.onnx.export(model, (images[:1],), target, input_names=["image"], dynamo=True, verbose=False)
    exported = onnx.load_from_string(target.getvalue())
    prepared, found = prepare(exported, "model", tmp_path)
    assert [node.op_type for node in prepared.graph.node] == [*operators, "Relu"]
    assert [one.rewriting.title for one in found]
    feeds = {"image": images[:1].numpy()}
    assert max(relative_errors(Model.written(exported), Model.written(prepared), feeds).values()) < 1e-6


def test_averages_to_any_size_on_the_core() -> None:
    torch.manual_seed(1)
    images, target = torch.randn(16, 2, 12, 9), io.BytesIO()
    model = nn.Sequential(convolution(2, 8, 3), nn.AdaptiveAvgPool2d((5, 5)), nn.Conv2d(8, 4, 3, padding=1)).eval()
    torch.onnx.export(model, (images[:1],), target, input_names=["image"], dynamo=True, verbose=False)
    data = quantize(target.getvalue(), {"image": images.numpy()})
    assert any(row.kind.startswith("grouped convolution") for row in describe(import_model(data)))
    assert_right(verify(data, PRESETS["ecp5-85k"], samples=2))
