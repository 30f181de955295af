"""Sparse convolutions in PyTorch: what is not connected is 0 in weights, results, gradients, optimisers and files."""

from __future__ import annotations

import copy
import io
import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from lutterfly.golden.connections.patterns import ConnectionPattern

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from lutterfly.train import SparseConv2d, export_onnx, replace_convolutions  # noqa: E402

# PyTorch's exporter warns of what it uses itself.
exporting = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


def random_pattern(
    inputs: int, outputs: int, seed: int = 0, granularity: tuple[int, int] = (1, 1)
) -> ConnectionPattern:
    rows, columns = -(-inputs // granularity[0]), -(-outputs // granularity[1])
    blocks = np.random.default_rng(seed).random((rows, columns)) < 0.4
    blocks[0, 0], blocks[-1, 0] = True, False
    return ConnectionPattern(inputs, outputs, granularity, blocks)


def make_layer(**settings: object) -> SparseConv2d:
    torch.manual_seed(0)
    layer = SparseConv2d(6, 10, 3, padding=1, **settings)
    layer.connect(random_pattern(6, 10))
    return layer


def unconnected(layer: SparseConv2d) -> torch.Tensor:
    return ~layer.connected.expand_as(layer.weight)


def test_the_mask_is_the_pattern():
    layer, pattern = make_layer(), random_pattern(6, 10)
    np.testing.assert_array_equal(layer.connections, pattern.connections)
    for i in range(6):
        for o in range(10):
            assert bool(layer.weight[o, i].any()) == bool(pattern.connections[i, o])


def test_an_output_depends_on_the_inputs_that_it_is_connected_to_and_on_no_other():
    layer = make_layer(bias=False)
    values = torch.randn(1, 6, 5, 5)
    before = layer(values)
    for i in range(6):
        changed = values.clone()
        changed[:, i] += 1
        differs = (layer(changed) != before).any(dim=(0, 2, 3)).numpy()
        np.testing.assert_array_equal(differs, layer.connections[i])


def test_weights_that_are_put_in_by_hand_are_masked_in_the_forward_pass():
    layer = make_layer()
    values = torch.randn(2, 6, 5, 5)
    wanted = layer(values)
    with torch.no_grad():
        layer.weight.masked_fill_(unconnected(layer), float("nan"))
    assert torch.equal(layer(values), wanted)
    layer.clear_unconnected()
    assert not layer.weight[unconnected(layer)].any()


def test_gradients_are_those_of_a_dense_convolution_where_connected_and_zero_elsewhere():
    layer = make_layer()
    values = torch.randn(2, 6, 5, 5)
    slopes = torch.randn(2, 10, 5, 5)
    layer.record_gradients()
    for _ in range(2):
        layer.zero_grad()
        (layer(values) * slopes).sum().backward()
    dense = layer.weight.detach().clone().requires_grad_()
    (functional.conv2d(values, dense, layer.bias, padding=1) * slopes).sum().backward()
    assert torch.equal(layer.weight.grad, torch.where(unconnected(layer), 0, dense.grad))
    assert dense.grad[unconnected(layer)].abs().min() > 0
    assert torch.equal(layer.dense_gradient, 2 * dense.grad)


def test_a_gradient_beyond_all_numbers_stays_out_of_unconnected_weights():
    layer = make_layer()
    layer(torch.full((1, 6, 4, 4), float("inf"))).sum().backward()
    assert not layer.weight.grad[unconnected(layer)].any()
    assert not layer.weight.grad[~unconnected(layer)].isfinite().all()


@pytest.mark.parametrize(
    "make",
    [
        lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
        lambda weights: torch.optim.Adam(weights, lr=0.1, weight_decay=0.1, amsgrad=True),
        lambda weights: torch.optim.AdamW(weights, lr=0.1, weight_decay=0.1),
        lambda weights: torch.optim.RMSprop(weights, lr=0.1, momentum=0.9, centered=True),
        lambda weights: torch.optim.Adagrad(weights, lr=0.1),
    ],
    ids=["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"],
)
def test_optimisers_leave_unconnected_weights_and_their_own_state_for_them_at_zero(make):
    layer = make_layer()
    optimiser = make(layer.parameters())
    before = layer.weight.detach().clone()
    for _ in range(5):
        optimiser.zero_grad()
        layer(torch.randn(2, 6, 5, 5)).square().sum().backward()
        optimiser.step()
    assert (layer.weight != before)[~unconnected(layer)].all()
    states = [state for state in optimiser.state[layer.weight].values() if state.shape == layer.weight.shape]
    assert states
    for tensor in (layer.weight, *states):
        assert not tensor[unconnected(layer)].any()
        assert tensor[~unconnected(layer)].any()


def test_a_state_dict_has_the_pattern():
    layer = make_layer()
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    other = SparseConv2d(6, 10, 3, padding=1)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    values = torch.randn(1, 6, 5, 5)
    assert torch.equal(other(values), layer(values))
    np.testing.assert_array_equal(other.connections, layer.connections)


def test_dense_weights_that_are_loaded_with_a_pattern_are_masked():
    layer = make_layer()
    state = layer.state_dict() | {"weight": torch.ones_like(layer.weight)}
    layer.load_state_dict(state)
    assert torch.equal(layer.weight, layer.connected.expand_as(layer.weight).float())


def network() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        SparseConv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), SparseConv2d(8, 4, 1, bias=False)
    )
    for number, layer in enumerate((model[0], model[3])):
        # None so small that its code is 0.
        nn.init.uniform_(layer.weight, 0.5, 1)
        layer.connect(random_pattern(layer.in_channels, layer.out_channels, number))
    model.train()
    for _ in range(3):
        model(2 * torch.randn(8, 3, 6, 6) + 1)
    return model.eval()


def plain(model: nn.Sequential) -> nn.Sequential:
    """The same with convolutions that know no pattern."""
    twin = copy.deepcopy(model)
    for at, layer in ((0, model[0]), (3, model[3])):
        convolution = nn.Conv2d(
            layer.in_channels, layer.out_channels, layer.kernel_size, padding=layer.padding, bias=layer.bias is not None
        )
        # The masks alone are missing.
        convolution.load_state_dict({name: value for name, value in layer.state_dict().items() if name != "connected"})
        twin[at] = convolution
    return twin


@exporting
def test_exported_weights_are_zero_where_unconnected_and_the_file_is_that_of_a_plain_convolution():
    model = network()
    samples = np.random.default_rng(0).normal(1, 2, (16, 3, 6, 6)).astype(np.float32)
    data = export_onnx(model, samples)
    assert data == export_onnx(plain(model), samples)
    # What somebody put there by hand is not exported.
    with torch.no_grad():
        model[0].weight.masked_fill_(unconnected(model[0]), 3.0)
    assert export_onnx(model, samples) == data
    tensors = [numpy_helper.to_array(tensor) for tensor in onnx.load_from_string(data).graph.initializer]
    for layer in (model[0], model[3]):
        shape = tuple(layer.weight.shape)
        (weight,) = (tensor for tensor in tensors if tensor.shape == shape and tensor.dtype == np.int8)
        np.testing.assert_array_equal(weight.any(axis=(2, 3)).T, layer.connections)


@exporting
def test_a_plain_float_export_has_the_zeros_as_constants(tmp_path):
    # Large: of small tensors the exporter computes a mask's result by itself.
    layer = SparseConv2d(64, 64, 3, bias=False)
    layer.connect(random_pattern(64, 64))
    path = tmp_path / "float.onnx"
    torch.onnx.export(layer.eval(), (torch.randn(2, 64, 4, 4),), path, dynamo=True, external_data=False, verbose=False)
    exported = onnx.load(path)
    assert [node.op_type for node in exported.graph.node] == ["Conv"]
    (tensor,) = exported.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), layer.weight.detach().numpy())


def test_convolutions_are_replaced_with_their_weights_and_settings():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, 6, 3, stride=2, padding=1, padding_mode="reflect"),
        nn.Sequential(nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 8, 1, bias=False)),
        nn.Conv2d(8, 2, 1),
    ).eval()
    values = torch.randn(2, 4, 9, 9)
    wanted, parameters = model(values), list(model.parameters())
    assert replace_convolutions(model, exclude=["2"]) == ["0", "1.1"]
    assert torch.equal(model(values), wanted)
    assert all(one is other for one, other in zip(model.parameters(), parameters, strict=True))
    assert [type(module) for module in (model[0], model[1][0], model[2])] == [SparseConv2d, nn.Conv2d, nn.Conv2d]
    assert not model[0].training
    assert replace_convolutions(model, exclude=["2"]) == []


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"^groups must be 1, not 2; use Conv2d$"):
        SparseConv2d(4, 4, 3, groups=2)
    with pytest.raises(ValueError, match=re.escape("pattern must be of (6, 10) channels, not (10, 6)")):
        make_layer().connect(random_pattern(10, 6))
    with pytest.raises(ValueError, match=r"^exclude must be names of modules, and 'head' is none$"):
        replace_convolutions(nn.Sequential(nn.Conv2d(1, 1, 1)), exclude=["head"])
