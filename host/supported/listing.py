"""The supported operators, put together: how each runs, and what the accelerator needs for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...golden.config import Config
from ...golden.engines.engine import Engine
from ..compiler import engines_of
from ..frontend.supported import Supported, domain_of
from ..graph import Layer
from ..quantize.rewriting import REWRITINGS

HEAD = ("operator", "domain", "runs as")
#: Operators that are not listed twice.
_MANY = 20
_REWRITTEN = "rewritten by `lutterfly quantize`"


def operator_rows(everything: Sequence[Supported]) -> list[tuple[str, str, str]]:
    """Every operator, and all ways in which it runs."""
    ways: dict[str, list[str]] = {}
    for one in everything:
        for operator in one.operators:
            ways.setdefault(operator, []).append(f"{one.title}: {one.runs.value.partition(',')[0]}")
    for each in REWRITINGS:
        for operator in each.operators:
            ways.setdefault(operator, [])
    rewritten = {operator for each in REWRITINGS for operator in each.operators}
    return [
        (operator, domain_of(operator), "; ".join([*ways[operator], *([_REWRITTEN] * (operator in rewritten))]))
        for operator in sorted(ways)
    ]


def named(one: Supported, everything: Sequence[Supported], mark: str = "") -> list[str]:
    """The operators of one way to lower them; those of an earlier way, where all of them are meant, by its title."""
    earlier = [other for other in everything[: everything.index(one)] if {*other.operators} <= {*one.operators}]
    most = max(earlier, key=lambda other: len(other.operators), default=None)
    if most is None or len(most.operators) < _MANY:
        return [f"{mark}{name}{mark}" for name in one.operators]
    rest = [name for name in one.operators if name not in most.operators]
    return [f"all of “{most.title}”", *(f"{mark}{name}{mark}" for name in rest)]


def ways(layers: Iterable[type[Layer]]) -> list[tuple[Engine, ...]]:
    """The engines of every way to execute layers of these kinds."""
    return list(dict.fromkeys(engines for layer in layers for engines in engines_of(layer)))


def needs(layers: Iterable[type[Layer]]) -> str:
    """The engines that layers need: those of one way or another."""
    named = [" and ".join(engine.name for engine in engines) for engines in ways(layers)]
    return f"the engine {' or '.join(named)}"


def lacks(layers: Iterable[type[Layer]], config: Config) -> bool:
    """Whether a configuration has no way to execute some of these layers."""
    return any(engines_of(layer) and not _runs(layer, config) for layer in layers)


def _runs(layer: type[Layer], config: Config) -> bool:
    return any({*engines} <= {*config.engines} for engines in engines_of(layer))
