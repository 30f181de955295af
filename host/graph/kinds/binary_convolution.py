"""Convolutions of binary tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ....golden.numerics.binary import convolve_binary
from ....golden.numerics.convolution import convolve
from ....golden.numerics.requant import pack_parameters, requantise
from ..channels import ChannelRule
from ..tensor import Int8, Shape, Tensor
from .convolution import Convolution


@dataclass(frozen=True, eq=False)
class BinaryConvolution(Convolution):
    """Convolution of a binary tensor with weights that are +1 and -1.

    Inner products are requantised like those of others: without a scale, a negative bias is a threshold.

    Attributes
    ----------
    pad : int
        What the border counts as: +1, -1, or 0 for nothing.
    """

    pad: int = field(kw_only=True)

    def kind(self, source: Shape, target: Shape) -> str:
        """As a convolution, by its groups and its window."""
        return f"binary {super().kind(source, target)}"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Agreeing bits; where the border is no binary value, products."""
        window, codes = self.window, values[self.input]
        geometry = {"stride": window.stride, "dilation": window.dilation, "pads": window.pads}
        if self.pad:
            sums = convolve_binary(codes, self.weights, pad_value=self.pad, **geometry)
        else:
            # What is no binary value counts as nothing: as the sum of products has it.
            sums = convolve(codes, self.weights, np.zeros_like(self.bias), zero_point=0, **geometry)
        parameters, finish = pack_parameters(self.bias, self.multiplier), self.finish
        result = requantise(sums, parameters, tensors[self.inner].zero_point, finish.low, finish.high)
        return self.finished(result, tensors)

    def counts_border(self, code: int) -> bool:
        """Its border is no code."""
        return False

    @property
    def binary_border(self) -> int:
        """What the border counts as."""
        return self.pad

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Channels are bits of bytes, and no connection is off."""
        return ChannelRule.FIXED
