"""Train digit networks with binary layers, and an int8 twin of one of them, quantise them, and compare.

    make test-train && .venv/bin/python examples/train_binary_digits.py

Prints, over five seeds, the mean and the spread of the accuracy on held-out images, in PyTorch and in plain ONNX
Runtime, and the weights in bytes. Writes ``digits_binary.onnx``, the first seed's binarised network. Everything is
seeded and single-threaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lutterfly.examples.digits import as_input
from lutterfly.examples.train_fpc_digits import BATCH, SEEDS, accuracy, export, runtime_accuracy, spread
from lutterfly.examples.train_loop import load, one_cycle, train_epoch
from lutterfly.train import BinaryConv2d, BinaryLinear, clip_weights, parameter_groups

EPOCHS, RATE, DECAY = 100, 1e-2, 1e-2


class Residual(nn.Module):
    """A layer with its input added to its result."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """float[batch, channels, height, width] to the same."""
        return values + self.inner(values)


def binarised() -> nn.Sequential:
    """An int8 convolution, whose signs all others work on: binary convolutions, then fully connected layers."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        BinaryConv2d(32, 32, 3, padding=1),
        nn.MaxPool2d(2),
        BinaryConv2d(32, 64, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Flatten(),
        BinaryLinear(64 * 2 * 2, 64),
        BinaryLinear(64, 10, signs=False),
    )


def residual(block: Callable[[int], nn.Module], channels: int = 48) -> nn.Sequential:
    """Int8 at both ends, and three blocks around which a sum of int8 codes goes."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        Residual(block(channels)),
        nn.MaxPool2d(2),
        Residual(block(channels)),
        nn.MaxPool2d(2),
        Residual(block(channels)),
        nn.Flatten(),
        nn.Linear(channels * 2 * 2, 10),
    )


def binary_block(channels: int) -> nn.Module:
    """Signs, convolved with signs."""
    return BinaryConv2d(channels, channels, 3, padding=1, signs=False)


def int8_block(channels: int) -> nn.Module:
    """Its twin."""
    convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    return nn.Sequential(nn.ReLU(), convolution, nn.BatchNorm2d(channels))


VARIANTS: dict[str, Callable[[], nn.Sequential]] = {
    "binarised": binarised,
    "residual, binary blocks": lambda: residual(binary_block),
    "residual, int8 blocks": lambda: residual(int8_block),
}


def train(make: Callable[[], nn.Sequential], pixels: np.ndarray, labels: np.ndarray, seed: int) -> nn.Sequential:
    """A trained network; every random number comes from the seed."""
    torch.manual_seed(seed)
    model = make().train()
    optimiser = torch.optim.AdamW(parameter_groups(model, DECAY), lr=RATE / 2)
    rate = one_cycle(optimiser, RATE, pixels, epochs=EPOCHS, batch=BATCH)
    for _ in range(EPOCHS):
        train_epoch(model, pixels, labels, optimiser, rate, batch=BATCH, after_step=lambda: clip_weights(model))
    return model.eval()


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all weights: a bit for each of a binary layer, eight for each of the others."""
    bits = 0
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear, BinaryConv2d, BinaryLinear)):
            bits += module.weight.numel() * (1 if isinstance(module, (BinaryConv2d, BinaryLinear)) else 8)
    return bits // 8


def main() -> None:
    """Train, compare and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder for digits_binary.onnx")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    train_images, test_images, labels, test_labels = load()
    pixels, test_pixels = as_input(train_images), as_input(test_images)
    print("| network | bytes of weights | PyTorch | ONNX Runtime |\n|---|---|---|---|", flush=True)
    for name, make in VARIANTS.items():
        floats, integers = [], []
        for seed in SEEDS:
            model = train(make, pixels, labels, seed)
            floats.append(accuracy(model, test_pixels, test_labels))
            data = export(model, pixels)
            integers.append(runtime_accuracy(data, test_pixels, test_labels))
            if name == "binarised" and seed == SEEDS[0]:
                (arguments.output / "digits_binary.onnx").write_bytes(data)
        print(f"| {name} | {weight_bytes(model):,} | {spread(floats)} | {spread(integers)} |", flush=True)


if __name__ == "__main__":
    main()
