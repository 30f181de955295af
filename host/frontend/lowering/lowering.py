"""A way to lower operators, with what the list of supported operators says of it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ...graph import Layer

#: The attribute of a function that holds what :func:`refuses` stated of it.
_REFUSALS = "refusals"
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Runs(enum.Enum):
    """How the accelerator executes operators."""

    LAYER = "a layer"
    TABLE = "a table, part of the layer in front where nothing else reads what that gives"
    COPY = "a copy, or none where what reads it finds the bytes where they are"
    IN_PLACE = "a view in place, or a copy where elements have to move"


@dataclass(frozen=True)
class Lowering:
    """A way to lower operators.

    Attributes
    ----------
    lower : callable
        Adds the layers, or refuses the operators: :func:`refuses` says when.
    operators : tuple of str
        By their names in ONNX, or in the domains that ONNX Runtime, QONNX or Lutterfly have for them.
    runs : Runs
    layers : tuple of type
        Kinds of layers that it adds, each of which a fragment may need.
    checks : tuple of callable
        Functions that refuse operators before these are lowered, marked by :func:`refuses` as well.
    moves : bool
        Whether it finds elements wherever layout operators have moved them.
    title : str
        What the operators are; empty where the kind of the fragment says it.
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
    """The clauses that :func:`refuses` stated of a function.

    Raises
    ------
    ValueError
        If there are none.
    """
    try:
        return cast(tuple[str, ...], vars(function)[_REFUSALS])
    except KeyError:
        raise ValueError(f"{function.__qualname__} must be marked with refuses(...), which says when") from None
