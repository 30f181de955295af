"""Sums of two tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .....golden.numerics.addition import add
from ...channelwise import Channelwise
from ...tensor import Int8, Shape, Tensor


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
        """Of two tensors."""
        return "addition"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """The sum of both entries."""
        first, second = (values[name] for name in self.inputs)
        result = add(
            first,
            second,
            self.first,
            self.second,
            self.fraction,
            offset=self.offset,
            low=self.finish.low,
            high=self.finish.high,
        )
        return self.finished(result, tensors)
