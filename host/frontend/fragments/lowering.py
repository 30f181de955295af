"""A way to lower operators, with what the list of supported operators says of it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from ...graph import Layer


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
        Its docstring says under Raises what is refused; a name of a constant in double backquotes stands for its value.
    operators : tuple of str
        By their names in ONNX, or in the domains that ONNX Runtime, QONNX or Lutterfly have for them.
    runs : Runs
    layers : tuple of type
        Kinds of layers that it adds, each of which a fragment may need.
    checks : tuple of callable
        What refuses operators before they are lowered; their docstrings count as well.
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
