"""Fast pointwise convolutions against what one would take instead in the same cycles and with no more feature memory.

    make test-train && .venv/bin/python bench/fpc_rivals.py

Each rival is as wide as the cycles of the network with fast pointwise convolutions allow: a narrower dense network,
grouped convolutions with shuffled channels, two factors of low rank, two block-diagonal factors (Monarch). Shuffles
cost nothing here, which favours those that need them. Prints mean and spread of the int8 accuracy over five seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from lutterfly.examples import train_fpc_digits as digits
from lutterfly.examples.digits import as_input
from lutterfly.examples.train_loop import load
from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
from lutterfly.host.compiler import compile_model
from lutterfly.train import calibrate

#: Channels that a factor of low rank leaves, groups of a grouped convolution, and channels of a diagonal block at most.
RANK, GROUPS, BLOCK = 8, 4, 16


def low_rank(inputs: int, outputs: int, *, shuffle: bool) -> nn.Module:
    """Down to few channels and up again."""
    return nn.Sequential(nn.Conv2d(inputs, RANK, 1, bias=False), nn.Conv2d(RANK, outputs, 1), nn.ReLU())


def grouped(inputs: int, outputs: int, *, shuffle: bool) -> nn.Module:
    """Each group reads its channels, and gives some to every group after it."""
    after = [nn.ChannelShuffle(GROUPS)] if shuffle else []
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, groups=GROUPS), nn.ReLU(), *after)


def monarch(inputs: int, outputs: int, *, shuffle: bool) -> nn.Module:
    """Two block-diagonal factors with shuffled channels between."""
    first, second = (channels // _block(channels) for channels in (inputs, outputs))
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 1, groups=first, bias=False),
        *([nn.ChannelShuffle(first)] if shuffle else []),
        nn.Conv2d(outputs, outputs, 1, groups=second),
        nn.ReLU(),
    )


def _block(channels: int) -> int:
    """Channels of a diagonal block: the most that divide all."""
    return max(size for size in range(1, BLOCK + 1) if channels % size == 0)


def narrower(inputs: int, outputs: int, *, shuffle: bool) -> nn.Module:
    """A dense one."""
    return digits.dense(inputs, outputs)


RIVALS: dict[str, Callable[..., nn.Module]] = {
    "dense, narrower": narrower,
    f"grouped ({GROUPS}), shuffled": grouped,
    f"low rank ({RANK})": low_rank,
    f"Monarch (blocks of {BLOCK} at most)": monarch,
}


def with_shuffles(make: Callable[..., nn.Module], shuffle: bool) -> digits.Pointwise:
    """A rival for the network: with its shuffles, or for counting cycles without."""
    return lambda inputs, outputs: make(inputs, outputs, shuffle=shuffle)


def predicted_cycles(pointwise: digits.Pointwise, width: int, pixels: np.ndarray) -> int:
    """Return the predicted cycles of an inference on the default configuration."""
    model = digits.network(pointwise, width).eval()
    if any(hasattr(module, "fixed_point") for module in model.modules()):
        calibrate(model, [torch.from_numpy(pixels)])
    return compile_model(digits.export(model, pixels), PRESETS[DEFAULT_PRESET]).predicted_cycles


def main() -> None:
    """Choose widths, train and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, help="what rivals may take; by default what the fast network takes")
    budget = parser.parse_args().cycles
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    train_images, test_images, labels, test_labels = load()
    pixels, test_pixels = as_input(train_images), as_input(test_images)
    budget = budget or predicted_cycles(digits.fast(), digits.WIDTH, pixels[:64])
    print(f"at most {budget:,} cycles\n\n| pointwise layers | channels | weights | multiplications | cycles | int8 |")
    print("|---|---|---|---|---|---|", flush=True)
    for name, make in RIVALS.items():
        pointwise = with_shuffles(make, shuffle=False)
        counted = {
            width: predicted_cycles(pointwise, width, pixels[:64]) for width in range(16, digits.WIDTH + 1, GROUPS)
        }
        width = max(width for width, cycles in counted.items() if cycles <= budget)
        found = []
        for seed in digits.SEEDS:
            model = digits.train(with_shuffles(make, shuffle=True), pixels, labels, seed, digits.EPOCHS, width)
            digits.tune(model, pixels, labels, seed)
            found.append(digits.runtime_accuracy(digits.export(model, pixels), test_pixels, test_labels))
        own = digits.cost(pointwise, width)
        print(
            f"| {name} | {width}, {2 * width} | {own.weights:,} | {own.multiplications:,} | {counted[width]:,} | "
            f"{digits.spread(found)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
