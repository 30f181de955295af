"""A way to lower operators, with its entry in the list of supported operators."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ...graph import Layer

#: The attribute of a function with the clauses of :func:`refuses`.
_REFUSALS = "refusals"
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Runs(enum.Enum):
    """The way in which the accelerator executes operators."""

    LAYER = "a layer"
    TABLE = "a table, fused into the layer before it where no other layer reads that layer's result"
    COPY = "a copy, or none where what reads it finds the bytes where they are"
    IN_PLACE = "a view in place, or a copy where elements have to move"


@dataclass(frozen=True)
class OperatorLowering:
    """A way to lower operators.

    Attributes
    ----------
    lower : callable
        Adds the layers, or refuses the operators in the cases that :func:`refuses` states.
    operators : tuple of str
        Names of the operators in ONNX, or in the domains of ONNX Runtime, QONNX or Lutterfly.
    runs : Runs
    layers : tuple of type
        Kinds of layers that it may add.
    checks : tuple of callable
        Functions that refuse operators before lowering, also marked by :func:`refuses`.
    moves : bool
        Whether it accepts elements at any place to which layout operators have moved them.
    title : str
        The name of the group of operators; empty where the kind of the fragment is its name.
    """

    lower: Callable[..., object]
    operators: tuple[str, ...]
    runs: Runs
    layers: tuple[type[Layer], ...]
    checks: tuple[Callable[..., object], ...] = ()
    moves: bool = False
    title: str = ""


def refuses(*clauses: str) -> Callable[[_Function], _Function]:
    """State when a function refuses operators, for the list of supported operators.

    Parameters
    ----------
    clauses : str
        Each continues "Refused if". The function raises a ``ModelError`` or an ``UnsupportedError`` in these cases.
    """

    def mark(function: _Function) -> _Function:
        vars(function)[_REFUSALS] = clauses
        return function

    return mark


def refusals(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the clauses that :func:`refuses` stated for a function.

    Raises
    ------
    ValueError
        If there are none.
    """
    try:
        return cast(tuple[str, ...], vars(function)[_REFUSALS])
    except KeyError:
        raise ValueError(f"{function.__qualname__} must be marked with refuses(...), which says when") from None
