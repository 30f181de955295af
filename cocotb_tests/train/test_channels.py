"""The channel graph of a model: what each kind of module is, and that dead filters are those of the model itself."""

from __future__ import annotations

import pytest

from lutterfly.golden.channel_graph import ChannelGraph, ChannelLayer, Kind, find_dead
from lutterfly.golden.patterns import draw

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from lutterfly.train import BinaryConv2d, FastPointwiseConv2d, SparseConv2d, channel_graph  # noqa: E402

SPARSE, DENSE, CHANNELWISE, SUM, CONCATENATION = Kind


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


class Strange(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.conv, self.shuffle = how, SparseConv2d(4, 4, 1), nn.PixelShuffle(2)
        self.grouped = nn.Conv2d(4, 4, 1, groups=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "twice":
            return self.conv(self.conv(x))
        if self.how == "function":
            return torch.softmax(x, 1)
        if self.how == "cat":
            return torch.cat([x, x], 2)
        return self.shuffle(x) if self.how == "module" else self.grouped(x)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("twice", r"^conv must be called once by the model, not again; give each call its own layer$"),
        (
            "function",
            r"^softmax: operation must be one that channel_graph knows, not softmax; write the ChannelGraph by",
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
