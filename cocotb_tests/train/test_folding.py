"""Batch normalisation of a whole model, folded by one call: what is, what is not and why, and that nothing changes."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402

from cocotb_tests.support.networks.torch_networks import MobileNetV2, settle  # noqa: E402
from lutterfly.train import (  # noqa: E402
    FastPointwiseConv2d,
    calibrate,
    export_onnx,
    fold_batch_norm,
    fold_batch_norms,
    replace_pointwise,
)

# PyTorch's exporter warns of what it uses itself.
exporting = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


def mobilenet(least: float) -> tuple[nn.Module, torch.Tensor, list[str]]:
    torch.manual_seed(0)
    model, images = MobileNetV2(), torch.rand(16, 3, 32, 32)
    replaced = replace_pointwise(model)
    return settle(model, images, least=least), images, replaced


@exporting
def test_every_normalisation_of_a_mobilenet_is_folded_and_the_model_is_the_same():
    model, images, replaced = mobilenet(0.2)
    with torch.no_grad():
        wanted = model(images)
        found = fold_batch_norms(model)
        assert list(found.folded) == replaced
        assert found.kept == {}
        torch.testing.assert_close(model(images), wanted, rtol=1e-4, atol=1e-4)
    assert found.folded["features.1.conv.1"] == "features.1.conv.2"
    assert all(isinstance(model.get_submodule(name), nn.Identity) for name in found.folded.values())
    # After depthwise convolutions it stays: the export folds that.
    assert sum(isinstance(module, nn.BatchNorm2d) for module in model.modules()) == 4
    calibrate(model, [images])
    export_onnx(model, images.numpy())


def test_what_is_no_gain_stays_and_is_named():
    model, images, replaced = mobilenet(0.2)
    norm = model.features[4][1]
    with torch.no_grad():
        norm.weight[3] = -1
        wanted = model(images)
        found = fold_batch_norms(model)
        torch.testing.assert_close(model(images), wanted, rtol=1e-4, atol=1e-4)
    assert list(found.folded) == replaced[:-1]
    assert list(found.kept) == ["features.4.0"]
    assert re.match("norm must scale channels by more than zero, not channel 3 by -", found.kept["features.4.0"])
    assert model.features[4][1] is norm


class Tangled(nn.Module):
    """Normalisation stands elsewhere than it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(16)
        self.plain, self.read_twice, self.bare, self.last = (FastPointwiseConv2d(16, 16) for _ in range(4))
        self.other = nn.BatchNorm2d(16)
        self.clipped, self.after = FastPointwiseConv2d(16, 16, relu=True), nn.BatchNorm2d(16)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = self.norm(self.plain(values))
        twice = self.read_twice(values)
        values = torch.relu(self.bare(self.other(twice) + twice))
        return self.last(self.after(self.clipped(values)))


def test_the_order_of_calls_counts_and_every_layer_is_accounted_for():
    torch.manual_seed(0)
    model, values = Tangled(), torch.randn(8, 16, 4, 4)
    settle(model, values, least=0.3)
    with torch.no_grad():
        wanted = model(values)
        found = fold_batch_norms(model)
        torch.testing.assert_close(model(values), wanted, rtol=1e-4, atol=1e-4)
    assert found.folded == {"plain": "norm"}
    assert found.kept == {
        "read_twice": "layer must be read by a BatchNorm2d alone, not by other, add",
        "bare": "layer must be read by a BatchNorm2d, not by relu",
        "last": "layer must be read by a BatchNorm2d, not by output",
        "clipped": "layer must be without a ReLU, which stands between them; make it with relu=False",
    }


def test_layers_in_fixed_point_and_models_without_a_trace_are_refused():
    layer, norm, values = FastPointwiseConv2d(8, 8), nn.BatchNorm2d(8), torch.rand(2, 8, 3, 3)
    model = nn.Sequential(layer, norm).eval()
    calibrate(model, [values])
    message = "must be in float, not in fixed point, whose scales are of other results; fold first"
    with pytest.raises(ValueError, match=f"^0 {message}$"):
        fold_batch_norms(model)
    with pytest.raises(ValueError, match=f"^layer {message}$"):
        fold_batch_norm(layer, norm)

    class Branching(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return values if values.sum() > 0 else -values

    message = (
        r"^model must be traceable by torch.fx, and is not: .*; call fold_batch_norm for each layer and its normali"
    )
    with pytest.raises(ValueError, match=message):
        fold_batch_norms(Branching())
