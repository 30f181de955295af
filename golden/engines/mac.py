"""The engine MAC: sums of products over lanes and steps, one for each column of the multiplier array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..numerics.convolution import matrix_product
from .engine import Engine, EngineConfig
from .floorplan import Floorplan
from .specification import (
    Command,
    EngineSpecification,
    Int8,
    Int32,
    Int64,
    Issue,
    TileWindows,
    any_steps,
    require_words,
)

if TYPE_CHECKING:
    from ..config import Config

MAC = Engine(0, "MAC", configuration=EngineConfig)


#: Cycles from a product's operands to the product.
MULTIPLIER_LATENCY = 3


def accumulate(words: Int8, weights: Int8) -> Int32:
    """Return the sums of products of one column.

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
    """Return the sums of products of all columns of the multiplier array.

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
    require_words(words, weights)
    return products(words, weights).astype(np.int32)


def products(words: npt.NDArray[np.signedinteger[Any]], weights: npt.NDArray[np.signedinteger[Any]]) -> Int64:
    """Return sums of products int64[..., columns] of words int[..., steps, lanes] and weights int[steps, columns,
    lanes]."""
    steps, columns, lanes = weights.shape
    rows = words.reshape(-1, steps * lanes).astype(np.float64)
    matrix = weights.transpose(0, 2, 1).reshape(steps * lanes, columns).astype(np.float64)
    # float64, for which BLAS is fast, is exact here: 4095 steps of 64 lanes, of 9 bits by 10, add up to less than
    # 2**36, and integers below 2**53 are not rounded.
    return matrix_product(rows, matrix).astype(np.int64).reshape(*words.shape[:-2], columns)


def _totals(windows: TileWindows) -> Int32:
    return mac(windows.words, windows.weights)


def _latency(config: Config, command: Command) -> int:
    """Return the cycles to multiply, add up, one for each level of the adder tree, accumulate, and reach the farthest
    column."""
    tree_levels, floorplan = config.array.lanes.bit_length() - 1, Floorplan.of(config)
    waits = floorplan.waits
    return waits.words + MULTIPLIER_LATENCY + tree_levels + 1 + waits.totals + max(floorplan.hops)


SPECIFICATION = EngineSpecification(
    engine=MAC,
    notes="Takes one weight word with every step (`weight_words` is `steps`).",
    results="array.columns",
    totals=_totals,
    latency=_latency,
    random_window=any_steps,
    issue=Issue(weight_words="steps"),
)
