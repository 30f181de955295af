"""Channel use: which channels a convolution connects, what its steps cost, and orders that put alike ones together."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ....golden.config import Config
from ....golden.timing.issue import result_groups
from ...graph import Graph, Layer
from .channel_parts import Order

Bool = npt.NDArray[np.bool_]
#: Part of a layer's connections that rounding makes zero: up to 31 % in the autoencoder of MLPerf Tiny.
_FEW = 1 / 3
#: Tiles that are tried before anything is searched.
_SAMPLES = 4


def is_dense(used: Bool, config: Config) -> bool:
    """Whether few connections, bool[outputs, inputs], are missing, or too few to fill a word of a tile."""
    missing = used.size - np.count_nonzero(used)
    return missing < max(config.array.lanes * min(config.array.columns, len(used)), _FEW * used.size)


class Connections:
    """Which channels a convolution connects, and what its steps cost."""

    def __init__(self, graph: Graph, layer: Layer, config: Config):
        height, width, _ = graph.tensors[layer.output].shape
        self.source, self.target = layer.input, layer.output
        self.lanes, self.columns = config.array.lanes, config.array.columns
        self.used: Bool = layer.connections
        self.taps = math.prod(layer.window.kernel)
        self.weight = height * width
        #: A window takes as long as its results at least.
        self.least = result_groups(config, min(self.columns, len(self.used)))

    def steps(self, outputs: Order, inputs: Order) -> int:
        """Steps of all windows, with channels in these orders."""
        words = np.count_nonzero(self._words(self.used[outputs][:, inputs]), axis=1)
        return self.weight * int(np.maximum(words * self.taps, self.least).sum())

    def spare_steps(self) -> float:
        """About the steps that orders chosen for this layer alone would save: a few tiles stand for all."""
        counts = self.used.sum(axis=1)
        firsts = np.argsort(counts, kind="stable")[:: -(-len(counts) // _SAMPLES)]
        numbers, words = self.used.astype(np.float32), 0
        for first in firsts.tolist():
            tile = _group(numbers, counts, np.ones(len(counts), bool), first, self.columns)
            words += -(-np.count_nonzero(self.used[tile].any(axis=0)) // self.lanes)
        present = self._words(self.used)
        spare = np.count_nonzero(present) - words / len(firsts) * len(present)
        return self.weight * self.taps * max(spare, 0.0)

    def _words(self, used: Bool) -> Bool:
        """bool[tiles, words]: whether a tile uses a word."""
        return _grouped(_grouped(used, self.columns, 0), self.lanes, 1)

    def by_tile(self, outputs: Order) -> Bool:
        """bool[tiles, inputs]: which tiles use an input."""
        return _grouped(self.used[outputs], self.columns, 0)

    def by_word(self, inputs: Order) -> Bool:
        """bool[outputs, words]: which words an output uses."""
        return _grouped(self.used[:, inputs], self.lanes, 1)


def _grouped(used: Bool, size: int, axis: int) -> Bool:
    """Whether any of so many neighbours is used."""
    starts = np.arange(0, used.shape[axis], size)
    return np.logical_or.reduceat(used, starts, axis=axis)


def alike(uses: Bool, size: int) -> Order:
    """An order in which groups of ``size`` neighbours together have as few uses as can be found, one by one.

    Parameters
    ----------
    uses : bool[channels, users]
    size : int

    Returns
    -------
    int64[channels]
    """
    left, order = np.ones(len(uses), bool), list[int]()
    # In float32, whose products are fast; counts are exact.
    numbers, counts = uses.astype(np.float32), uses.sum(axis=1)
    while left.any():
        # Each group begins with what is used most.
        order += _group(numbers, counts, left, int(np.where(left, counts, -1).argmax()), size)
    return np.array(order, np.int64)


def _group(
    uses: npt.NDArray[np.float32], counts: npt.NDArray[np.int64], left: Bool, first: int, size: int
) -> list[int]:
    """``first`` and what adds least to it, one by one, of those that are ``left``; they no longer are."""
    together, group = uses[first].copy(), [first]
    left[first] = False
    for _ in range(min(size - 1, np.count_nonzero(left))):
        added = counts - (uses @ together).astype(np.int64)
        # Of those that add as little, the one that has most in common.
        score = np.where(left, added * (uses.shape[1] + 1) - counts, np.iinfo(np.int64).max)
        chosen = int(score.argmin())
        np.maximum(together, uses[chosen], out=together)
        left[chosen] = False
        group.append(chosen)
    return group
