"""Blocks of a convolution's weights: their norms, and the choice of blocks to drop and to activate."""

from __future__ import annotations

import numpy as np
import torch


def block_norms(weight: torch.Tensor, granularity: tuple[int, int]) -> np.ndarray:
    """Compute the Euclidean norm of each block.

    Parameters
    ----------
    weight : float[outputs, inputs, height, width]
        Weights, or gradients.
    granularity : (int, int)
        Input channels and output channels of a block.

    Returns
    -------
    float64[rows, columns]
        A row for every ``granularity[0]`` input channels.
    """
    squares = weight.detach().double().square().sum(dim=(2, 3)).cpu().numpy().T
    starts = (np.arange(0, size, step) for size, step in zip(squares.shape, granularity, strict=True))
    for axis, start in enumerate(starts):
        squares = np.add.reduceat(squares, start, axis=axis)
    return np.sqrt(squares)


def drop(blocks: np.ndarray, norms: np.ndarray, count: int) -> np.ndarray:
    """Drop the ``count`` connected blocks with the smallest norms, the first of equals.

    Parameters
    ----------
    blocks : bool[rows, columns]
        The connected blocks.
    norms : float[rows, columns]
    count : int

    Returns
    -------
    bool[rows, columns]
        The blocks that are left. Filters may be dead until :func:`grow`.
    """
    left = blocks.copy()
    for at in _in_order(norms, blocks)[:count]:
        left[at] = False
    return left


def grow(blocks: np.ndarray, norms: np.ndarray, count: int, *, dropped: np.ndarray, covers_rows: bool) -> np.ndarray:
    """Activate ``count`` blocks with the greatest norms, the first of equals, so that no filter is dead.

    As long as columns, or rows if ``covers_rows``, are empty, it takes blocks in them; blocks in both come first, so
    that as many blocks as there are empty rows or empty columns, whichever are more, are enough.

    Parameters
    ----------
    blocks : bool[rows, columns]
        The connected blocks.
    norms : float[rows, columns]
    count : int
        At least as many as there are empty columns or rows, at most as many as there are unconnected blocks.
    dropped : bool[rows, columns]
        Blocks that were dropped just now: taken only where there is no other choice.
    covers_rows : bool

    Returns
    -------
    bool[rows, columns]
        The blocks that are connected then.
    """
    grown = blocks.copy()
    order = [*_in_order(-norms, ~blocks & ~dropped), *_in_order(-norms, ~blocks & dropped)]
    for _ in range(count):
        empty_columns = ~grown.any(axis=0)
        empty_rows = ~grown.any(axis=1) & covers_rows
        # max takes the first of equals: the greatest norm among those that fill most empty rows and columns.
        best = max(order, key=lambda at: int(empty_rows[at[0]]) + int(empty_columns[at[1]]))
        order.remove(best)
        grown[best] = True
    return grown


def _in_order(keys: np.ndarray, chosen: np.ndarray) -> list[tuple[int, int]]:
    """Return rows and columns of the chosen blocks, the least key first, equals in their order."""
    order = np.argsort(keys, axis=None, kind="stable")
    return [(int(at) // keys.shape[1], int(at) % keys.shape[1]) for at in order if chosen.flat[at]]
