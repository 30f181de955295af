"""Train digit networks with sparse convolutions, and compare them with narrower dense ones at equal cycles.

    make test-train && .venv/bin/python examples/train_sparse_digits.py train --density 0.25 --start 0.01 --learned
    .venv/bin/python examples/train_sparse_digits.py study --output .

`train` writes one network; with `--checkpoint` an interrupted run goes on where it was, and ends with the same bytes.
`study` writes ``sparse_digits.md`` and ``sparse_digits.svg``: five seeds of each network, mean and spread of accuracy
on held-out images, and the cycles that the compiler predicts. Everything is seeded and single-threaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lutterfly.examples.digits import as_input
from lutterfly.examples.train_fpc_digits import BATCH, export, runtime_accuracy
from lutterfly.examples.train_loop import load, one_cycle, train_epoch
from lutterfly.host.compiler import compile_model
from lutterfly.host.files.configuration import find_config
from lutterfly.train import (
    Densification,
    Rewiring,
    SparseConv2d,
    channel_graph,
    load_checkpoint,
    parameter_groups,
    save_checkpoint,
)

EPOCHS, RATE, DECAY = 12, 8e-3, 1e-2
#: All that are not held out.
IMAGES = 1437
#: Channels of the stem; the sparse layers have twice as many.
WIDTH = 64
CONFIG = find_config("ecp5-85k")


class SparseDigits(nn.Module):
    """A dense stem on 8x8, a sparse convolution on 4x4, and on 2x2 two more with a sum around them."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.stem = _block(nn.Conv2d(1, width, 3, padding=1, bias=False))
        self.widen = _block(SparseConv2d(width, 2 * width, 3, padding=1, bias=False))
        self.first = _block(SparseConv2d(2 * width, 2 * width, 3, padding=1, bias=False))
        self.second = _block(SparseConv2d(2 * width, 2 * width, 3, padding=1, bias=False))
        self.head = nn.Linear(2 * width * 2 * 2, 10)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Logits, float32[images, 10], of ``pixels``, float32[images, 1, 8, 8]."""
        values = functional.max_pool2d(self.stem(pixels), 2)
        values = functional.max_pool2d(self.widen(values), 2)
        values = values + self.second(self.first(values))
        return self.head(values.flatten(1))


def _block(convolution: nn.Conv2d) -> nn.Sequential:
    return nn.Sequential(convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU())


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Attributes
    ----------
    density : float
        Of the sparse layers, in the end.
    start : float or None
        With how much incremental training begins; five times as much after a quarter of the epochs, all after a half.
    is_learned : bool
        Whether blocks are exchanged in the first two thirds of the epochs.
    width : int
        Channels of the stem.
    epochs : int
    """

    density: float = 1.0
    start: float | None = None
    is_learned: bool = False
    width: int = WIDTH
    epochs: int = EPOCHS

    @property
    def densities(self) -> dict[int, float]:
        """By the epoch from which on they hold."""
        if self.start is None:
            return {0: self.density}
        steps = (self.start, min(5 * self.start, self.density), self.density)
        return dict(zip((0, self.epochs // 4, self.epochs // 2), steps, strict=True))

    @property
    def rewiring(self) -> Rewiring | None:
        """Of the learned choice."""
        return Rewiring(every=1, share=0.3, until=2 * self.epochs // 3) if self.is_learned else None


def train(
    recipe: Recipe, pixels: np.ndarray, labels: np.ndarray, seed: int, checkpoint: Path | None = None
) -> SparseDigits:
    """A trained network; every random number comes from the seed.

    Parameters
    ----------
    recipe : Recipe
    pixels : float32[images, 1, 8, 8]
    labels : uint8[images]
    seed : int
    checkpoint : Path, optional
        Written after each epoch. If it is there, training goes on from it, and ends as if it had not been interrupted.
    """
    torch.manual_seed(seed)
    model = SparseDigits(recipe.width)
    graph = channel_graph(model, torch.zeros(1, 1, 8, 8))
    optimiser = torch.optim.AdamW(parameter_groups(model, DECAY), lr=RATE / 2)
    rate = one_cycle(optimiser, RATE, pixels, epochs=recipe.epochs, batch=BATCH)
    schedule = Densification(model, graph, optimiser, recipe.densities, seed=seed, rewiring=recipe.rewiring)
    parts = {"model": model, "optimiser": optimiser, "rate": rate, "schedule": schedule}
    start = load_checkpoint(checkpoint, **parts) if checkpoint is not None and checkpoint.exists() else 0
    model.train()
    for epoch in range(start, recipe.epochs):
        schedule.step(epoch)
        train_epoch(model, pixels, labels, optimiser, rate, batch=BATCH)
        if checkpoint is not None:
            save_checkpoint(checkpoint, epoch + 1, **parts)
    return model.eval()


def block_density(model: nn.Module) -> float:
    """The share of the blocks of the sparse layers that have a connection."""
    # One channel of each block: patterns are made of whole ones.
    blocks = [module.connections[::16, ::8] for module in model.modules() if isinstance(module, SparseConv2d)]
    return sum(int(one.sum()) for one in blocks) / sum(one.size for one in blocks)


def predicted_cycles(data: bytes) -> int:
    """Cycles of an inference, as the compiler predicts them."""
    return compile_model(data, CONFIG).predicted_cycles


def digits(count: int) -> Mapping[str, np.ndarray]:
    """Pixels and labels of ``count`` images to train on, or of all there are, and held-out ones."""
    train_images, test_images, labels, test_labels = load()
    return {
        "pixels": as_input(train_images[:count]),
        "labels": labels[:count],
        "test_pixels": as_input(test_images),
        "test_labels": test_labels,
    }


def _train_command(arguments: argparse.Namespace) -> None:
    data = digits(arguments.images)
    recipe = Recipe(arguments.density, arguments.start, arguments.learned, arguments.width, arguments.epochs)
    model = train(recipe, data["pixels"], data["labels"], arguments.seed, arguments.checkpoint)
    file = export(model, data["pixels"])
    arguments.output.write_bytes(file)
    found = runtime_accuracy(file, data["test_pixels"], data["test_labels"])
    print(
        f"{arguments.output}: {100 * found:.2f} % of the held-out images, {100 * block_density(model):.1f} % of the "
        f"blocks, {predicted_cycles(file):,} cycles predicted"
    )


def _study_command(arguments: argparse.Namespace) -> None:
    from lutterfly.examples.train_sparse_study import study  # noqa: PLC0415  # it imports this module

    study(arguments.output, arguments.epochs, arguments.images)


def main() -> None:
    """Train one network, or study many."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("train", help="train a network, and write it as ONNX")
    one.add_argument("--density", type=float, default=0.25, help="share of the blocks that are connected in the end")
    one.add_argument("--start", type=float, help="begin with this density, and activate the others as training goes on")
    one.add_argument("--learned", action="store_true", help="exchange blocks by weights and gradients")
    one.add_argument("--width", type=int, default=WIDTH, help="channels of the stem")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--checkpoint", type=Path, help="write it after each epoch; go on from it if it is there")
    one.add_argument("--output", type=Path, default=Path("sparse_digits.onnx"))
    one.set_defaults(run=_train_command)
    many = commands.add_parser("study", help="accuracy against density and cycles, over five seeds")
    many.add_argument("--output", type=Path, default=Path(), help="folder for sparse_digits.md and sparse_digits.svg")
    many.set_defaults(run=_study_command)
    for command in (one, many):
        command.add_argument("--epochs", type=int, default=EPOCHS)
        command.add_argument("--images", type=int, default=IMAGES, help="so many of the images to train on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
