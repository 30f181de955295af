"""Matrix products of two activations: the weights of a convolution with a kernel of 1x1 are known at run time only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ....golden.numerics.convolution import convolve
from ....golden.numerics.requant import requantise_float
from ..finished import Finished
from ..tensor import Int8, Shape, Tensor


@dataclass(frozen=True, eq=False)
class MatrixProduct(Finished):
    """Every pixel of the first input by a matrix whose elements are those of the second, requantised.

    Both have the zero point 0: what another one would add to a sum depends on the codes.

    Attributes
    ----------
    multiplier : float32
        ``f32(f32(xs * ws) / ys)``.
    order : int64[outputs, inputs]
        Which element of the second input each of the matrix is, counted from the first on.
    """

    weight_place: ClassVar[int] = 1

    multiplier: np.float32
    order: npt.NDArray[np.int64]

    def kind(self, source: Shape, target: Shape) -> str:
        """Of two activations."""
        return "matrix product"

    def details(self, source: Shape, target: Shape) -> str:
        """The matrix."""
        outputs, inputs = self.order.shape
        return f" by {outputs}x{inputs}"

    def macs(self, target: Shape) -> int:
        """One for each element of the matrix and each pixel."""
        return target[0] * target[1] * self.order.size

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """The sums, requantised."""
        matrix = values[self.inputs[1]].reshape(-1)[self.order]
        bias = np.zeros(len(matrix), np.int32)
        sums = convolve(values[self.input], matrix[:, None, None], bias, zero_point=0)
        zero_point = tensors[self.inner].zero_point
        codes = requantise_float(sums, self.multiplier, zero_point, self.finish.low, self.finish.high)
        return self.finished(codes, tensors)
