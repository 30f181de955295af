"""What the engines compute from the words of a window."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .isa import ADD_ENTRY_BITS

Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


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


def depthwise(words: Int8, weights: Int8, *, ends: Int64, count: int) -> Int32:
    """Sums of products of each lane: the columns of the multiplier array chained.

    Parameters
    ----------
    words : int8[..., steps, lanes]
        A stream of words, one for each step; column j takes at every step the word of ``j * rows`` steps before.
    weights : int8[rows, columns, lanes]
        The last ``rows`` steps of a window take one each, those before the first.
    ends : int64[windows]
        Last step of each window.
    count : int
        Steps that each window adds up; before the first of them the stream holds at least the words that the last
        column takes.

    Returns
    -------
    int32[..., windows, lanes]
        Modulo 2**32.

    Raises
    ------
    TypeError
        If an array is not int8.
    ValueError
        If a window would need words from before the stream, or lanes differ.
    """
    words, weights = np.asarray(words), np.asarray(weights)
    _require_int8(words=words, weights=weights)
    rows, columns, lanes = weights.shape
    if words.shape[-1] != lanes:
        raise ValueError(f"words must have the {lanes} lanes of weights, not {words.shape[-1]}")
    steps = np.asarray(ends)[:, None] - count + 1 + np.arange(count)
    if steps.min() < (columns - 1) * rows:
        raise ValueError(f"ends must be at least {(columns - 1) * rows + count - 1}, not {min(ends)}")
    row = np.maximum(np.arange(count) - (count - rows), 0)
    total = np.zeros((*words.shape[:-2], len(steps), lanes), np.int64)
    for column in range(columns):
        if weights[:, column].any():
            taken = words[..., steps - column * rows, :]
            total += np.einsum("...wsl,sl->...wl", taken, weights[row, column], dtype=np.int64)
    return total.astype(np.int32)


def add(words: Int8, tables: Int64) -> Int64:
    """Sums of two table entries for each lane.

    Parameters
    ----------
    words : int8[..., 2, lanes]
        The operands' codes.
    tables : int64[2, 256]
        One table for each operand, indexed by the code plus 128; of each entry the low ``ADD_ENTRY_BITS`` count, two's
        complement.

    Returns
    -------
    int64[..., lanes]

    Raises
    ------
    TypeError
        If ``words`` is not int8 or ``tables`` not int64.
    ValueError
        If there are not two operands.
    """
    words, tables = np.asarray(words), np.asarray(tables)
    _require_int8(words=words)
    if tables.dtype != np.int64:
        raise TypeError(f"tables must be int64, not {tables.dtype}")
    if words.shape[-2] != 2:
        raise ValueError(f"words must be those of 2 operands, not {words.shape[-2]}")
    unused = 64 - ADD_ENTRY_BITS
    first, second = tables << unused >> unused
    index = words.astype(np.int64) + 128
    return first[index[..., 0, :]] + second[index[..., 1, :]]


def _require_int8(**arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        if array.dtype != np.int8:
            raise TypeError(f"{name} must be int8, not {array.dtype}")
