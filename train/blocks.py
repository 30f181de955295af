"""Blocks of a convolution's weights: their norms, and which to drop and to activate when connections are learned."""

from __future__ import annotations

import numpy as np
import torch


def block_norms(weight: torch.Tensor, granularity: tuple[int, int]) -> np.ndarray:
    """The Euclidean norm of each block.

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


def drop(blocks: np.ndarray, norms: np.ndarray, count: int, *, covers_rows: bool) -> np.ndarray:
    """Drop blocks with the smallest norms, but none without which a column, or a row if it ``covers_rows``, is empty.

    Parameters
    ----------
    blocks : bool[rows, columns]
        Connected ones.
    norms : float[rows, columns]
    count : int
        How many to drop; fewer are, where the others are all needed.
    covers_rows : bool

    Returns
    -------
    bool[rows, columns]
        Those that are left.
    """
    left = blocks.copy()
    for row, column in _in_order(norms, blocks):
        if blocks.sum() - left.sum() == count:
            break
        if left[:, column].sum() > 1 and (not covers_rows or left[row].sum() > 1):
            left[row, column] = False
    return left


def grow(blocks: np.ndarray, norms: np.ndarray, count: int, *, exclude: np.ndarray) -> np.ndarray:
    """Activate ``count`` of the blocks that are not excluded, those with the greatest norms, the first of equals.

    Parameters
    ----------
    blocks, exclude : bool[rows, columns]
    norms : float[rows, columns]
    count : int
        No more than there are.

    Returns
    -------
    bool[rows, columns]
        With those that were connected.
    """
    grown = blocks.copy()
    for row, column in _in_order(-norms, ~exclude)[:count]:
        grown[row, column] = True
    return grown


def _in_order(keys: np.ndarray, chosen: np.ndarray) -> list[tuple[int, int]]:
    """Rows and columns of the chosen blocks, the least key first, the first of equals before the others."""
    order = np.argsort(keys, axis=None, kind="stable")
    return [(int(at) // keys.shape[1], int(at) % keys.shape[1]) for at in order if chosen.flat[at]]
