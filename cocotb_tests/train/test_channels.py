"""The channel graph of a model: what each kind of module is, and that dead filters are those of the model itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lutterfly.golden.connections.channel_graph import ChannelGraph, ChannelLayer, Dependence
from lutterfly.golden.connections.dead_channels import find_dead
from lutterfly.golden.connections.patterns import draw

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from lutterfly.train import BinaryConv2d, FastPointwiseConv2d, SparseConv2d, channel_graph  # noqa: E402

SPARSE, DENSE, CHANNELWISE, SUM, CONCATENATION, SLICE = Dependence


class Model(nn.Module):
    """A block with a sum around it, a branch that is concatenated, and a depthwise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU()
        self.inner = nn.Sequential(SparseConv2d(4, 6, 3, padding=1), nn.ReLU(), SparseConv2d(6, 4, 1))
        self.branch = SparseConv2d(4, 5, 1)
        self.depthwise = nn.Conv2d(9, 18, 3, groups=9)
        self.head = nn.Linear(18 * 4, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        stem = self.relu(self.norm(self.stem(image)))
        total = self.relu(stem + self.inner(stem))
        both = torch.cat([total, self.branch(stem)], dim=1)
        pooled = functional.max_pool2d(self.depthwise(both), 2)
        return self.head(pooled.flatten(1))


def test_every_layer_is_described():
    assert channel_graph(Model(), torch.zeros(2, 3, 6, 6)) == ChannelGraph(
        {"image": 3},
        (
            ChannelLayer("stem", DENSE, ("image",), 4),
            ChannelLayer("norm", CHANNELWISE, ("stem",), 4),
            ChannelLayer("relu", CHANNELWISE, ("norm",), 4),
            ChannelLayer("inner.0", SPARSE, ("relu",), 6),
            ChannelLayer("inner.1", CHANNELWISE, ("inner.0",), 6),
            ChannelLayer("inner.2", SPARSE, ("inner.1",), 4),
            ChannelLayer("add", SUM, ("relu", "inner.2"), 4),
            ChannelLayer("relu_1", CHANNELWISE, ("add",), 4),
            ChannelLayer("branch", SPARSE, ("relu",), 5),
            ChannelLayer("cat", CONCATENATION, ("relu_1", "branch"), 9),
            ChannelLayer("depthwise", CHANNELWISE, ("cat",), 18),
            ChannelLayer("max_pool2d", CHANNELWISE, ("depthwise",), 18),
            ChannelLayer("flatten", CHANNELWISE, ("max_pool2d",), 72),
            ChannelLayer("head", DENSE, ("flatten",), 10),
        ),
        ("head",),
    )


def test_own_layers_are_dense():
    model = nn.Sequential(nn.BatchNorm2d(4), FastPointwiseConv2d(4, 8), BinaryConv2d(8, 3, 1))
    kinds = [layer.kind for layer in channel_graph(model, torch.zeros(1, 4, 2, 2)).layers]
    assert kinds == [CHANNELWISE, DENSE, DENSE]


def test_the_model_is_left_as_it_was():
    model = Model().train()
    model.norm.eval()
    model.depthwise.weight.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    channel_graph(model, torch.randn(2, 3, 6, 6))
    assert [name for name, module in model.named_modules() if not module.training] == ["norm"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_channels_that_are_alive_have_gradients_and_a_planted_dead_one_has_none():
    """The model itself as the judge: with positive weights and values nothing cancels."""
    model = Model().double().eval()
    graph = channel_graph(model, torch.zeros(1, 3, 6, 6, dtype=torch.float64))
    for name, pattern in draw(graph, 0.01, granularity=(1, 1), seed=1).items():
        model.get_submodule(name).connect(pattern)
    dead = model.inner[2]
    dead.connected[:, 5] = False
    dead.clear_unconnected()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    image = torch.rand(1, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    seen: dict[str, torch.Tensor] = {}

    def note(name: str, result: torch.Tensor) -> None:
        seen.setdefault(name, result)

    for name, module in model.named_modules():
        module.register_forward_hook(lambda _, __, result, name=name: note(name, result))
    logits = model(image)
    found = set()
    for layer in graph.layers:
        if layer.name not in seen or layer.name == "head":
            continue
        (slopes,) = torch.autograd.grad(logits.sum(), seen[layer.name], retain_graph=True)
        needed = (slopes != 0).any(dim=(0, 2, 3))
        found |= {(layer.name, channel) for channel in (~needed).nonzero()[:, 0].tolist()}
    connections = {layer.name: model.get_submodule(layer.name).connections for layer in graph.sparse_layers}
    assert found == {(one.layer, one.channel) for one in find_dead(graph, connections)}
    assert ("inner.0", 5) in found


OPERATIONS = {
    "cumsum": lambda x: torch.cumsum(x, 1),
    "method": lambda x: x.cumsum(1),
    "gate": lambda x: x * torch.sigmoid(x),
    "mean": lambda x: x.mean((1, 2)),
    "mean of all": lambda x: x.mean(),
    "softmax": lambda x: torch.softmax(x, 0),
    "shuffle": lambda x: x.view(x.shape[0], 2, 2, 2, 2),
    "batch": torch.flatten,
    "part": lambda x: x.chunk(2, 1)[0],
    "batches": lambda x: x.split(1, 0)[0],
    "broadcast": lambda x: torch.mul(torch.flatten(x, 2).view(1, 4, 4, 1), torch.ones(1, 4, 4, 1, 1)),
}


class Operations(nn.Module):
    """One operation in the midst of sparse convolutions."""

    def __init__(self, operation: Callable, width: int) -> None:
        super().__init__()
        self.first, self.operation = SparseConv2d(3, 8, 1), operation
        self.head = nn.Linear(width, 5)
        self.register_buffer("factors", torch.rand(8, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        values = self.operation(self, self.first(image))
        return self.head(values.flatten(1))


def parts(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=1)
    return torch.cat([right, left], -3)


def uneven(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    left, middle, right = torch.split(x, [2, 5, 1], dim=1)
    return torch.cat((middle, left, right), dim=1)


def rows(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    above, below = torch.chunk(x, 2, 2)
    return above + below


#: Operations, channels that they lead to, and the kinds of the layers that they are.
KNOWN = {
    "mean, method": (lambda m, x: x.mean((2, 3)), 8, [CHANNELWISE]),
    "mean, function": (lambda m, x: torch.mean(x, dim=[-1, -2], keepdim=True), 8, [CHANNELWISE]),
    "mean of columns": (lambda m, x: x.mean(-1), 32, [CHANNELWISE]),
    "view": (lambda m, x: x.view(x.size(0), -1), 128, [CHANNELWISE]),
    "view of rows": (lambda m, x: x.view(x.shape[0], x.shape[1], -1), 128, [CHANNELWISE]),
    "reshape, method": (lambda m, x: x.reshape(-1, 32, 4), 128, [CHANNELWISE]),
    "reshape, function": (lambda m, x: torch.reshape(x, (-1, 128)), 128, [CHANNELWISE]),
    "flatten, method": (lambda m, x: x.flatten(start_dim=1), 128, [CHANNELWISE]),
    "flatten, function": (lambda m, x: torch.flatten(x, 2), 128, [CHANNELWISE]),
    "squeeze": (lambda m, x: x.mean((2, 3), True).squeeze(-1).squeeze(2), 8, [CHANNELWISE] * 3),
    "squeeze, function": (lambda m, x: torch.squeeze(torch.unsqueeze(x, 2), 2), 128, [CHANNELWISE] * 2),
    "softmax of channels": (lambda m, x: torch.softmax(x, 1), 128, [DENSE]),
    "softmax of channels, method": (lambda m, x: x.softmax(dim=-3), 128, [DENSE]),
    "softmax of columns": (lambda m, x: functional.softmax(x, dim=3), 128, [CHANNELWISE]),
    "log_softmax": (lambda m, x: functional.log_softmax(x, 1), 128, [DENSE]),
    "interpolate": (lambda m, x: functional.interpolate(x, scale_factor=2.0), 512, [CHANNELWISE]),
    "interpolate to a size": (lambda m, x: functional.interpolate(x, size=x.shape[2:]), 128, [CHANNELWISE]),
    "chunk": (parts, 128, [SLICE, SLICE, CONCATENATION]),
    "split": (uneven, 128, [SLICE, SLICE, SLICE, CONCATENATION]),
    "chunk of rows": (rows, 64, [CHANNELWISE, CHANNELWISE, SUM]),
    "product with a number": (lambda m, x: 0.5 * x, 128, [CHANNELWISE]),
    "product with a number, method": (lambda m, x: x.mul(2).div(3), 128, [CHANNELWISE] * 2),
    "product with a buffer": (lambda m, x: torch.mul(m.factors, x / 3), 128, [CHANNELWISE] * 2),
    "difference": (lambda m, x: x - torch.relu(x - 1), 128, [CHANNELWISE, CHANNELWISE, SUM]),
    "clamp": (lambda m, x: x.clamp(-3, 3), 128, [CHANNELWISE]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_an_operation_leads_from_channels_to_channels_as_gradients_do(name: str):
    """The model is the judge: what the graph says a channel reaches has a gradient with respect to it."""
    torch.manual_seed(0)
    operation, width, kinds = KNOWN[name]
    model = Operations(operation, width).double().eval()
    graph = channel_graph(model, torch.rand(2, 3, 4, 4, dtype=torch.float64))
    layers = [layer for layer in graph.layers if layer.name not in ("first", "head")]
    # What the head flattens is no part of the operation.
    assert [layer.kind for layer in layers[: len(kinds)]] == kinds
    assert all(layer.name.startswith("flatten") for layer in layers[len(kinds) :])

    values = torch.rand(2, 8, 4, 4, dtype=torch.float64, requires_grad=True)
    results = model.operation(model, values)
    last, count = layers[len(kinds) - 1].name, results.shape[1]
    for channel in range(8):
        connections = np.zeros((3, 8), bool)
        connections[:, channel] = True
        dead = find_dead(graph, {"first": connections})
        unreached = {one.channel for one in dead if one.layer == last and not one.is_reached}
        found = set()
        for output in range(count):
            weighted = results[:, output] * torch.rand_like(results[:, output])
            (slopes,) = torch.autograd.grad(weighted.sum(), values, retain_graph=True)
            if not slopes[:, channel].any():
                found.add(output)
        assert found == unreached
        assert len(found) < count


class Strange(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.conv, self.shuffle = how, SparseConv2d(4, 4, 1), nn.PixelShuffle(2)
        self.grouped = nn.Conv2d(4, 4, 1, groups=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "twice":
            return self.conv(self.conv(x))
        if self.how in OPERATIONS:
            return OPERATIONS[self.how](x)
        if self.how == "cat":
            return torch.cat([x, x], 2)
        return self.shuffle(x) if self.how == "module" else self.grouped(x)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("twice", r"^conv must be called once by the model, not again; give each call its own layer$"),
        ("cumsum", r"^cumsum: operation must be one that channel_graph knows, not cumsum; write the ChannelGraph by"),
        ("method", r"^cumsum: operation must be one that channel_graph knows, not cumsum; write the ChannelGraph by"),
        (
            "gate",
            r"^mul: product must be of a tensor and a constant, not of two tensors; write the ChannelGraph by hand$",
        ),
        ("mean", r"^mean: dim of a mean must be of rows and columns, not \(1, 2\); write the ChannelGraph by hand$"),
        ("mean of all", r"^mean: dim of a mean must be of rows and columns, not None; write the ChannelGraph by hand$"),
        ("softmax", r"^softmax: dim of a softmax must be given, and not be the batch's, not 0; write the ChannelGraph"),
        (
            "shuffle",
            r"^view: shape must keep the batch and the elements of each channel together, not be \[1, 2, 2, 2, 2\]",
        ),
        ("batch", r"^flatten: shape must keep the batch and the elements of each channel together, not be \[16\] of"),
        ("part", r"^chunk: parts must all be read, and part 1 of 2 is not; leave it out$"),
        ("batches", r"^split: parts must be of channels, rows or columns, not of the batch; write the ChannelGraph"),
        (
            "broadcast",
            r"^mul: operation must be one that channel_graph knows, not mul; write the ChannelGraph by hand$",
        ),
        ("cat", r"^cat: operation must be one that channel_graph knows, not cat; write the ChannelGraph by hand$"),
        (
            "module",
            r"^shuffle: module must be one that channel_graph knows, not PixelShuffle; write the ChannelGraph by",
        ),
        ("groups", r"^grouped: groups must be 1 or 4, one a channel, not 2$"),
    ],
)
def test_what_it_does_not_know_is_refused(how: str, message: str):
    with pytest.raises(ValueError, match=message):
        channel_graph(Strange(how), torch.zeros(1, 4, 2, 2))
