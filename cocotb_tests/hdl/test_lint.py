"""The generated Verilog of the whole core passes Verilator's lint, but for the waivers named in ``lint.vlt``."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from lutterfly.boards import BOARDS
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.hdl.top_uart import TopUart
from lutterfly.host.simulation import build, toolchain
from lutterfly.host.simulation.build import AXI, IP, Top
from lutterfly.synth.bitstream import top_of

WAIVERS = Path(__file__).with_name("lint.vlt")


def lint(source: Path) -> str:
    """What Verilator says; empty if it has nothing to say."""
    command = [toolchain.verilator_folder() / "bin" / "verilator", "--lint-only", "-Wall", WAIVERS, source]
    result = subprocess.run(command, env=toolchain.environment(), capture_output=True, text=True, check=False)
    assert bool(result.returncode) == bool(result.stderr)
    return result.stderr


@pytest.mark.regress
@pytest.mark.parametrize(
    ("preset", "cluster", "top"),
    [
        ("tiny", ClusterConfig(), IP),
        ("tiny", ClusterConfig(), AXI),
        ("tiny", ClusterConfig(cores=2), IP),
        pytest.param("tiny", ClusterConfig(cores=2, shared_port=False), IP, marks=pytest.mark.regress),
        pytest.param("ecp5-85k", ClusterConfig(), IP, marks=pytest.mark.regress),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_core_is_clean(preset: str, cluster: ClusterConfig, top: Top, tmp_path: Path) -> None:
    source = tmp_path / "top.v"
    source.write_text(build.verilog(replace(PRESETS[preset], cluster=cluster), top=top))
    assert lint(source) == ""


@pytest.mark.regress
def test_board_is_clean(tmp_path: Path) -> None:
    board = BOARDS["ulx3s-25f"]
    core = TopUart(PRESETS[board.preset], clock_hz=board.core_hz)
    source = tmp_path / "top.v"
    source.write_text(to_verilog(top_of(board, core), name="top"))
    assert lint(source) == ""


def test_lint_finds_what_is_not_waived(tmp_path: Path) -> None:
    source = tmp_path / "top.v"
    source.write_text("module top(input [7:0] a, output [3:0] y); wire [3:0] z; assign y = a ^ {4'd0, z}; endmodule\n")
    found = lint(source)
    assert "%Warning-WIDTHTRUNC" in found
    assert "%Warning-UNDRIVEN" in found
