"""Max pooling."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ....golden.numerics.convolution import pool_maximum
from ..channelwise import Channelwise
from ..finish import CodeFinish
from ..tensor import Int8, Shape, Tensor
from ..window import Window

#: What a border counts as.
_LEAST = -128


@dataclass(frozen=True, eq=False)
class MaxPool(Channelwise):
    """Maximum over a window; borders count as the least code. Nothing is clamped after it."""

    keeps_signs: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        """With its table or without."""
        return "max pooling"

    def details(self, source: Shape, target: Shape) -> str:
        """The geometry."""
        return f" {self.window.text}"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """The greatest code of each window."""
        window = self.window
        result = pool_maximum(
            values[self.input], kernel=window.kernel, stride=window.stride, dilation=window.dilation, pads=window.pads
        )
        return self.finished(result, tensors)

    def counts_border(self, code: int) -> bool:
        """What it would put there itself."""
        return code == _LEAST

    def separated(self, between: str) -> tuple[MaxPool, MaxPool]:
        """The maximum of a window is that of its rows' maxima."""
        kernel, stride, dilation = self.window.kernel, self.window.stride, self.window.dilation
        top, left, bottom, right = self.window.pads
        along = Window((1, kernel[1]), (1, stride[1]), (1, dilation[1]), (0, left, 0, right))
        down = Window((kernel[0], 1), (stride[0], 1), (dilation[0], 1), (top, 0, bottom, 0))
        name = f"{self.name} along columns"
        first = dataclasses.replace(self, name=name, output=between, window=along, finish=CodeFinish())
        return first, dataclasses.replace(self, inputs=(between,), window=down)
