"""List the supported operators: as text, as values for JSON, and as the page ``docs/supported.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..golden.config import Config
from ..golden.engines.engine import Engine
from ..golden.presets import PRESETS
from .compiler import engines_of
from .files.terminal import table_text
from .frontend.supported import Supported, domain_of, supported
from .graph import Layer
from .quantize.rewriting import REWRITINGS

# The supported operators: how each runs, and the engines that it needs.

HEAD = ("operator", "domain", "runs as")
#: Operators that are listed only once.
_MANY = 20
_REWRITTEN = "rewritten by `lutterfly quantize`"


def operator_rows(everything: Sequence[Supported]) -> list[tuple[str, str, str]]:
    """Return every operator, and all ways in which it runs."""
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
    """Return the operators of one way to lower them; all operators of an earlier way are named by its title."""
    earlier = [other for other in everything[: everything.index(one)] if {*other.operators} <= {*one.operators}]
    most = max(earlier, key=lambda other: len(other.operators), default=None)
    if most is None or len(most.operators) < _MANY:
        return [f"{mark}{name}{mark}" for name in one.operators]
    rest = [name for name in one.operators if name not in most.operators]
    return [f"all of “{most.title}”", *(f"{mark}{name}{mark}" for name in rest)]


def ways(layers: Iterable[type[Layer]]) -> list[tuple[Engine, ...]]:
    """Return the engines of every way to execute layers of these kinds."""
    return list(dict.fromkeys(engines for layer in layers for engines in engines_of(layer)))


def needs(layers: Iterable[type[Layer]]) -> str:
    """Describe the engines that layers need, for any of the ways."""
    named = [" and ".join(engine.name for engine in engines) for engines in ways(layers)]
    return f"the engine {' or '.join(named)}"


def lacks(layers: Iterable[type[Layer]], config: Config) -> bool:
    """Return whether a configuration has no way to execute some of these layers."""
    return any(engines_of(layer) and not _runs(layer, config) for layer in layers)


def _runs(layer: type[Layer], config: Config) -> bool:
    return any({*engines} <= {*config.engines} for engines in engines_of(layer))


# The page ``docs/supported.md``: the supported operators.
#
# ``python -m lutterfly.host.supported`` writes the page; a test fails where it differs from the code.

_PAGE = """\
# Supported operators

Generated from the code that enforces them by `python -m lutterfly.host.supported`; do not edit.
`lutterfly check --supported --config NAME` prints the same for one configuration, and
`lutterfly check MODEL` says of one network where each layer runs.

Operators are those of the graph that ONNX Runtime makes of the model and executes ([frontend.md](frontend.md)):
`DequantizeLinear`, `Conv`, `QuantizeLinear` are `QLinearConv` there. What is refused between two layers is named with
the reason and the remedy. At an end of the network the host runs it, as it runs every operator that is not listed.

"""


def page() -> str:
    """Return the text of ``docs/supported.md``."""
    everything = supported()
    parts = [_PAGE, "## Operators\n\n", _table([HEAD, *operator_rows(everything)])]
    for one in everything:
        names = ", ".join(named(one, everything, "`"))
        lacking = [name for name, config in PRESETS.items() if lacks(one.layers, config)]
        parts.append(f"\n## {_capital(one.title)}\n\n{names}\n\n* Runs as {one.runs.value}.\n")
        parts.append(f"* Needs {needs(one.layers)}.\n" if one.layers else "")
        parts.append(f"* Not with the presets {', '.join(f'`{name}`' for name in lacking)}.\n" if lacking else "")
        parts += [f"* Refused if {clause}.\n" for clause in one.refused]
    rows = [(", ".join(f"`{name}`" for name in each.operators), each.title, each.change) for each in REWRITINGS]
    head = ("operators", "becomes", "what changes")
    parts += ["\n## What `lutterfly quantize` rewrites in a float model\n\n", _table([head, *rows])]
    return "".join(parts)


def _table(rows: Iterable[Sequence[str]]) -> str:
    head, *others = rows
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *others))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def main() -> int:
    """Write the page into the ``docs`` folder of the checkout."""
    folder = Path(__file__).parents[1] / "docs"
    if not folder.is_dir():
        print(f"docs must be a folder beside host, and {folder} is not one; run this in a checkout", file=sys.stderr)
        return 2
    (folder / "supported.md").write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())


# The answer of `lutterfly check --supported`: as text, and as values for JSON.


def listed(config: Config) -> tuple[str, dict[str, Any]]:
    """List operators, how they run, the engines that they need, and those that the configuration has."""
    everything = supported()
    text = [table_text([HEAD, *operator_rows(everything)])]
    for one in everything:
        text += ["", f"{one.title}: {', '.join(named(one, everything))}", f"  runs as {one.runs.value}"]
        lacking = ", which this configuration lacks" if lacks(one.layers, config) else ""
        text += [f"  needs {needs(one.layers)}{lacking}"] if one.layers else []
        text += [f"  refused if {clause}" for clause in one.refused]
    text += ["", "rewritten by `lutterfly quantize`"]
    for each in REWRITINGS:
        text += [f"  {', '.join(each.operators)}: {each.title}", f"    {each.change}"]
    values = {
        "operators": [
            {
                "title": one.title,
                "operators": one.operators,
                "domains": [domain_of(operator) for operator in one.operators],
                "runs": one.runs.value,
                "engines": [[engine.name for engine in engines] for engines in ways(one.layers)],
                "runs_on_configuration": not lacks(one.layers, config),
                "refused": one.refused,
            }
            for one in everything
        ],
        "rewritings": [
            {"operators": each.operators, "title": each.title, "change": each.change} for each in REWRITINGS
        ],
    }
    return "\n".join(text), values
