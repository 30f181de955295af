"""What the frontend supports, read off the tables by which it dispatches and the docstrings of what refuses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from types import SimpleNamespace

from onnx import defs

from ..graph import Layer
from ..model.functions.onnx_function import DOMAIN
from .building.trunk import STEPS
from .fragments.fragments import Kind
from .fragments.integer import INTEGER_LOWERING
from .fragments.lowering import Lowering, Runs
from .lowering.function_layers import FUNCTIONS
from .lowerings import LOWERINGS
from .qonnx import QONNX_LOWERINGS
from .qonnx.reading.quantisers import DOMAINS

_CONSTANT = re.compile(r"``((?:\w+\.)*[A-Z][A-Z_]+)``")


@dataclass(frozen=True)
class Supported:
    """Operators that are lowered alike.

    Attributes
    ----------
    title : str
    operators : tuple of str
    runs : Runs
    layers : tuple of type
        Kinds of layers that they may become.
    refused : tuple of str
        When not: a clause each, which follows "if".
    """

    title: str
    operators: tuple[str, ...]
    runs: Runs
    layers: tuple[type[Layer], ...]
    refused: tuple[str, ...]


def supported() -> list[Supported]:
    """Everything that the frontend lowers."""
    return [_described(title, lowering) for title, lowering in _lowerings()]


def _lowerings() -> Iterator[tuple[str, Lowering]]:
    for kind, lowering in LOWERINGS.items():
        if kind is not Kind.FUNCTION:
            yield lowering.title or kind.value, lowering
    for lowering in (*FUNCTIONS.values(), *STEPS, INTEGER_LOWERING, *QONNX_LOWERINGS):
        yield lowering.title, lowering


def _described(title: str, lowering: Lowering) -> Supported:
    clauses = [clause for one in (*lowering.checks, lowering.lower) for clause in refusals(one)]
    return Supported(title, lowering.operators, lowering.runs, lowering.layers, tuple(dict.fromkeys(clauses)))


def refusals(function: Callable[..., object]) -> list[str]:
    """The clauses under Raises of a docstring, with the values of the constants that they name.

    Raises
    ------
    ValueError
        If there are none.
    """
    section = inspect.getdoc(function).partition("\nRaises\n------\n")[2].partition("\n\n")[0]
    text = " ".join(line.strip() for line in section.splitlines() if line.startswith("    "))
    text = text.partition(". ")[0]
    known = SimpleNamespace(**inspect.unwrap(function).__globals__)
    filled = _CONSTANT.sub(lambda found: f"{attrgetter(found[1])(known):,}", text)
    clauses = [re.sub(r"^[Ii]f ", "", one).rstrip(".") for one in re.split(r"; (?=if )", filled) if one]
    if not clauses:
        raise ValueError(f"{function.__qualname__} must say under Raises when it refuses")
    return clauses


def domain_of(operator: str) -> str:
    """The domain that an operator belongs to, as its users call it."""
    if any(operator in one.operators for one in QONNX_LOWERINGS):
        return f"QONNX ({', '.join(DOMAINS)})"
    if any(operator in one.operators for one in FUNCTIONS.values()):
        return DOMAIN
    return "ONNX" if defs.has(operator) else "com.microsoft"
