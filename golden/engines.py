"""What the engines compute from the words of a window: the multiplier array and the lane-wise maximum."""
from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]


def accumulate(words: Int8, weights: Int8) -> Int32:
    """Sum of products of one column.

    Parameters
    ----------
    words : int8[..., steps, lanes]
        Activation words of each window.
    weights : int8[steps, lanes]

    Returns
    -------
    int32[...]
        ``sum(words * weights)`` modulo 2**32.

    Raises
    ------
    TypeError
        If an array is not int8.
    ValueError
        If steps or lanes differ.
    """
    return mac(words, np.asarray(weights)[:, None, :])[..., 0]


def mac(words: Int8, weights: Int8) -> Int32:
    """Sums of products of all columns of the multiplier array.

    Parameters
    ----------
    words : int8[..., steps, lanes]
        Activation words of each window.
    weights : int8[steps, columns, lanes]

    Returns
    -------
    int32[..., columns]
        ``sum(words[..., s, l] * weights[s, column, l])`` over steps and lanes, modulo 2**32.

    Raises
    ------
    TypeError
        If an array is not int8.
    ValueError
        If steps or lanes differ.
    """
    words, weights = np.asarray(words), np.asarray(weights)
    _require_int8(words=words, weights=weights)
    steps, columns, lanes = weights.shape
    if words.shape[-2:] != (steps, lanes):
        raise ValueError(f"words must end in the {steps} steps of {lanes} lanes of weights, not {words.shape[-2:]}")
    rows = words.reshape(-1, steps * lanes).astype(np.float64)
    matrix = weights.transpose(0, 2, 1).reshape(steps * lanes, columns).astype(np.float64)
    # Exact: 4095 steps of 64 lanes add up to less than 2**33, and float64 is exact below 2**53. BLAS makes it fast.
    return (rows @ matrix).astype(np.int64).astype(np.int32).reshape(*words.shape[:-2], columns)


def maximum(words: Int8) -> Int32:
    """Greatest byte of each lane.

    Parameters
    ----------
    words : int8[..., steps, lanes]

    Returns
    -------
    int32[..., lanes]
        ``max(words[..., s, :])`` over the steps.

    Raises
    ------
    TypeError
        If ``words`` is not int8.
    """
    words = np.asarray(words)
    _require_int8(words=words)
    return words.max(axis=-2).astype(np.int32)


def _require_int8(**arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        if array.dtype != np.int8:
            raise TypeError(f"{name} must be int8, not {array.dtype}")
