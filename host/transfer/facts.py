"""What there is to say of a transfer table: its codes, how far they are from the operator, and what its ROM takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from amaranth.hdl import Shape

from ...golden.transfer.schemes import Codes, Float32, Scheme, name_of
from ...golden.transfer.tables import Operator, transfer_table
from ...hdl.parts.table_rom import TableRom
from .block_rams import block_rams


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A transfer table and its ROM.

    Attributes
    ----------
    operator : str
        For people.
    source, target : Scheme
    inputs, results : float32[codes]
        What the source's codes stand for, and what the operator gives.
    table : target.dtype[codes]
    rom : TableRom
    """

    operator: str
    source: Scheme
    target: Scheme
    inputs: Float32
    results: Float32
    table: Codes
    rom: TableRom

    @property
    def errors(self) -> np.ndarray:
        """What the table's codes stand for, less the operator's result: float64[codes]."""
        return self.target.dequantise(self.table).astype(np.float64) - self.results

    @property
    def saturated(self) -> int:
        """Codes whose result lies more than half a step beyond the target's codes."""
        target = self.target
        low, high = ((code - target.zero_point) * target.scale for code in (target.least - 0.5, target.greatest + 0.5))
        # Compared exactly: float64 holds 18 bits times the 24 of a scale.
        results = self.results.astype(np.float64)
        return int(np.sum((results < low) | (results > high)))

    def values(self) -> dict[str, Any]:
        """For scripts."""
        errors = self.errors
        at = int(np.argmax(np.abs(errors)))
        return {
            "operator": self.operator,
            "from": name_of(self.source),
            "to": name_of(self.target),
            "entries": len(self.rom.table),
            "stored_entries": self.rom.stored_entries,
            "is_half": self.rom.half is not None,
            "is_block_ram": self.rom.is_block,
            "block_rams": block_rams(self.rom),
            "latency": self.rom.latency,
            "greatest_error": abs(float(errors[at])),
            "greatest_error_steps": abs(float(errors[at])) / self.target.scale,
            "greatest_error_at": float(self.inputs[at]),
            "saturated": self.saturated,
        }


def tabulate_chain(name: str, operator: Operator, source: Scheme, target: Scheme) -> TableFacts:
    """Compute a table, and the ROM for it.

    The least code of a symmetric source, which is unused, has the entry of the code beside it in the ROM.

    Raises
    ------
    TypeError, ValueError
        As :func:`~lutterfly.golden.transfer.tables.transfer_table`, and what ``operator`` raises.
    """
    inputs, kept = source.dequantise(source.codes), []

    def once(values: Float32) -> Float32:
        kept.append(operator(values))
        return kept[-1]

    table = transfer_table(source, once, target)
    entries = table.astype(int).tolist()
    rom = TableRom(
        entries[: int(source.is_symmetric)] + entries,
        is_signed=source.is_signed,
        result=Shape(target.bits, target.is_signed),
    )
    return TableFacts(name, source, target, inputs, kept[-1], table, rom)
