"""The page ``docs/supported.md``: the supported operators.

``python -m lutterfly.host.supported.page`` writes the page; a test fails where it differs from the code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...golden.presets import PRESETS
from ..frontend.supported import supported
from ..quantize.rewriting import REWRITINGS
from .listing import HEAD, lacks, named, needs, operator_rows

_PAGE = """\
# Supported operators

Generated from the code that enforces them by `python -m lutterfly.host.supported.page`; do not edit.
`lutterfly check --supported --config NAME` prints the same for one configuration, and
`lutterfly check MODEL` says of one network where each layer runs.

Operators are those of the graph that ONNX Runtime makes of the model and executes ([frontend.md](frontend.md)):
`DequantizeLinear`, `Conv`, `QuantizeLinear` are `QLinearConv` there. What is refused between two layers is named with
the reason and the remedy. At an end of the network the host runs it, as it runs every operator that is not listed.

"""


def page() -> str:
    """The text of ``docs/supported.md``."""
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
    folder = Path(__file__).parents[2] / "docs"
    if not folder.is_dir():
        print(f"docs must be a folder beside host, and {folder} is not one; run this in a checkout", file=sys.stderr)
        return 2
    (folder / "supported.md").write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
