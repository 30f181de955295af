"""Transfer tables: their facts, the block RAMs that they take, and their ROMs as Verilog."""

from __future__ import annotations

import importlib.metadata
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import Shape

from ...golden.transfer.schemes import Codes, Float32, Scheme, name_of
from ...golden.transfer.tables import Operator, transfer_table
from ...hdl.parts.table_rom import TableRom
from ...hdl.parts.verilog import to_verilog

# The number of block RAMs of a table, compared with the available ones.

#: The forms of a block RAM of each family: words and bits.
FORMS = {
    "ecp5": ((16_384, 1), (8192, 2), (4096, 4), (2048, 9), (1024, 18), (512, 36)),
    "xilinx": ((32_768, 1), (16_384, 2), (8192, 4), (4096, 9), (2048, 18), (1024, 36)),
}


@dataclass(frozen=True, slots=True)
class BlockRams:
    """The block RAMs that are available for a table.

    Attributes
    ----------
    family : str
        A key of ``FORMS``.
    count : int
    """

    family: str
    count: int

    @classmethod
    def parse(cls, text: str) -> BlockRams:
        """Read ``FAMILY=COUNT``, as ``ecp5=56``.

        Raises
        ------
        ValueError
            If it has another form.
        """
        found = re.fullmatch(rf"({'|'.join(FORMS)})=([0-9]{{1,6}})", text)
        if not found:
            raise ValueError(f"block-rams must be {' or '.join(f'{family}=COUNT' for family in FORMS)}, not {text}")
        return cls(found[1], int(found[2]))

    def check(self, rom: TableRom) -> None:
        """Check that a ROM fits.

        Raises
        ------
        ValueError
            If it takes more; the message names a remedy.
        """
        needed = block_rams(rom)[self.family]
        if needed > self.count:
            half = "" if rom.half else ", or make the operator even or odd about the middle code: half is stored then"
            raise ValueError(
                f"the table must fit {self.count} block RAMs of {self.family}, not {needed} for {rom.stored_entries:,} "
                f"entries of {rom.result.width} bits; choose schemes of 8 bits{half}"
            )


def block_rams(rom: TableRom) -> dict[str, int]:
    """Return the number of block RAMs of each family that hold a ROM, 0 if it is in the fabric.

    There may be fewer: synthesis removes those whose bits are all equal, as where a function saturates.
    """
    words, bits = rom.stored_entries, rom.result.width
    return {
        family: min(-(-words // depth) * -(-bits // width) for depth, width in forms) if rom.is_block else 0
        for family, forms in FORMS.items()
    }


# Facts of a transfer table: its codes, their errors, and the cost of its ROM.


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A transfer table and its ROM.

    Attributes
    ----------
    operator : str
        A text for people.
    source, target : Scheme
    inputs, results : float32[codes]
        The values of the source's codes, and the operator's results.
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
        """The values of the table's codes less the operator's results: float64[codes]."""
        return self.target.dequantise(self.table).astype(np.float64) - self.results

    @property
    def saturated(self) -> int:
        """Codes whose result is more than half a step beyond the target's codes."""
        target = self.target
        low, high = ((code - target.zero_point) * target.scale for code in (target.least - 0.5, target.greatest + 0.5))
        # The comparison is exact: float64 holds 18 bits times the 24 of a scale.
        results = self.results.astype(np.float64)
        return int(np.sum((results < low) | (results > high)))

    def values(self) -> dict[str, Any]:
        """Return the facts as values for JSON."""
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
        As :func:`~lutterfly.golden.transfer.tables.transfer_table`, or from ``operator``.
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


#: The number of codes that are shown of a table, evenly spaced, besides the last.
_ROWS = 32
_WIDTH = 100


def summary(facts: TableFacts) -> str:
    """Return the facts as lines of text."""
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
    """Return some of the codes as a table, including the first and the last."""
    # Only this answer needs the import.
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


# A table's ROM as Verilog, with a header that describes its function.


def module_name(path: Path) -> str:
    """Return the module's name for a file name: ``tanh_table`` for ``tanh.v``. It is not a keyword of Verilog."""
    return re.sub(r"\W", "_", f"t{path.stem}" if path.stem[:1].isdigit() else path.stem, flags=re.ASCII) + "_table"


def table_verilog(facts: TableFacts, name: str) -> str:
    """Generate the ROM as a module called ``name``."""
    return f"{_header(facts, name)}\n{to_verilog(facts.rom, name=name)}"


def _header(facts: TableFacts, name: str) -> str:
    rom = facts.rom
    stored = f"{rom.stored_entries:,} of them stored, which give the others" if rom.half else "all of them stored"
    memory = "block RAM" if rom.is_block else "fabric"
    lines = [
        f"{name}: a transfer table, made by Lutterfly {importlib.metadata.version('lutterfly')}",
        f"operator  {facts.operator}",
        f"codes     {_scheme_text(facts.source)}",
        f"results   {_scheme_text(facts.target)}",
        "rounding  to the nearest code, halves to the even one, before the zero point is added; saturates",
        f"entries   {len(rom.table):,}, {stored}, in {memory}",
        f"latency   {rom.latency} cycles, one look-up a cycle; while a result waits, nothing moves",
        "ports     a code passes at a rising edge of clk with codes__valid and codes__ready high, a result with",
        "          results__valid and results__ready; rst (synchronous) forgets what is under way",
    ]
    if facts.source.is_symmetric:
        lines.append(f"unused    the code {facts.source.least - 1} gives the result of {facts.source.least}")
    # File names may contain anything, and a comment ends at the end of the line.
    return "\n".join(f"// {''.join(c if c.isprintable() else '?' for c in line)}" for line in lines)


def _scheme_text(scheme: Scheme) -> str:
    low, high = scheme.limits
    zero = f"(code - {scheme.zero_point})" if scheme.zero_point else "code"
    scale = str(np.float32(scheme.scale))
    return f"{name_of(scheme)}: {scheme.dtype}, which stands for {zero} * {scale}, {low:g} to {high:g}"
