"""Networks in PyTorch with products of two activations: squeeze and excite, gates, attention by channel."""

from __future__ import annotations

import torch
from torch import nn

from cocotb_tests.support.networks.exported.torch_networks import convolution


class Excite(nn.Module):
    """Squeeze and excite: each channel by a factor that is computed of the averages of all.

    Parameters
    ----------
    channels : int
    gate : Module
        To numbers between 0 and 1.
    """

    def __init__(self, channels: int, gate: nn.Module) -> None:
        super().__init__()
        self.squeeze = nn.AdaptiveAvgPool2d(1)
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels // 4, 1), nn.ReLU(), nn.Conv2d(channels // 4, channels, 1)
        )
        self.gate = gate

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return maps * self.gate(self.body(self.squeeze(maps)))


class InvertedResidual(nn.Module):
    """A block of MobileNetV3 or EfficientNet, and a classifier.

    Parameters
    ----------
    activation, gate : Module
    """

    def __init__(self, activation: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), activation)
        self.block = nn.Sequential(
            *(nn.Conv2d(8, 24, 1), nn.BatchNorm2d(24), activation),
            *(nn.Conv2d(24, 24, 3, 1, 1, groups=24), nn.BatchNorm2d(24), activation),
            Excite(24, gate),
            *(nn.Conv2d(24, 8, 1), nn.BatchNorm2d(8)),
        )
        self.head = nn.Linear(8, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.stem(images)
        return self.head((maps + self.block(maps)).mean((2, 3)))


class Gated(nn.Module):
    """Two maps multiplied, as in gated convolutions; a border around the product."""

    def __init__(self) -> None:
        super().__init__()
        self.values, self.gates = convolution(3, 10, 3), nn.Conv2d(3, 10, 3, padding=1)
        self.last = convolution(10, 4, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(self.values(images) * torch.sigmoid(self.gates(images)))


class Attention(nn.Module):
    """A map by a vector, with a border around the product; then the square of what comes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.excite = convolution(3, 20, 3, stride=2), Excite(20, nn.Sigmoid())
        self.last = nn.Conv2d(20, 6, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.last(self.excite(self.stem(images)))
        return maps * maps
