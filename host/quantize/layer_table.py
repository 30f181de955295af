"""Float and int8 layer by layer, as a table and as values."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from .layer_errors import LayerError, worst

_WIDTH = 160


def layer_table(errors: Sequence[LayerError]) -> str:
    """The table, and which layer loses most."""
    # Only this answer needs it.
    from rich import box, console, table  # noqa: PLC0415

    drawn = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    drawn.add_column("layer", overflow="fold")
    for title in ("dB", "lost here"):
        drawn.add_column(title, justify="right", no_wrap=True)
    for error in errors:
        lost = f"{error.lost:.1f}" if error.inputs_noise is not None else ""
        shown = f"{error.noise:.1f}" if math.isfinite(error.noise) else "exact"
        drawn.add_row(error.label.replace("[", r"\["), shown, lost)
    stream = io.StringIO()
    console.Console(file=stream, width=_WIDTH).print(drawn)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    least = worst(errors)
    return "\n".join(
        [
            "signal-to-quantisation-noise ratio of each tensor, against the float network:",
            *filter(None, lines),
            f"{least.label} loses most: {least.lost:.1f} dB",
        ]
    )


def layer_values(errors: Sequence[LayerError]) -> list[dict[str, Any]]:
    """The same for scripts; no number where there is no difference."""

    def number(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else round(value, 3)

    return [
        {"layer": error.label, "tensor": error.tensor, "db": number(error.noise), "lost_db": number(error.lost)}
        for error in errors
    ]
