"""Layers that work on elements: tables and signs, max pooling, and sums, maxima and products of two tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from ...golden.elements import BINARY_BITS
from ...golden.numerics.addition import PAIRS, add
from ...golden.numerics.convolution import pool_maximum
from ...golden.numerics.multiplication import ProductScaling, multiply
from ...golden.transfer.tables import apply_pair_table
from .geometry import CodeEpilogue, Int8, Shape, Tensor, Window, composed
from .layer import Channelwise


@dataclass(frozen=True, eq=False)
class Pointwise(Channelwise):
    """A table on every code, which is the layer's epilogue; into a binary tensor there may be none. Nothing is
    clamped."""

    is_table: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        return "table"

    def describe(self, source: Tensor, target: Tensor) -> str:
        if self.table is None:
            return "signs"
        taken = " + signs" if target.bits == BINARY_BITS else ""
        return f"{self.kind(source.shape, target.shape)}{taken}"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        return self.finished(values[self.input], tensors)

    def with_table(self, output: str, table: Int8 | None) -> Self:
        return dataclasses.replace(self, output=output, epilogue=CodeEpilogue(table=composed(self.table, table)))


# Max pooling.

#: The code of padding.
_LEAST = -128


@dataclass(frozen=True, eq=False)
class MaxPool(Channelwise):
    """Maximum over a window; padding counts as the least code. Nothing is clamped after it."""

    keeps_signs: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        return "max pooling"

    def details(self, source: Shape, target: Shape) -> str:
        return f" {self.window.text}"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        window = self.window
        result = pool_maximum(
            values[self.input], kernel=window.kernel, stride=window.stride, dilation=window.dilation, pads=window.pads
        )
        return self.finished(result, tensors)

    def counts_border(self, code: int) -> bool:
        """A border of the least code equals the layer's own padding."""
        return code == _LEAST

    def separated(self, between: str) -> tuple[MaxPool, MaxPool]:
        """The maximum of a window is the maximum of its rows' maxima."""
        kernel, stride, dilation = self.window.kernel, self.window.stride, self.window.dilation
        top, left, bottom, right = self.window.pads
        along = Window((1, kernel[1]), (1, stride[1]), (1, dilation[1]), (0, left, 0, right))
        down = Window((kernel[0], 1), (stride[0], 1), (dilation[0], 1), (top, 0, bottom, 0))
        name = f"{self.name} along columns"
        first = dataclasses.replace(self, name=name, output=between, window=along, epilogue=CodeEpilogue())
        return first, dataclasses.replace(self, inputs=(between,), window=down)


# Sums of two tensors.


@dataclass(frozen=True, eq=False)
class Add(Channelwise):
    """Sum of two tensors of one shape, requantised.

    The result for the codes a of the first input and b of the second is
    ``clip(rint(f32((first[a + 128] + second[b + 128]) * 2**-fraction)) + offset, low, high)``, halves to even.

    Attributes
    ----------
    first, second : int64[256]
        Fixed point, signed, of at most 36 bits; all zero points are inside ``second``.
    fraction : int
        Bits after the binary point, at most 32.
    offset : int
        -128 where the tensors of the model are uint8, else 0: float32 rounds the uint8 element, not the code.
    """

    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    fraction: int
    offset: int = 0

    def kind(self, source: Shape, target: Shape) -> str:
        return "addition"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        first, second = (values[name] for name in self.inputs)
        return self.finished(apply_pair_table(first, second, self._of_pairs), tensors)

    @cached_property
    def _of_pairs(self) -> Int8:
        """int8[256, 256]: of every pair of codes."""
        low, high = self.epilogue.low, self.epilogue.high
        return add(*PAIRS, self.first, self.second, self.fraction, offset=self.offset, low=low, high=high)


# Maxima of two tensors, element by element.


@dataclass(frozen=True, eq=False)
class ElementwiseMaximum(Channelwise):
    """The greater code of two tensors of one shape, whose codes stand for the same numbers."""

    def kind(self, source: Shape, target: Shape) -> str:
        return "maximum"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        first, second = (values[name] for name in self.inputs)
        return self.finished(np.maximum(first, second), tensors)


# Products of two tensors.


@dataclass(frozen=True, eq=False)
class ElementwiseProduct(Channelwise):
    """Product of two tensors of one shape, or of a map and a vector over its channels, requantised.

    Attributes
    ----------
    zero_points : tuple of int
        The zero points of both inputs.
    scaling : ProductScaling
        The requantisation of the products of codes less their zero points.
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
        return "product by vector" if self.is_by_vector else "product"

    def window_of(self, place: int) -> Window:
        """Every pixel of the map uses the vector's only one."""
        return Window((1, 1), up=self.spread) if place else self.window

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        first, second = (values[name] for name in self.inputs)
        return self.finished(apply_pair_table(first, second, self._of_pairs), tensors)

    @cached_property
    def _of_pairs(self) -> Int8:
        """int8[256, 256]: of every pair of codes."""
        low, high = self.epilogue.low, self.epilogue.high
        return multiply(*PAIRS, self.zero_points, self.scaling, low=low, high=high)

    def of_rows(self, rows: range, height: int) -> ElementwiseProduct:
        spread = (len(rows), self.spread[1]) if self.is_by_vector else self.spread
        return dataclasses.replace(self, spread=spread)
