"""Networks in PyTorch that remember: of keywords, by the last state or the last output, and of every step."""

from __future__ import annotations

import torch
from torch import nn


class Recurrent(nn.Module):
    """An LSTM or a GRU, and one product behind it.

    Parameters
    ----------
    kind : type
        ``nn.LSTM`` or ``nn.GRU``.
    read : str
        What the product reads: ``last`` output, ``every`` output, or ``state`` of the last layer.
    layers : int
    bidirectional : bool
    """

    def __init__(self, kind: type[nn.RNNBase], read: str, *, layers: int = 1, bidirectional: bool = False) -> None:
        super().__init__()
        self.cell = kind(6, 10, layers, batch_first=True, bidirectional=bidirectional)
        self.read, self.head = read, nn.Linear(20 if bidirectional and read != "state" else 10, 5)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        found, state = self.cell(sequence)
        if self.read == "state":
            return self.head((state[0] if isinstance(state, tuple) else state)[-1])
        return self.head(found[:, -1] if self.read == "last" else found)


class Keywords(nn.Module):
    """Convolutions over time and frequency, then an LSTM over time, as keyword spotting has it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, (2, 2), 1), nn.BatchNorm2d(4), nn.ReLU())
        self.cell, self.head = nn.LSTM(4 * 4, 12, batch_first=True), nn.Linear(12, 5)

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        maps = self.stem(spectrogram[:, None])
        found, _ = self.cell(maps.permute(0, 2, 1, 3).flatten(2))
        return self.head(found[:, -1])


class Frames(nn.Module):
    """An LSTM over the rows of an image, as many and as long as a keyword's frames are."""

    def __init__(self, inputs: int = 48, hidden: int = 64) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(inputs, hidden, batch_first=True), nn.Linear(hidden, 12)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found, _ = self.cell(images[:, 0])
        return self.head(found[:, -1])
