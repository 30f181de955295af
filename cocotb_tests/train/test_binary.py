"""Binary layers in PyTorch: gradients straight through, batch normalisation as thresholds, and their export."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

from cocotb_tests.support.oracles.exactness import assert_exact, needs_reference
from lutterfly.golden.numerics.binary import convolve_binary, fully_connected
from lutterfly.host.frontend import describe
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.model.reference import run as run_reference

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402

from lutterfly.train import BinaryConv2d, BinaryLinear, clip_weights, export_onnx, parameter_groups  # noqa: E402
from lutterfly.train.layers.binary import ALWAYS, BinaryLayer, sign  # noqa: E402

# PyTorch's exporter warns of what it uses itself.
exporting = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


def signs_of(*shape: int) -> torch.Tensor:
    return torch.where(torch.randn(shape) >= 0, 1.0, -1.0)


def spread_norms(model: nn.Module) -> None:
    """Batch normalisation with factors of both signs, and none; statistics as training leaves them."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, BinaryLayer):
                outputs, size = len(module.weight), module.weight[0].numel()
                module.norm.weight.copy_(torch.randn(outputs))
                module.norm.bias.copy_(0.3 * torch.randn(outputs))
                module.norm.running_mean.copy_(torch.randn(outputs) * size**0.5)
                module.norm.running_var.copy_(size * (0.5 + torch.rand(outputs)))
                module.norm.weight[0] = 0


def run(data: bytes, values: torch.Tensor) -> np.ndarray:
    session = open_session(Model(data))
    return np.concatenate([session.run(None, {"input": value[None].numpy()})[0] for value in values])


def test_the_gradient_of_a_sign_is_that_of_nothing_from_minus_one_to_one():
    values = torch.tensor([-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.001], requires_grad=True)
    result = sign(values)
    assert result.tolist() == [-1, -1, -1, 1, 1, 1, 1, 1]
    slopes = torch.arange(1.0, 9.0)
    (result * slopes).sum().backward()
    assert values.grad.tolist() == [0, 2, 3, 4, 5, 6, 7, 0]


@pytest.mark.parametrize("make", [lambda: BinaryConv2d(5, 7, 3, padding=1, pad_value=-1), lambda: BinaryLinear(5, 7)])
@pytest.mark.parametrize("signs", [True, False])
def test_gradients_are_those_of_the_products_with_signs_passed_straight_through(make, signs: bool):
    """By hand: the layer with its signs as constants has the gradients, which then pass where nothing is clipped."""
    torch.manual_seed(0)
    layer = make()
    layer.signs = signs
    with torch.no_grad():
        layer.weight.mul_(1.5)
    spread_norms(layer)
    shape = (4, 5, 6, 6) if layer.weight.ndim == 4 else (4, 5)
    values = torch.randn(shape, requires_grad=True)
    result = layer(values)
    slopes = torch.randn_like(result)
    (result * slopes).sum().backward()
    found = values.grad, layer.weight.grad

    bits, weights = (sign(tensor.detach()).requires_grad_() for tensor in (values, layer.weight))
    normalised = layer.norm(layer.products(bits, weights))
    passed = slopes * (normalised.detach().abs() <= 1) if signs else slopes
    normalised.backward(passed)
    wanted = bits.grad * (values.detach().abs() <= 1), weights.grad * (layer.weight.detach().abs() <= 1)
    assert 0 < (found[1] == 0).sum() < found[1].numel()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_what_follows_a_step_clips_the_weights_of_binary_layers_alone():
    model = nn.Sequential(BinaryConv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    with torch.no_grad():
        for module in model:
            module.weight.fill_(2.5)
    clip_weights(model)
    assert model[0].weight.max() == 1
    assert model[1].weight.max() == 2.5
    exempt = parameter_groups(model, 0.1)[1]["params"]
    assert [id(parameter) for parameter in exempt] == [id(model[0].weight)]


@pytest.mark.parametrize("pad_value", [1, -1])
def test_products_are_the_golden_ones(pad_value: int):
    torch.manual_seed(0)
    layer = BinaryConv2d(9, 7, 3, stride=2, padding=2, dilation=2, pad_value=pad_value)
    values = torch.randn(9, 8, 7)
    found = layer.products(sign(values[None]), sign(layer.weight))[0].detach().numpy()
    weights = layer.weight.detach().numpy().transpose(0, 2, 3, 1)
    geometry = {"pad_value": pad_value, "stride": (2, 2), "dilation": (2, 2), "pads": (2, 2, 2, 2)}
    wanted = convolve_binary(values.numpy().transpose(1, 2, 0), weights, **geometry)
    np.testing.assert_array_equal(found.transpose(1, 2, 0), wanted)
    linear = BinaryLinear(40, 6)
    vectors = torch.randn(3, 40)
    wanted = fully_connected(vectors.numpy(), linear.weight.detach().numpy().T)
    np.testing.assert_array_equal(linear.products(sign(vectors), sign(linear.weight)).detach().numpy(), wanted)


@pytest.mark.parametrize("seed", range(20))
def test_thresholds_give_the_sign_of_the_normalised_product_for_every_product(seed: int):
    torch.manual_seed(seed)
    layer = BinaryLinear(25, 64)
    spread_norms(layer)
    folded, norm = layer.fold(), layer.norm
    products = np.arange(-25, 26)[:, None]
    factor, beta, mean, variance = (
        tensor.detach().double().numpy() for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    )
    normalised = factor * (products - mean) / np.sqrt(variance + norm.eps) + beta
    turned = np.where(factor < 0, -products, products)
    np.testing.assert_array_equal(turned + folded.bias >= 0, normalised >= 0)
    flips = folded.weights * np.sign(np.where(layer.weight.detach() >= 0, 1, -1))
    np.testing.assert_array_equal(flips, np.broadcast_to(np.where(factor < 0, -1, 1)[:, None], flips.shape))
    assert abs(folded.bias[0]) == ALWAYS
    # A normalised product itself is exact but for the rounding of its bias.
    layer.signs = False
    folded = layer.fold()
    found = (turned + folded.bias) * folded.scale.astype(np.float64)
    assert (np.abs(found - normalised) <= 0.5 * np.abs(factor) / np.sqrt(variance) + 1e-4).all()


@exporting
@needs_reference
def test_an_exported_network_of_signs_gives_the_signs_of_pytorch():
    torch.manual_seed(0)
    model = nn.Sequential(
        BinaryConv2d(5, 16, 3, padding=1, pad_value=-1),
        nn.MaxPool2d(2),
        BinaryConv2d(16, 24, 3, padding=1, pad_value=0, dilation=1),
        BinaryConv2d(24, 24, 2, stride=2, padding=1),
        nn.Flatten(),
        BinaryLinear(24 * 4, 30),
        BinaryLinear(30, 40),
    ).eval()
    spread_norms(model)
    values = signs_of(40, 5, 6, 6)
    data = export_onnx(model, values.numpy())
    wanted = model(values).detach().numpy()
    assert 0.2 < (wanted == 1).mean() < 0.8
    np.testing.assert_array_equal(run(data, values), wanted)
    graph = assert_exact(data, {"input": values.numpy()[:1]})
    on_bits = [graph.tensors[layer.input].bits for layer in graph.layers]
    # Only the first layer takes signs of codes: everything else is packed.
    assert on_bits == [8, *[1] * 6]


@exporting
@needs_reference
def test_real_results_are_rounded_to_codes():
    torch.manual_seed(0)
    model = nn.Sequential(BinaryConv2d(9, 30, 1), nn.Flatten(), BinaryLinear(30 * 9, 10, signs=False)).eval()
    spread_norms(model)
    values = signs_of(40, 9, 3, 3)
    data, wanted = export_onnx(model, values.numpy()), model(values).detach().numpy()
    scale = (wanted.max() - wanted.min()) / 255
    assert np.abs(run(data, values) - wanted).max() <= 0.51 * scale


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.inner(values)


@exporting
@needs_reference
def test_among_int8_layers_a_layer_gives_for_its_codes_what_it_gives_in_pytorch():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        Residual(BinaryConv2d(24, 24, 3, padding=1, signs=False)),
        nn.MaxPool2d(2),
        BinaryConv2d(24, 32, 3, padding=1),
        nn.Flatten(),
        nn.Linear(32 * 16, 10),
    )
    values = torch.rand(24, 1, 8, 8)
    for _ in range(20):
        model(values)
    model.eval()
    data = export_onnx(model, values.numpy())
    graph = assert_exact(data, {"input": values.numpy()[:1]})
    found = [row.kind for row in describe(graph) if row.where == "accelerator"]
    assert found[0] == "convolution 3x3"
    assert sorted(kind for kind in found if "binary" in kind) == [
        "binary convolution 3x3",
        "binary convolution 3x3 + table",
    ]
    exported = onnx.load_from_string(data)
    calls = {node.name: node for node in exported.graph.node if node.domain == "lutterfly"}
    tensors = run_reference(Model(data), {"input": values.numpy()[:1]})
    for name, layer in (("2.inner", model[2].inner), ("4", model[4])):
        codes, found = (tensors[names[0]] for names in (calls[name].input, calls[name].output))
        # The sign of what they stand for is what counts.
        _, zero_point = _numbers(exported, calls[name].input[0])
        entering = torch.from_numpy(codes.astype(np.float32) - zero_point)
        wanted = layer(entering).detach().numpy()
        if not layer.signs:
            scale, zero_point = _numbers(exported, calls[name].output[0])
            wanted = np.clip(np.rint(wanted / scale) + zero_point, -128, 127)
        assert len(np.unique(found)) > 1
        np.testing.assert_array_equal(found, wanted)


def _numbers(model: onnx.ModelProto, codes: str) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point that a tensor of codes is quantised or dequantised with."""
    known = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    quantisers = [node for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    node = next(node for node in quantisers if codes in (*node.input, *node.output))
    return tuple(known[name] for name in node.input[1:])


class Twice(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.inner(self.inner(values))


def test_what_cannot_be_made_or_exported_is_refused():
    with pytest.raises(ValueError, match=r"^pad_value must be \+1, -1 or 0, not 2$"):
        BinaryConv2d(3, 4, 3, pad_value=2)
    layer, values = BinaryConv2d(4, 4, 1), torch.rand(2, 4, 3, 3).numpy()
    message = "0 must have one place in the model, not 0, 1; give each its own layer"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        export_onnx(nn.Sequential(layer, layer), values)
    message = "inner must be called once by the model, not 2 times; give each call its own layer"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        export_onnx(Twice(layer), values)
