"""What becomes of a layer's codes after what it computes: a clamp and a table, or signs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ...golden.transfer.tables import apply_table
from .tensor import Int8


@dataclass(frozen=True, eq=False)
class CodeFinish:
    """What becomes of codes. (How values become codes is another matter, see
    :class:`~lutterfly.golden.numerics.fpc.Finish`.)

    Attributes
    ----------
    low, high : int
        Clamp of a requantised code, after the zero point (fused Relu or Clip).
    table : int8[256] or None
        What the clamped code is looked up in, indexed by the code plus 128.
    inner : str
        Name of the graph's tensor between clamp and table, or signs; empty where there is neither.
    """

    low: int = -128
    high: int = 127
    table: Int8 | None = None
    inner: str = ""

    def after(self, inner: str, table: Int8 | None) -> CodeFinish:
        """The finish with a table, or none, after what is the tensor ``inner`` so far."""
        return dataclasses.replace(self, table=composed(self.table, table), inner=self.inner or inner)


def composed(first: Int8 | None, second: Int8 | None) -> Int8 | None:
    """A table and another one after it, as one; None where neither is one."""
    return second if first is None else looked_up(first, second)


def looked_up(codes: Int8, table: Int8 | None) -> Int8:
    """What a table makes of codes; the codes where there is none."""
    return codes if table is None else apply_table(codes, table)
