"""Accuracy of digit networks against density and cycles: sparse ones, narrower dense ones, incremental training."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from lutterfly.examples.scatter import scatter
from lutterfly.examples.train_fpc_digits import SEEDS, accuracy, export, runtime_accuracy, spread
from lutterfly.examples.train_sparse_digits import (
    IMAGES,
    WIDTH,
    Recipe,
    SparseDigits,
    block_density,
    digits,
    predicted_cycles,
    train,
)

DENSITIES = (0.125, 0.25, 0.5)
#: Widths of dense networks that take fewer cycles than any sparse one of the full width.
NARROW = (16, 24)
#: Incremental training begins with this density, or the least that leaves no dead filter, and ends with these.
START, TARGETS = 0.01, (0.25, 0.5, 1.0)
#: Widths that a narrower network can have: their sparse layers have whole tiles.
WIDTHS = range(4, WIDTH + 1, 4)
HEAD = (
    "| connections | density | blocks | cycles | in PyTorch | quantised, in ONNX Runtime |\n|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class MeasuredRecipe:
    """The measurements of one recipe, over all seeds.

    Attributes
    ----------
    name : str
    recipe : Recipe
    blocks : float
        The share of the blocks of the sparse layers that are connected.
    cycles : float
        Predicted, the mean.
    floats, integers : list of float
        Accuracies of each seed on held-out images, before and after quantisation.
    """

    name: str
    recipe: Recipe
    blocks: float
    cycles: float
    floats: list[float]
    integers: list[float]

    @property
    def row(self) -> str:
        """Of the table."""
        density = f"width {self.recipe.width}" if self.recipe.width != WIDTH else f"{self.recipe.density:g}"
        return (
            f"| {self.name} | {density} | {100 * self.blocks:.1f} % | {self.cycles:,.0f} | {spread(self.floats)} "
            f"| {spread(self.integers)} |"
        )


def measure(name: str, recipe: Recipe, data: Mapping[str, np.ndarray]) -> MeasuredRecipe:
    """Train, quantise and judge a recipe with every seed."""
    cycles, blocks, floats, integers = [], [], [], []
    for seed in SEEDS:
        model = train(recipe, data["pixels"], data["labels"], seed)
        file = export(model, data["pixels"])
        cycles.append(predicted_cycles(file))
        blocks.append(block_density(model))
        floats.append(accuracy(model, data["test_pixels"], data["test_labels"]))
        integers.append(runtime_accuracy(file, data["test_pixels"], data["test_labels"]))
    return MeasuredRecipe(name, recipe, statistics.mean(blocks), statistics.mean(cycles), floats, integers)


def width_of(cycles: float) -> int:
    """The width of the dense network whose cycles are nearest."""
    return min(WIDTHS, key=lambda width: abs(dense_cycles(width) - cycles))


@functools.cache
def dense_cycles(width: int) -> int:
    """Of a dense network; they do not depend on its weights."""
    torch.manual_seed(0)
    return predicted_cycles(export(SparseDigits(width).eval(), np.zeros((1, 1, 8, 8), np.float32)))


def study(folder: Path, epochs: int, images: int = IMAGES) -> list[MeasuredRecipe]:
    """Measure everything, write ``sparse_digits.md`` and ``sparse_digits.svg``; the table is printed as it grows."""
    found: list[MeasuredRecipe] = []
    data = digits(images)

    def add(name: str, recipe: Recipe) -> MeasuredRecipe:
        found.append(measure(name, replace(recipe, epochs=epochs), data))
        print(found[-1].row, flush=True)
        return found[-1]

    print(HEAD, flush=True)
    add("all", Recipe())
    for width in NARROW:
        add("dense, narrower", Recipe(width=width))
    for density in DENSITIES:
        drawn = add("drawn", Recipe(density))
        add("learned", Recipe(density, is_learned=True))
        add("dense, narrower", Recipe(width=width_of(drawn.cycles)))
    for target in TARGETS:
        add("incremental", Recipe(target, start=START))
    rows = [HEAD, *(one.row for one in found)]
    (folder / "sparse_digits.md").write_text("\n".join(rows) + "\n")
    points: dict[str, list[tuple[float, float, float]]] = {}
    for one in found:
        values = [100 * value for value in one.integers]
        point = one.cycles, statistics.mean(values), statistics.stdev(values)
        points.setdefault(one.name, []).append(point)
    plot = scatter(points, x_title="cycles (predicted)", y_title="accuracy, quantised, in percent")
    (folder / "sparse_digits.svg").write_text(plot)
    return found
