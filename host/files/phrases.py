"""Phrases: how figures, shapes and tables are put."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...golden.program.program import Program


def macs_of(program: Program) -> int:
    """Multiply-accumulates of an inference."""
    return sum(layer.macs for layer in program.layers)


def prediction_text(program: Program, multipliers: int) -> str:
    """What is predicted of an inference."""
    utilisation = program.utilisation(program.predicted_cycles, multipliers)
    return (
        f"{program.predicted_cycles:,} cycles predicted for {inference_text(program)}, "
        f"{macs_of(program):,} multiply-accumulates, {utilisation:.1%} of {multipliers} multipliers busy"
    )


def inference_text(program: Program) -> str:
    """What is run at a time."""
    return f"an inference of {program.batch} samples" if program.batch > 1 else "an inference"


def tables_text(functions: int, tables: int) -> str:
    """How many places need a transfer table, and how many tables there are for them."""
    shown = f"{functions} transfer function{'s' * (functions != 1)}"
    if tables < functions:
        return f"{shown} share {tables} table{'s' * (tables != 1)}"
    return f"{shown} with {'a table' if functions == 1 else 'a table each'}"


def elements_text(array: np.ndarray) -> str:
    """The elements of an array, or some of them."""
    return "\n  " + np.array2string(array, threshold=40, edgeitems=4, max_line_width=100, prefix="  ")


def shape_text(shape: Sequence[int]) -> str:
    """A shape, as 3x4."""
    return "x".join(map(str, shape))


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned; those that hold numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numeric = [
        all(row[column].replace(",", "").strip("-").isdigit() or row[column] in ("", "-") for row in rows[1:])
        and len(rows) > 1
        for column in range(len(rows[0]))
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    )
