"""The depthwise product of unit weights: what an average and a border have in common."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from ....golden.numerics.convolution import Int32
from ..tensor import Int8, Tensor
from .product import Product


@dataclass(frozen=True, eq=False)
class UnitProduct(Product):
    """The sum of each channel's own elements, scaled.

    Attributes
    ----------
    channels : int
    scale : float32
        From sum to code, of all channels.
    offset : int
        What is added to each sum: 0 as in the model, where the input's zero point is not yet folded in.
    """

    channels: int = field(kw_only=True)
    scale: np.float32 = field(default=np.float32(1), kw_only=True)
    offset: int = field(default=0, kw_only=True)

    @property
    def weights(self) -> Int8:
        """int8[channels, kernel rows, kernel columns, 1], all 1."""
        return np.ones((self.channels, *self.window.kernel, 1), np.int8)

    @property
    def bias(self) -> Int32:
        """The offset for each channel, int32[channels]."""
        return np.full(self.channels, self.offset, np.int32)

    @property
    def multiplier(self) -> npt.NDArray[np.float32]:
        """The scale for each channel, float32[channels]."""
        return np.full(self.channels, self.scale, np.float32)

    @property
    def groups(self) -> int:
        """One for each channel."""
        return self.channels

    def normalised(self, zero_point: int) -> Self:
        """Every element of a window brings the zero point once."""
        return dataclasses.replace(self, offset=self.offset - zero_point * math.prod(self.window.kernel))

    def of_channels(self, channels: range, source: Tensor) -> tuple[Self, range]:
        """Every channel for itself."""
        return dataclasses.replace(self, channels=len(channels)), channels
