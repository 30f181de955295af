"""What is computed by windows of weights on the multiplier array, or on its chained columns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....golden.elements import CODE_BITS
from ....golden.numerics.convolution import Int32, Kernels, Totals
from ....golden.numerics.requant import requantise_float
from ..channels import ChannelRule
from ..finished import Finished
from ..tensor import Int8, Tensor


class Product(Finished):
    """Sums of products in windows, with a bias, requantised.

    A kind of product has fields or properties of these names.

    Attributes
    ----------
    weights : int8[output channels, kernel rows, kernel columns, input channels / groups]
    bias : int32[output channels]
    multiplier : float32[output channels]
        From sum to code.
    groups : int
        Output channel o reads the input channels of group ``o // (output channels / groups)`` alone: with as many
        groups as input channels the product is depthwise.
    """

    weights: Int8
    bias: Int32
    multiplier: npt.NDArray[np.float32]
    groups: int

    @cached_property
    def _kernels(self) -> dict[int, Kernels]:
        """By the zero point of the input: as many as are needed."""
        return {}

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """The sums, requantised."""
        zero_point = tensors[self.input].zero_point
        return self._evaluated(values, tensors, zero_point=zero_point, border=zero_point)

    def _evaluated(
        self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor], *, zero_point: int, border: int
    ) -> dict[str, Int8]:
        """The sums of codes less a zero point, over a border of another code, requantised."""
        if zero_point not in self._kernels:
            self._kernels[zero_point] = Kernels(self.weights, self.bias, self.groups).without(zero_point)
        codes, window = values[self.input], self.window
        sums = self._kernels[zero_point].totals(
            codes, border=border, stride=window.stride, dilation=window.dilation, pads=window.pads
        )
        return self.finished(self.requantised(sums, codes.shape[:2], tensors[self.inner].zero_point), tensors)

    def requantised(self, sums: Totals, size: tuple[int, int], zero_point: int) -> Int8:
        """Codes with a zero point of sums [rows, columns, outputs] over an input of ``size`` rows and columns."""
        return self.scaled(sums, self.multiplier, zero_point)

    def scaled(self, sums: Totals, multiplier: npt.NDArray[np.float32], zero_point: int) -> Int8:
        """Codes of sums that have their bias."""
        return requantise_float(sums, multiplier, zero_point, self.finish.low, self.finish.high)

    def counts_border(self, code: int) -> bool:
        """The zero point, whatever it is: it adds nothing to a sum."""
        return True

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Depthwise ones keep channels apart, and those of one group have weights that can move, both between codes."""
        if self.groups == source.shape[2] == len(self.weights) > 1:
            return ChannelRule.TIED
        is_free = self.groups == 1 and source.bits == target.bits == CODE_BITS
        return ChannelRule.FREE if is_free else ChannelRule.FIXED

    @property
    def connections(self) -> npt.NDArray[np.bool_]:
        """Where some weight is not zero."""
        return self.weights.any(axis=(1, 2))
