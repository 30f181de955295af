"""Networks in PyTorch with layer normalisation: blocks of ConvNeXt."""

from __future__ import annotations

import torch
from torch import nn


class ConvNextBlock(nn.Module):
    """As in torchvision: a wide depthwise convolution, layer normalisation, two products of rows, a factor for each.

    Parameters
    ----------
    channels : int
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.rows = nn.Sequential(
            nn.LayerNorm(channels, eps=1e-6),
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
        )
        self.factors = nn.Parameter(torch.rand(channels))
        nn.init.uniform_(self.rows[0].weight, 0.5, 1.5)
        nn.init.normal_(self.rows[0].bias)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        rows = self.rows(self.depthwise(maps).permute(0, 2, 3, 1)) * self.factors
        return maps + rows.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """Patches, two blocks, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 20, 4, 4), nn.Linear(20, 10)
        self.blocks = nn.Sequential(ConvNextBlock(20), ConvNextBlock(20))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.patches(images)).mean((2, 3)))
