"""Networks in PyTorch that make maps larger: U-Nets, a detector's head, super-resolution, an autoencoder."""

from __future__ import annotations

import torch
from torch import nn

from cocotb_tests.support.networks.exported.torch_networks import convolution


class UNet(nn.Module):
    """One level down and up again, with a skip connection.

    Parameters
    ----------
    up : Module
        From 16 channels at half the size to ``channels`` at the whole.
    channels : int
    """

    def __init__(self, up: nn.Module, channels: int) -> None:
        super().__init__()
        self.down, self.bottom = convolution(1, 8, 3), convolution(8, 16, 3)
        self.up, self.pool = up, nn.MaxPool2d(2)
        self.last = nn.Sequential(convolution(8 + channels, 8, 3), nn.Conv2d(8, 2, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        skipped = self.down(images)
        risen = self.up(self.bottom(self.pool(skipped)))
        return self.last(torch.cat([skipped, risen], dim=1))


class DetectorHead(nn.Module):
    """Two scales as in YOLO: the deeper one is upsampled and joined to the other, and each has an output."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.deep = convolution(3, 16, 3, stride=2), convolution(16, 32, 3, stride=2)
        self.lateral, self.up = convolution(32, 16, 1), nn.Upsample(scale_factor=2)
        self.joined = convolution(32, 16, 3)
        self.heads = nn.ModuleList([nn.Conv2d(16, 9, 1), nn.Conv2d(32, 9, 1)])

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        large = self.stem(images)
        small = self.deep(large)
        joined = self.joined(torch.cat([self.up(self.lateral(small)), large], dim=1))
        return self.heads[0](joined), self.heads[1](small)


class SuperResolution(nn.Module):
    """Sub-pixel convolution inside, and one more layer behind it."""

    def __init__(self, factor: int = 2) -> None:
        super().__init__()
        self.body = nn.Sequential(convolution(1, 16, 3), nn.Conv2d(16, 8 * factor**2, 3, padding=1))
        self.rest = nn.Sequential(nn.PixelShuffle(factor), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.rest(self.body(images))


class Autoencoder(nn.Module):
    """Strides down, transposed convolutions with batch normalisation up, the last of them the output."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(convolution(1, 8, 3, stride=2), convolution(8, 16, 3, stride=2))
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 8, 4, 2, 1, groups=8),
            nn.Conv2d(8, 8, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 3, 1, 1),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(images))
