"""List what the frontend supports, from the tables by which it dispatches and what their functions state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import defs

from ..graph import Layer
from ..model.functions.onnx_function import DOMAIN
from .elements import STEPS
from .fragments import Kind
from .integer_products import INTEGER_LOWERING
from .lowering.lowering import OperatorLowering, Runs, refusals
from .lowerings import FUNCTIONS, LOWERINGS
from .qonnx import QONNX_LOWERINGS
from .qonnx.network import DOMAINS


@dataclass(frozen=True)
class Supported:
    """A group of operators with one lowering.

    Attributes
    ----------
    title : str
    operators : tuple of str
    runs : Runs
    layers : tuple of type
        Kinds of layers that the operators may become.
    refused : tuple of str
        Cases of refusal: clauses, each of which follows "if".
    """

    title: str
    operators: tuple[str, ...]
    runs: Runs
    layers: tuple[type[Layer], ...]
    refused: tuple[str, ...]


def supported() -> list[Supported]:
    """Return all groups of operators that the frontend lowers."""
    return [_described(title, lowering) for title, lowering in _lowerings()]


def _lowerings() -> Iterator[tuple[str, OperatorLowering]]:
    for kind, lowering in LOWERINGS.items():
        if kind is not Kind.FUNCTION:
            yield lowering.title or kind.value, lowering
    for lowering in (*FUNCTIONS.values(), *STEPS, INTEGER_LOWERING, *QONNX_LOWERINGS):
        yield lowering.title, lowering


def _described(title: str, lowering: OperatorLowering) -> Supported:
    clauses = [clause for one in (*lowering.checks, lowering.lower) for clause in refusals(one)]
    return Supported(title, lowering.operators, lowering.runs, lowering.layers, tuple(dict.fromkeys(clauses)))


def domain_of(operator: str) -> str:
    """Return the domain of an operator, by its users' name."""
    if any(operator in one.operators for one in QONNX_LOWERINGS):
        return f"QONNX ({', '.join(DOMAINS)})"
    if any(operator in one.operators for one in FUNCTIONS.values()):
        return DOMAIN
    return "ONNX" if defs.has(operator) else "com.microsoft"
