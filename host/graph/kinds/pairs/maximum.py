"""The greater of two tensors' elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...channelwise import Channelwise
from ...tensor import Int8, Shape, Tensor


@dataclass(frozen=True, eq=False)
class Maximum(Channelwise):
    """The greater code of two tensors of one shape, whose codes stand for the same numbers."""

    def kind(self, source: Shape, target: Shape) -> str:
        """Of two tensors."""
        return "maximum"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Element by element."""
        first, second = (values[name] for name in self.inputs)
        return self.finished(np.maximum(first, second), tensors)
