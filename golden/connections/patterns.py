"""Connection patterns: which input channels each output channel of a convolution sees, drawn without dead filters.

A pattern is the same for every pixel and every element of the kernel, and made of blocks: all connections from some
consecutive input channels to some consecutive output channels, or none. Source: "Sparse channel connectivity".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .channel_graph import ChannelGraph

#: Input channels and output channels of a block: those of a word and of a tile of the preset `ecp5-85k`.
GRANULARITY = (16, 8)


@dataclass(frozen=True, eq=False)
class ConnectionPattern:
    """The connections of a convolution.

    Attributes
    ----------
    inputs, outputs : int
        Channels.
    granularity : (int, int)
        Input channels and output channels of a block; the last blocks have the rest. (1, 1) is single channels.
    blocks : bool[rows, columns]
        Whether each block is connected: a row of blocks for every ``granularity[0]`` input channels, a column for every
        ``granularity[1]`` output channels.

    Raises
    ------
    TypeError, ValueError
        If channels or granularity are less than one, or the blocks are not booleans of the right shape.
    """

    inputs: int
    outputs: int
    granularity: tuple[int, int]
    blocks: np.ndarray

    def __post_init__(self) -> None:
        if self.blocks.dtype != bool:
            raise TypeError(f"blocks must be bool, not {self.blocks.dtype}")
        shape = grid(self.inputs, self.outputs, self.granularity)
        if self.blocks.shape != shape:
            raise ValueError(f"blocks must be bool{list(shape)}, not bool{list(self.blocks.shape)}")

    @property
    def connections(self) -> np.ndarray:
        """bool[inputs, outputs]: whether each input channel is connected to each output channel."""
        rows, columns = self.granularity
        return self.blocks.repeat(rows, axis=0).repeat(columns, axis=1)[: self.inputs, : self.outputs]

    @property
    def block_density(self) -> float:
        """The share of the blocks that are connected."""
        return int(self.blocks.sum()) / self.blocks.size

    @property
    def density(self) -> float:
        """The share of the connections that exist; that of the blocks, if all blocks are whole."""
        return int(self.connections.sum()) / (self.inputs * self.outputs)

    def contains(self, other: ConnectionPattern) -> bool:
        """Whether this pattern has every connection of another pattern of the same channels."""
        return not bool((other.connections & ~self.connections).any())


def grid(inputs: int, outputs: int, granularity: tuple[int, int]) -> tuple[int, int]:
    """Return the rows and columns of blocks, given the channels.

    Raises
    ------
    ValueError
        If a number is less than one.
    """
    for name, value in (("inputs", inputs), ("outputs", outputs), ("granularity", min(granularity))):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {granularity if name == 'granularity' else value}")
    return -(-inputs // granularity[0]), -(-outputs // granularity[1])


def least_blocks(rows: int, columns: int, *, covers_rows: bool) -> int:
    """Return the fewest blocks that connect every column and, if ``covers_rows``, every row."""
    return max(rows, columns) if covers_rows else columns


def count_blocks(density: float, rows: int, columns: int, *, covers_rows: bool) -> int:
    """Return the blocks of a pattern: ``round(density * rows * columns)``, or the fewest that leave no dead filter.

    Halves are rounded to even.

    Raises
    ------
    ValueError
        If the density is not in (0, 1].
    """
    if not 0 < density <= 1:
        raise ValueError(f"density must be more than 0 and at most 1, not {density}")
    return max(round(density * rows * columns), least_blocks(rows, columns, covers_rows=covers_rows))


def draw(
    graph: ChannelGraph,
    densities: float | Mapping[str, float],
    *,
    granularity: tuple[int, int] = GRANULARITY,
    seed: int,
) -> dict[str, ConnectionPattern]:
    """Draw a random pattern for each sparse layer; no filter of the network is dead.

    Patterns of the same graph, granularity and seed *nest*: each contains those of lesser densities. All blocks are put
    into one random order that does not depend on the density, and the first ones are taken. Each output channel has at
    least one connection, and so has each input channel that nothing else needs
    (:meth:`.ChannelGraph.covering_layers`): the fewest blocks that guarantee this come first in the order. So a
    pattern has exactly ``round(density * blocks)`` blocks, or those fewest, if they are more.

    Parameters
    ----------
    graph : ChannelGraph
    densities : float or mapping of str to float
        The share of the blocks, more than 0 and at most 1: of all sparse layers, or of each by its name.
    granularity : (int, int)
        Input channels and output channels of a block.
    seed : int
        Not negative.

    Returns
    -------
    dict of str to ConnectionPattern
        By the name of the layer.

    Raises
    ------
    ValueError
        If a density is missing, not in (0, 1] or of no sparse layer, or the granularity is less than one.
    """
    channels, covering, patterns = graph.channels, graph.covering_layers(), {}
    given = _densities(graph, densities)
    for position, layer in enumerate(graph.sparse_layers):
        inputs, covers = channels[layer.sources[0]], layer.name in covering
        rows, columns = grid(inputs, layer.channels, granularity)
        try:
            count = count_blocks(given[layer.name], rows, columns, covers_rows=covers)
        except ValueError as error:
            raise ValueError(f"{layer.name}: {error}") from error
        order = _order(rows, columns, covers, np.random.default_rng([seed, position]))
        blocks = np.zeros(rows * columns, bool)
        blocks[order[:count]] = True
        patterns[layer.name] = ConnectionPattern(inputs, layer.channels, granularity, blocks.reshape(rows, columns))
    return patterns


def _densities(graph: ChannelGraph, densities: float | Mapping[str, float]) -> Mapping[str, float]:
    names = [layer.name for layer in graph.sparse_layers]
    if not isinstance(densities, Mapping):
        return dict.fromkeys(names, densities)
    for name in densities:
        if name not in names:
            raise ValueError(f"{name}: density must be of a sparse layer, and it is none of {', '.join(names)}")
    for name in names:
        if name not in densities:
            raise ValueError(f"{name}: density must be given, and is missing; 1 connects everything")
    return densities


def _order(rows: int, columns: int, covers_rows: bool, random: np.random.Generator) -> np.ndarray:
    """Order all blocks, by ``row * columns + column``, so that the first ones connect every column (and row if asked).

    Rows and columns are paired at random. If there are more of one kind than of the other, random ones of the other
    are taken again, as evenly as possible.
    """
    count = least_blocks(rows, columns, covers_rows=covers_rows)
    first = _repeated(rows, count, random) * columns + _repeated(columns, count, random)
    rest = np.setdiff1d(np.arange(rows * columns), first)
    return np.concatenate([first, random.permutation(rest)])


def _repeated(size: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Draw ``count`` numbers below ``size`` in rounds: no number comes again before all have come."""
    rounds = [random.permutation(size) for _ in range(-(-count // size))]
    return np.concatenate(rounds)[:count]
