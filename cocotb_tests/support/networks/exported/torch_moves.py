"""Networks in PyTorch that move bytes: ShuffleNetV2, a causal temporal network, space to depth, and single moves."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from cocotb_tests.support.networks.exported.torch_networks import convolution


def shuffled(maps: torch.Tensor, groups: int) -> torch.Tensor:
    """The channel shuffle of ShuffleNet, as torchvision writes it."""
    batch, channels, height, width = maps.shape
    maps = maps.view(batch, groups, channels // groups, height, width)
    return maps.transpose(1, 2).contiguous().view(batch, channels, height, width)


def _pointwise(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


def _depthwise(channels: int, stride: int) -> nn.Sequential:
    layer = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(channels))


class ShuffleUnit(nn.Module):
    """A unit of ShuffleNetV2; with a stride of 2 both halves are computed of all channels."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half, self.stride = outputs // 2, stride
        first = inputs if stride > 1 else half
        self.other = nn.Sequential(_depthwise(inputs, stride), _pointwise(inputs, half)) if stride > 1 else None
        self.branch = nn.Sequential(_pointwise(first, half), _depthwise(half, stride), _pointwise(half, half))

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        if self.other is None:
            kept, taken = maps.chunk(2, dim=1)
        else:
            kept, taken = self.other(maps), maps
        return shuffled(torch.cat((kept, self.branch(taken)), dim=1), 2)


class ShuffleNet(nn.Module):
    """ShuffleNetV2; by default that of half the width, with 1000 classes.

    Parameters
    ----------
    stem : int
        Channels of the first layer.
    stages : tuple of (int, int)
        Channels and units of each stage.
    last : int
        Channels in front of the classifier.
    classes : int
    """

    def __init__(
        self,
        stem: int = 24,
        stages: tuple[tuple[int, int], ...] = ((48, 4), (96, 8), (192, 4)),
        last: int = 1024,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, stem, 3, stride=2), nn.MaxPool2d(3, 2, 1))
        units, inputs = [], stem
        for channels, count in stages:
            units += [ShuffleUnit(inputs, channels, 2), *(ShuffleUnit(channels, channels, 1) for _ in range(count - 1))]
            inputs = channels
        self.units, self.last, self.head = nn.Sequential(*units), _pointwise(inputs, last), nn.Linear(last, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(self.units(self.stem(images))).mean([2, 3]))


class Causal(nn.Module):
    """A temporal network: what a step gives depends on it and those before it; classes of the last one."""

    def __init__(self, inputs: int = 3, channels: int = 8, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv1d(channels if at else inputs, channels, 3, dilation=2**at) for at in range(layers)
        )
        self.head = nn.Linear(channels, 4)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        for at, layer in enumerate(self.layers):
            given = steps
            steps = functional.relu(layer(functional.pad(steps, (2 ** (at + 1), 0))))
            steps = steps + given if at else steps
        return self.head(steps[:, :, -1])


class Moved(nn.Module):
    """Some move of elements between two convolutions.

    Parameters
    ----------
    move : callable
        From 8 channels to ``channels``.
    channels : int
    """

    def __init__(self, move: Callable[[torch.Tensor], torch.Tensor], channels: int = 8) -> None:
        super().__init__()
        self.first, self.move = convolution(1, 8, 3), move
        self.last = nn.Sequential(convolution(channels, 8, 3), nn.Conv2d(8, 2, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(self.move(self.first(images)))


def windows(maps: torch.Tensor, size: int) -> torch.Tensor:
    """Windows of so many rows and columns, one after the other as channels."""
    batch, channels, height, width = maps.shape
    maps = maps.view(batch, channels, height // size, size, width // size, size)
    return maps.permute(0, 2, 4, 1, 3, 5).contiguous().view(batch, -1, size, size)
