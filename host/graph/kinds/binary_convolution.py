"""Convolutions of binary tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
        """Products of +1 and -1: the bytes of agreeing bits, see ``golden/numerics/binary.py``, in less time.

        What is no binary value, as a border of 0, counts as nothing.
        """
        return self._evaluated(values, tensors, zero_point=0, border=self.pad)

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
