"""Lower operators on two activations: each is compared with ONNX Runtime on every pair of codes."""

from __future__ import annotations

from collections.abc import Callable

from ...building.build import Build
from ...fragments.fragments import Fragment, Kind
from ..combination import table_or
from .addition import lower_addition
from .extremes import lower_extreme
from .multiplication import lower_multiplication
from .subtraction import lower_subtraction

__all__ = ["OF_TWO"]

#: Where both are functions of one tensor, all but a sum are tables of that.
OF_TWO: dict[Kind, Callable[[Build, Fragment], None]] = {
    Kind.ADDITION: lower_addition,
    Kind.SUBTRACTION: table_or(lower_subtraction),
    Kind.MULTIPLICATION: table_or(lower_multiplication),
    Kind.EXTREME: table_or(lower_extreme),
}
