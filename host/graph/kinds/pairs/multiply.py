"""Products of two tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from .....golden.numerics.multiplication import ProductScaling, multiply
from ...channelwise import Channelwise
from ...tensor import Int8, Shape, Tensor
from ...window import Window


@dataclass(frozen=True, eq=False)
class Multiply(Channelwise):
    """Product of two tensors of one shape, or of a map and a vector over its channels, requantised.

    Attributes
    ----------
    zero_points : tuple of int
        Of both inputs.
    scaling : ProductScaling
        What becomes of the products of codes less their zero points.
    spread : tuple of int
        Rows and columns of the map for which the second input has one pixel; (1, 1) where it has a pixel for each.
    """

    zero_points: tuple[int, int]
    scaling: ProductScaling
    spread: tuple[int, int] = (1, 1)

    @property
    def is_by_vector(self) -> bool:
        """Whether the second input is a vector."""
        return self.spread != (1, 1)

    def kind(self, source: Shape, target: Shape) -> str:
        """Of two tensors."""
        return "product by vector" if self.is_by_vector else "product"

    def window_of(self, place: int) -> Window:
        """All pixels of the map have the vector's only one."""
        return Window((1, 1), up=self.spread) if place else self.window

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """The product of the codes less their zero points."""
        first, second = (values[name] for name in self.inputs)
        limits = self.finish.low, self.finish.high
        result = multiply(first, second, self.zero_points, self.scaling, low=limits[0], high=limits[1])
        return self.finished(result, tensors)

    def of_rows(self, rows: range, height: int) -> Multiply:
        """The vector is for as many rows as there are."""
        spread = (len(rows), self.spread[1]) if self.is_by_vector else self.spread
        return dataclasses.replace(self, spread=spread)
