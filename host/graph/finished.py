"""Layers after which there may be a clamp and a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from ...golden.elements import BINARY_BITS
from ...golden.numerics.binary import signs
from .finish import CodeFinish, looked_up
from .layer import Layer
from .tensor import Int8, Tensor


@dataclass(frozen=True, eq=False)
class Finished(Layer):
    """A layer with a finish, which a table after it may become part of."""

    finish: CodeFinish = field(default=CodeFinish(), kw_only=True)

    def describe(self, source: Tensor, target: Tensor) -> str:
        """With its table, and signs, as far as it has them."""
        table = "" if self.table is None else " + table"
        taken = " + signs" if target.bits == BINARY_BITS and not self.keeps_signs else ""
        return f"{super().describe(source, target)}{table}{taken}"

    def with_table(self, output: str, table: Int8 | None) -> Self:
        """A table after a table is one table."""
        return dataclasses.replace(self, output=output, finish=self.finish.after(self.output, table))

    def finished(self, codes: Int8, tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """What it gives, by what it computes: int8[height, width, channels] of both by their names."""
        output = looked_up(codes, self.table)
        if tensors[self.output].bits == BINARY_BITS:
            output = signs(output)
        return {self.inner: codes, self.output: output}
