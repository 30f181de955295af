"""Average pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ....golden.numerics.convolution import Totals
from ..tensor import Int8, Shape
from .unit_product import UnitProduct


@dataclass(frozen=True, eq=False)
class AveragePool(UnitProduct):
    """Average pooling: sums of windows, scaled by ``f32(xs / f32(ys * n))``, n being the elements of a window.

    Attributes
    ----------
    multipliers : dict of int to float32
        Where a border does not count: the scale by the elements of a window that lie in the input, see
        :meth:`.window.Window.counts`. Empty where all windows have one.
    """

    multipliers: Mapping[int, np.float32] = field(default_factory=dict, kw_only=True)

    def kind(self, source: Shape, target: Shape) -> str:
        """No convolution of the network's."""
        return "average pooling"

    def details(self, source: Shape, target: Shape) -> str:
        """The geometry."""
        return f" {self.window.text}"

    def requantised(self, sums: Totals, size: tuple[int, int], zero_point: int) -> Int8:
        """By the elements in the input, where a border does not count.

        A border holds the zero point, which adds nothing to a sum: only what that is divided by differs.
        """
        if not self.multipliers:
            return super().requantised(sums, size, zero_point)
        counts, result = self.window.counts(*size), np.empty(sums.shape, np.int8)
        for count, multiplier in self.multipliers.items():
            members = counts == count
            result[members] = self.scaled(sums[members], np.full(self.channels, multiplier), zero_point)
        return result

    def counts_border(self, code: int) -> bool:
        """Unless its border does not count."""
        return not self.multipliers
