"""What `lutterfly table` answers: the table's facts, and some of its codes."""

from __future__ import annotations

import io

import numpy as np

from ...golden.transfer.schemes import name_of
from .facts import TableFacts

#: Codes that are shown of a table, evenly spaced, besides the last.
_ROWS = 32
_WIDTH = 100


def summary(facts: TableFacts) -> str:
    """The facts, in lines."""
    rom, values = facts.rom, facts.values()
    stored = f"half of them stored ({rom.stored_entries:,})" if rom.half else "all of them stored"
    counts = ", ".join(f"{count} of {family}" for family, count in values["block_rams"].items())
    memory = f"block RAM ({counts})" if rom.is_block else "fabric"
    error, steps, at = (values[f"greatest_error{end}"] for end in ("", "_steps", "_at"))
    return "\n".join(
        [
            f"{facts.operator}: {name_of(facts.source)} to {name_of(facts.target)}",
            f"{len(rom.table):,} entries, {stored}, in {memory}; latency {rom.latency} cycles",
            f"greatest error {error:.4g} ({steps:.3g} steps of {facts.target.scale:g}) for the input {at:g}",
            f"{values['saturated']:,} results lie beyond the codes and saturate",
        ]
    )


def shown_codes(facts: TableFacts) -> str:
    """Some of the codes as a table, the first and the last among them."""
    # Only this answer needs it.
    from rich import box, console, table  # noqa: PLC0415

    size = facts.table.size
    places = sorted({*range(0, size, -(-size // _ROWS)), size - 1})
    values, errors = facts.target.dequantise(facts.table), facts.errors / facts.target.scale
    drawn = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("code", "input", "operator", "result's code", "stands for", "error in steps"):
        drawn.add_column(title, justify="right")
    for place in places:
        drawn.add_row(
            str(facts.source.codes[place]),
            *(f"{array[place]:.6g}" for array in (facts.inputs, facts.results)),
            str(facts.table[place]),
            *(f"{np.asarray(array)[place]:.6g}" for array in (values, errors)),
        )
    stream = io.StringIO()
    console.Console(file=stream, width=_WIDTH).print(drawn)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    note = [f"{len(places)} of {size:,} codes"] if len(places) < size else []
    return "\n".join([*filter(None, lines), *note])
