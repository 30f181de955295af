"""A table's ROM as Verilog, with a header that says what it computes."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import numpy as np

from ...golden.transfer.schemes import Scheme, name_of
from ...hdl.parts.verilog import to_verilog
from .facts import TableFacts


def module_name(path: Path) -> str:
    """The module's name, after its file's: ``tanh_table`` for ``tanh.v``. It is no word of Verilog."""
    return re.sub(r"\W", "_", f"t{path.stem}" if path.stem[:1].isdigit() else path.stem, flags=re.ASCII) + "_table"


def table_verilog(facts: TableFacts, name: str) -> str:
    """The ROM as a module called ``name``."""
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
    # Names of files may hold anything; a comment ends with its line.
    return "\n".join(f"// {''.join(c if c.isprintable() else '?' for c in line)}" for line in lines)


def _scheme_text(scheme: Scheme) -> str:
    low, high = scheme.limits
    zero = f"(code - {scheme.zero_point})" if scheme.zero_point else "code"
    scale = str(np.float32(scheme.scale))
    return f"{name_of(scheme)}: {scheme.dtype}, which stands for {zero} * {scale}, {low:g} to {high:g}"
