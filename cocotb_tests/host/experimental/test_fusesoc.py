"""The core file for FuseSoC."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

from lutterfly.golden.presets import PRESETS
from lutterfly.host.command import main
from lutterfly.host.simulation.build import IP, verilog


@pytest.mark.regress
def test_it_names_the_verilog_beside_it_and_its_top(tmp_path: Path) -> None:
    path = tmp_path / "accelerator.v"
    assert main.main(["verilog", "-o", str(path), "--core", "--config", "tiny"]) == 0
    assert path.read_text() == verilog(PRESETS["tiny"], top=IP)
    lines = (tmp_path / "accelerator.core").read_text().splitlines()
    # FuseSoC looks for exactly this.
    assert lines[0] == "CAPI=2:"
    assert f"name: ::lutterfly:{importlib.metadata.version('lutterfly')}" in lines
    assert '      - "accelerator.v"' in lines
    assert "    file_type: verilogSource" in lines
    (top,) = re.findall(r"^    toplevel: (\w+)$", "\n".join(lines), re.MULTILINE)
    assert f"\nmodule {top}(" in path.read_text()
    assert f"{PRESETS['tiny'].hash:#010x}" in lines[2]
    assert not any("\t" in line for line in lines)


@pytest.mark.regress
def test_pins_of_the_trace_are_there_where_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.v"
    for options, pins in ((["--trace"], 5), ([], 0)):
        assert main.main(["verilog", "-o", str(path), "--config", "tiny", *options]) == 0
        assert len(re.findall(r"^// trace_\w+ +output ", path.read_text(), re.MULTILINE)) == pins


@pytest.mark.regress
def test_without_core_there_is_none(tmp_path: Path) -> None:
    assert main.main(["verilog", "-o", str(tmp_path / "a.v"), "--config", "tiny"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.v"]


def test_where_it_cannot_stand_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["verilog", "-o", str(tmp_path / "a.core"), "--core", "--config", "tiny"]) == 2
    assert "must not end with .core" in capsys.readouterr().err
    (tmp_path / "b.core").mkdir()
    assert main.main(["verilog", "-o", str(tmp_path / "b.v"), "--core", "--config", "tiny"]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.core"]
