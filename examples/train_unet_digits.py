"""Train a U-Net that takes noise off handwritten digits, quantise it, and measure it on the simulated core.

    make test-train && .venv/bin/python examples/train_unet_digits.py --up transposed

The noise is normal, with a standard deviation of 0.3 where ink is 1. Each image is noisy in another way every time that
it is seen; the held-out ones are so once. Takes a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lutterfly.examples.digits import as_input
from lutterfly.examples.train_loop import load, one_cycle, shifted
from lutterfly.examples.train_measured import SEED, keep, measure, repeatable, tell

EPOCHS, BATCH, CHANNELS = 30, 32, 16
NOISE = 0.3
CALIBRATING = 200


def convolution(inputs: int, outputs: int) -> nn.Sequential:
    """3x3, with batch normalisation."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class UNet(nn.Module):
    """Two levels down and up again, each with a skip connection.

    Parameters
    ----------
    up : str
        ``transposed`` convolutions, or ``nearest`` neighbours and a convolution.
    channels : int
        Of the first level.
    """

    def __init__(self, up: str, channels: int = CHANNELS) -> None:
        super().__init__()
        widths = [channels, 2 * channels, 4 * channels]
        self.down = nn.ModuleList(
            [convolution(before, after) for before, after in zip([1, *widths], widths, strict=False)]
        )
        self.up, self.joined = nn.ModuleList(), nn.ModuleList()
        for wide, narrow in zip(widths[:0:-1], widths[-2::-1], strict=True):
            rising = nn.ConvTranspose2d(wide, narrow, 2, 2)
            nearest = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(wide, narrow, 3, padding=1))
            self.up.append({"transposed": rising, "nearest": nearest}[up])
            self.joined.append(convolution(2 * narrow, narrow))
        self.last = nn.Conv2d(channels, 1, 1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Images without noise, float32[images, 1, 8, 8], of those with."""
        first = self.down[0](pixels)
        second = self.down[1](functional.max_pool2d(first, 2))
        maps = self.down[2](functional.max_pool2d(second, 2))
        for up, joined, skipped in zip(self.up, self.joined, (second, first), strict=True):
            maps = joined(torch.cat([skipped, up(maps)], dim=1))
        return self.last(maps)


def noisy(pixels: torch.Tensor) -> torch.Tensor:
    """Images with noise."""
    return pixels + NOISE * torch.randn(pixels.shape)


def trained(up: str, pixels: np.ndarray, epochs: int = EPOCHS) -> UNet:
    """A network that has seen every image ``epochs`` times, shifted by up to one pixel, and noisy."""
    repeatable()
    network, images = UNet(up), torch.from_numpy(pixels)
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-2)
    rate = one_cycle(optimiser, 1e-2, pixels, epochs=epochs, batch=BATCH)
    for _ in range(epochs):
        for chosen in torch.randperm(len(images)).split(BATCH):
            clean = shifted(images[chosen])
            optimiser.zero_grad()
            functional.mse_loss(network(noisy(clean)), clean).backward()
            optimiser.step()
            rate.step()
    return network


def main() -> None:
    """Train, quantise, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--up", choices=("transposed", "nearest"), default="transposed")
    parser.add_argument("--output", type=Path, help="folder for the float and the int8 model")
    given = parser.parse_args()
    images, held_out, _, _ = load()
    pixels, clean = as_input(images), as_input(held_out)
    network = trained(given.up, pixels)
    torch.manual_seed(SEED)
    calibrating, others = (noisy(torch.from_numpy(each)).numpy() for each in (pixels[:CALIBRATING], clean))
    found = measure(network, calibrating, others)
    for name, made in (("noisy", others), ("float", found.of_float), ("int8", found.of_int8)):
        error = float(np.mean(np.square(made - clean)))
        print(f"{name}: mean squared error {error:.5f}, {10 * np.log10(1 / error):.2f} dB below full scale")
    tell(found)
    keep(found, given.output, f"digits_unet_{given.up}")


if __name__ == "__main__":
    main()
