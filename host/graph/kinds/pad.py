"""Borders around maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..tensor import Shape
from .unit_product import UnitProduct


@dataclass(frozen=True, eq=False)
class Pad(UnitProduct):
    """A border of the zero point, as wide as ``window.pads``: the sums of windows of one element."""

    adds_border: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        """No convolution of the network's."""
        return "border"
