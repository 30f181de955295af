"""Networks in PyTorch that mix pixels by what they hold: attention, and what stands around it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


class SelfAttention(nn.Module):
    """Every token's share of every other one, by PyTorch's own function.

    Parameters
    ----------
    size : int
        Of a token.
    heads : int
    """

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ahead, self.behind = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        parts = self.ahead(tokens).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        return self.behind(mixed.transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    """As in a vision transformer: attention, then two products of tokens, each behind a layer normalisation.

    Parameters
    ----------
    size, heads : int
        See :class:`SelfAttention`.
    """

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(size), SelfAttention(size, heads))
        self.rows = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mixed = tokens + self.attention(tokens)
        return mixed + self.rows(mixed)


class Transformer(nn.Module):
    """Patches as tokens, a block, and a classifier of their mean.

    Parameters
    ----------
    size, heads : int
        See :class:`SelfAttention`.
    """

    def __init__(self, size: int = 24, heads: int = 3) -> None:
        super().__init__()
        self.patches, self.block, self.head = (
            nn.Conv2d(3, size, 4, 4),
            TransformerBlock(size, heads),
            nn.Linear(size, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.block(tokens).mean(1))


class Attentive(nn.Module):
    """Patches as tokens, a layer of PyTorch's that mixes them, and a classifier of their mean.

    Parameters
    ----------
    layer : Module
        An attention or an encoder layer for tokens of 24 elements.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.patches, self.layer, self.head = nn.Conv2d(3, 24, 4, 4), layer, nn.Linear(24, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        if isinstance(self.layer, nn.MultiheadAttention):
            mixed = tokens + self.layer(tokens, tokens, tokens, need_weights=False)[0]
        else:
            mixed = self.layer(tokens)
        return self.head(mixed.mean(1))


class Mixer(nn.Module):
    """Products of tokens, then of their elements, each behind a layer normalisation.

    Parameters
    ----------
    tokens, size : int
        How many there are, and elements of each.
    """

    def __init__(self, tokens: int = 16, size: int = 24) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, size, 4, 4), nn.Linear(size, 10)
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
        self.across, self.along = (
            nn.Sequential(nn.Linear(count, 2 * count), nn.GELU(), nn.Linear(2 * count, count))
            for count in (tokens, size)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        tokens = tokens + self.across(self.norms[0](tokens).transpose(1, 2)).transpose(1, 2)
        return self.head((tokens + self.along(self.norms[1](tokens))).mean(1))


class Normalised(nn.Module):
    """Convolutions with a normalisation by what they give.

    Parameters
    ----------
    norm : callable
        Makes one of so many channels.
    """

    def __init__(self, norm: Callable[[int], nn.Module], channels: int = 24) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1),
            norm(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1),
            norm(channels),
            nn.ReLU(),
        )
        self.head = nn.Linear(channels, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(images).mean((2, 3)))


class Classified(Transformer):
    """As vision transformers have it: a token of the class in front of the patches, an embedding of every position."""

    def __init__(self, size: int = 24, heads: int = 3) -> None:
        super().__init__(size, heads)
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, size)), nn.Parameter(torch.randn(1, 17, size))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(patches), -1, -1), patches], 1) + self.positions
        return self.head(self.block(tokens)[:, 0])


class VisionTransformer(Transformer):
    """A block of a small vision transformer: 64 tokens of 192 elements, three heads."""

    shape = 3, 32, 32

    def __init__(self) -> None:
        super().__init__(192, 3)


class VisionMixer(Mixer):
    """A block of a small mixer: 64 tokens of 192 elements."""

    shape = 3, 32, 32

    def __init__(self) -> None:
        super().__init__(64, 192)
