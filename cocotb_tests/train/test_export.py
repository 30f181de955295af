"""Export: ONNX Runtime computes what PyTorch does, and the frontend recognises the layers."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

from cocotb_tests.support.oracles.exactness import assert_exact, needs_reference
from lutterfly.host.graph import FastPointwiseConvolution
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402

from lutterfly.train import FastPointwiseConv2d, calibrate, export_onnx, fold_batch_norm  # noqa: E402

# PyTorch's exporter warns of what it uses itself.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


class Twice(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.inner(self.inner(values))


def run(data: bytes, values: np.ndarray) -> np.ndarray:
    session = open_session(Model(data))
    return np.concatenate([session.run(None, {"input": value[None]})[0] for value in values])


@needs_reference
def test_fast_layers_alone_give_the_numbers_of_pytorch():
    torch.manual_seed(0)
    model = nn.Sequential(
        FastPointwiseConv2d(12, 40, relu=True, skips=[(0, 5)]), FastPointwiseConv2d(40, 9, direction="top-down")
    ).eval()
    values = torch.randn(6, 12, 5, 4)
    calibrate(model, [values])
    data = export_onnx(model, values.numpy())
    np.testing.assert_array_equal(run(data, values.numpy()), model(values).detach().numpy())
    # Nothing is quantised twice.
    assert [node.op_type for node in onnx.load_from_string(data).graph.node] == [
        "QuantizeLinear",
        "FastPointwiseConv_1",
        "DequantizeLinear",
        "QuantizeLinear",
        "FastPointwiseConv_2",
        "DequantizeLinear",
    ]


@needs_reference
def test_a_network_is_exact_in_the_frontend_and_close_to_pytorch():
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(40)
    model = nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1),
        nn.ReLU(),
        FastPointwiseConv2d(24, 40),
        norm,
        nn.ReLU(),
        nn.MaxPool2d(2),
        FastPointwiseConv2d(40, 40, relu=True, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(40, 10),
    )
    values = torch.rand(16, 1, 8, 8)
    model(values)
    model.eval()
    fold_batch_norm(model[2], norm)
    model[3] = nn.Identity()
    calibrate(model, [values])
    data = export_onnx(model, values.numpy())
    graph = assert_exact(data, {"input": values.numpy()[:1]})
    layers = [layer for layer in graph.layers if isinstance(layer, FastPointwiseConvolution)]
    assert [layer.name for layer in layers] == ["2", "6"]
    np.testing.assert_array_equal(layers[0].stages.own, model[2].stages(model[2].fixed_point).own)
    wanted = model(values).detach().numpy()
    assert np.abs(run(data, values.numpy()) - wanted).max() < 0.1 * wanted.std()
    assert [function.name for function in onnx.load_from_string(data).functions] == [
        "FastPointwiseConv_1",
        "FastPointwiseConv_2",
    ]


def test_what_cannot_be_exported_is_refused():
    model, values = nn.Sequential(FastPointwiseConv2d(4, 4)), torch.rand(2, 4, 3, 3)
    with pytest.raises(ValueError, match=f"^{re.escape('0 must be in fixed point; call calibrate')}$"):
        export_onnx(model, values.numpy())
    calibrate(model, [values])
    message = "0 must have one place in the model, not 0, 1; give each its own layer"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        export_onnx(nn.Sequential(model[0], model[0]), values.numpy())
    message = "inner.0 must be called once by the model, not 2 times; give each call its own layer"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        export_onnx(Twice(model), values.numpy())


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.sqrt(np.square(found - wanted).mean() / np.square(wanted).mean()))


@needs_reference
@pytest.mark.parametrize("is_last", [False, True])
def test_batch_normalisation_after_a_fast_layer_is_not_lost(is_last: bool):
    """It has factors of both signs, which no gain has; and it is what the exporter folds into a convolution."""
    torch.manual_seed(0)
    model = nn.Sequential(FastPointwiseConv2d(16, 24), nn.BatchNorm2d(24), *([] if is_last else [nn.ReLU()]))
    values = torch.randn(16, 16, 5, 4)
    with torch.no_grad():
        model[1].weight.uniform_(-0.5, 2)
        model[1].bias.normal_()
    for _ in range(10):
        model(2 * values + 1)
    model.eval()
    calibrate(model, [values])
    data = export_onnx(model, values.numpy())
    assert relative_error(run(data, values.numpy()), model(values).detach().numpy()) < 0.01
    assert_exact(data, {"input": values.numpy()[:1]})
