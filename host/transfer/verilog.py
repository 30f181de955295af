"""A table's ROM as Verilog, with a header that says what it computes."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import numpy as np
from amaranth.back import verilog

from ...golden.scheme_names import name_of
from ...golden.schemes import Scheme
from ...hdl.parts.table_rom import TableRom
from .facts import TableFacts

#: Words in a block, and how one is written.
_BLOCK = 64
_WORD = re.compile(r"\s+\w+\[\d+\] = \d+'h[0-9a-f]+;")


def module_name(path: Path) -> str:
    """The module's name, after its file's: ``tanh_table`` for ``tanh.v``. It is no word of Verilog."""
    return re.sub(r"\W", "_", f"t{path.stem}" if path.stem[:1].isdigit() else path.stem, flags=re.ASCII) + "_table"


def to_verilog(facts: TableFacts, name: str) -> str:
    """The ROM as a module called ``name``."""
    return f"{_header(facts, name)}\n{rom_verilog(facts.rom, name)}"


def rom_verilog(rom: TableRom, name: str) -> str:
    """A ROM as a module, without a header.

    What takes Yosys seconds to read takes it a quarter of an hour if all words stand in one block, as Amaranth writes
    them: its time goes with the square of a block's length.
    """
    text = verilog.convert(rom, name=name, emit_src=False, strip_internal_attrs=True)
    lines, length = [], 0
    for line in text.splitlines():
        length = 0 if line.strip() == "initial begin" else length + 1
        if length > _BLOCK and _WORD.fullmatch(line):
            lines += ["  end", "  initial begin"]
            length = 1
        lines.append(line)
    return "\n".join(lines) + "\n"


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
    # Names of files may hold anything; a comment ends with its line.
    return "\n".join(f"// {''.join(c if c.isprintable() else '?' for c in line)}" for line in lines)


def _scheme_text(scheme: Scheme) -> str:
    low, high = scheme.limits
    zero = f"(code - {scheme.zero_point})" if scheme.zero_point else "code"
    scale = str(np.float32(scheme.scale))
    return f"{name_of(scheme)}: {scheme.dtype}, which stands for {zero} * {scale}, {low:g} to {high:g}"
