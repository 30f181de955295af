"""Tables and signs that are layers of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from ....golden.elements import BINARY_BITS
from ..channelwise import Channelwise
from ..finish import CodeFinish, composed
from ..tensor import Int8, Shape, Tensor


@dataclass(frozen=True, eq=False)
class Pointwise(Channelwise):
    """A table on every code, which is its finish; into a binary tensor there may be none. Nothing is clamped."""

    is_table: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        """What it has."""
        return "table"

    def describe(self, source: Tensor, target: Tensor) -> str:
        """Its table, and the signs of that; or signs alone."""
        if self.table is None:
            return "signs"
        taken = " + signs" if target.bits == BINARY_BITS else ""
        return f"{self.kind(source.shape, target.shape)}{taken}"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """What the table makes of its input."""
        return self.finished(values[self.input], tensors)

    def with_table(self, output: str, table: Int8 | None) -> Self:
        """There is nothing in between."""
        return dataclasses.replace(self, output=output, finish=CodeFinish(table=composed(self.table, table)))
