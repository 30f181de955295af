"""Multipliers of the array that a component under test borrows: products of its factors, some cycles later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lutterfly.golden.numerics.fpc import VALUE_BITS
from lutterfly.hdl.parts.device import MULTIPLIER_LATENCY

Int8 = npt.NDArray[np.int8]
_PRODUCT_BITS = VALUE_BITS + 8


class BorrowedMultipliers:
    """Multiply factors by weights that belong to words.

    Parameters
    ----------
    lanes : int
    weight_times : sequence of int
        Of each column, cycles from a word to its factors.
    """

    def __init__(self, lanes: int, weight_times: Sequence[int]):
        self.lanes = lanes
        self.weight_times = weight_times
        idle = np.zeros((len(weight_times), lanes), np.int8)
        self._weights = [idle] * (max(weight_times) + 1)
        self._products = [0] * MULTIPLIER_LATENCY

    def products(self, weights: Int8) -> int:
        """The products that a cycle begins with; ``weights``, int8[columns, lanes], are those of its word."""
        self._weights = [weights, *self._weights[:-1]]
        return self._products.pop(0)

    def take(self, factors: int) -> None:
        """The factors of the same cycle, as they come from the component."""
        shape = (len(self.weight_times), self.lanes)
        values = np.frombuffer(factors.to_bytes(VALUE_BITS // 8 * shape[0] * shape[1], "little"), np.int16)
        weights = np.stack([self._weights[time][column] for column, time in enumerate(self.weight_times)])
        products = values.reshape(shape).astype(np.int64) * weights
        bits = ((int(product) & (1 << _PRODUCT_BITS) - 1) for product in products.reshape(-1))
        self._products.append(sum(product << _PRODUCT_BITS * number for number, product in enumerate(bits)))
