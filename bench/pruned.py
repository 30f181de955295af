"""Cycles of pruned networks, as PyTorch's own pruning leaves them: at single channels, and at single weights.

    python bench/pruned.py

Needs the extra `train`. Weights are random and pruned by their size: half of the input channels of each convolution but
the first, two fifths of its filters, or four fifths of its weights. Each network runs on the simulated core of the
default configuration, where every byte is compared with ONNX Runtime's.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import prune

from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import plan_graph
from lutterfly.host.frontend import import_model
from lutterfly.host.session.verify import verify
from lutterfly.train import export_onnx

CONFIG = PRESETS["ecp5-85k"]
#: The form of pruning of a convolution.
WAYS = {
    "input channels": lambda layer: prune.ln_structured(layer, "weight", 0.5, 2, 1),
    "filters": lambda layer: prune.ln_structured(layer, "weight", 0.4, 2, 0),
    "weights": lambda layer: prune.l1_unstructured(layer, "weight", 0.8),
}


def layer(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution and its batch normalisation."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


class ResidualBlock(nn.Module):
    """Two convolutions with a sum around them."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.inner = nn.Sequential(*layer(inputs, outputs, 3, stride), nn.ReLU(), *layer(outputs, outputs))
        is_same = stride == 1 and inputs == outputs
        self.short = nn.Identity() if is_same else nn.Sequential(*layer(inputs, outputs, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float[batch, inputs, height, width] to float[batch, outputs, ...]."""
        return torch.relu(self.inner(x) + self.short(x))


class Inverted(nn.Module):
    """Wide, depthwise, narrow; with a sum around it where sizes are the same."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        wide = 4 * inputs
        self.inner = nn.Sequential(
            *layer(inputs, wide, 1), nn.ReLU(), *layer(wide, wide, 3, stride, wide), nn.ReLU(), *layer(wide, outputs, 1)
        )
        self.has_sum = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float[batch, inputs, height, width] to float[batch, outputs, ...]."""
        return x + self.inner(x) if self.has_sum else self.inner(x)


class Dense(nn.Module):
    """Each layer reads the concatenation of all before it."""

    def __init__(self, inputs: int, growth: int, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                *layer(inputs + number * growth, 4 * growth, 1), nn.ReLU(), *layer(4 * growth, growth), nn.ReLU()
            )
            for number in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float[batch, inputs, height, width] to float[batch, inputs + layers * growth, ...]."""
        for one in self.layers:
            x = torch.cat([x, one(x)], 1)
        return x


def head(channels: int) -> list[nn.Module]:
    """Ten classes."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]


NETWORKS = {
    "residual": lambda: nn.Sequential(
        *layer(3, 32),
        nn.ReLU(),
        ResidualBlock(32, 32, 1),
        ResidualBlock(32, 64, 2),
        ResidualBlock(64, 128, 2),
        *head(128),
    ),
    "inverted residual, depthwise": lambda: nn.Sequential(
        *layer(3, 16, 3, 2), nn.ReLU(), Inverted(16, 24, 1), Inverted(24, 24, 1), Inverted(24, 48, 2), *head(48)
    ),
    "densely connected": lambda: nn.Sequential(
        *layer(3, 24), nn.ReLU(), Dense(24, 16, 4), *layer(88, 48, 1), nn.ReLU(), nn.AvgPool2d(2), *head(48)
    ),
}


def main() -> None:
    """Print the table."""
    print("| network | pruned | cycles | model's order (predicted) | dense (predicted) | bytes compared, different |")
    print("|---|---|---|---|---|---|")
    for name, make in NETWORKS.items():
        for way, cut in WAYS.items():
            torch.manual_seed(1)
            model, samples = make(), torch.randn(32, 3, 32, 32)
            for _ in range(3):
                model.train()(samples)
            for module in model.modules():
                if isinstance(module, nn.Conv2d) and module.groups == 1 and module.in_channels > 3:
                    prune.remove(cut(module), "weight")
            data = export_onnx(model.eval(), samples[:16].numpy())
            graph = import_model(data, name)
            plan, ordered = (plan_graph(graph, CONFIG, permute=permute) for permute in (True, False))
            dense = plan.predicted_cycles + sum(one.dense_cycles - one.cycles for one in plan.predictions)
            found = verify(data, CONFIG, samples=1)
            print(
                f"| {name} | {way} | {found.cycles:,} | {ordered.predicted_cycles:,} | {dense:,} "
                f"| {found.bytes:,}, {found.mismatched_bytes} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
