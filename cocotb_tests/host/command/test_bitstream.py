"""The command that builds bitstreams: everything is refused before long work, and nothing is half written."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from lutterfly.boards import BOARDS
from lutterfly.golden.presets import PRESETS
from lutterfly.host.command import main
from lutterfly.synth import bitstream, tools
from lutterfly.synth.families import DEVICES, family_of
from lutterfly.synth.report import CriticalPath, Placement
from lutterfly.synth.tools import install_command

CRITICAL = CriticalPath("a_FF", "b_FF", 3.0, 4.0, 5)
DATA = b"bits"


def placement(seed: int, fmax_mhz: float) -> Placement:
    return Placement(seed=seed, lut=1000, ff=900, dsp=16, bram=50, fmax_mhz=fmax_mhz, critical=CRITICAL)


@pytest.fixture(autouse=True)
def cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """Stands in for the tools, with 90, 99.9 and 101 MHz for the seeds 1 to 3; keeps what it was asked."""
    asked = []

    def build(core, board, *, folder, seeds, progress):
        asked.append({"core": core, "board": board, "folder": folder, "seeds": list(seeds)})
        placements = []
        for seed in seeds:
            placements.append(placement(seed, {1: 90.0, 2: 99.9}.get(seed, 101.0)))
            if placements[-1].fmax_mhz >= board.core_mhz:
                return bitstream.Built(board, bitstream.board_device(board), tuple(placements), DATA)
        return bitstream.Built(board, bitstream.board_device(board), tuple(placements), b"")

    monkeypatch.setattr(bitstream, "build", build)
    monkeypatch.setattr(tools, "check_tools", lambda more: None)
    return asked


@pytest.mark.parametrize("board", BOARDS)
def test_the_boards_own_configuration_is_built_for_its_clock(built: list[dict], tmp_path: Path, board: str) -> None:
    output = tmp_path / f"x{family_of(DEVICES[BOARDS[board].part.device]).suffix}"
    assert main.main(["bitstream", "--board", board, "-o", str(output), "--json"]) == 0
    assert output.read_bytes() == DATA
    (asked,) = built
    assert asked["board"] == BOARDS[board]
    assert asked["core"].config == PRESETS[BOARDS[board].preset]
    assert asked["core"].clock_hz == BOARDS[board].core_hz
    assert asked["folder"].name == f"{PRESETS[BOARDS[board].preset].hash:08x}-{board}"


def test_an_arena_in_sdram_has_the_boards_clock_for_that(built: list[dict], tmp_path: Path) -> None:
    command = ["bitstream", "--board", "ulx3s-85f", "-o", str(tmp_path / "x.bit"), "--config", "ecp5-85k-sdram"]
    assert main.main(command) == 0
    (asked,) = built
    assert asked["board"] == BOARDS["ulx3s-85f"].with_sdram()
    assert asked["core"].clock_hz == 75_000_000
    assert asked["core"].sdram.chip.name == BOARDS["ulx3s-85f"].sdram.chip


@pytest.mark.parametrize("command", ["bitstream", "twin"])
def test_without_litedram_its_extra_is_named(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "litedram" else 1)
    options = ["-o", str(tmp_path / "x.bit")] if command == "bitstream" else []
    assert main.main([command, "--board", "ulx3s-85f", "--config", "ecp5-85k-sdram", *options]) == 2
    expected = f"an arena in the board's SDRAM needs litedram, which is not installed; run: {install_command('sdram')}"
    assert expected in capsys.readouterr().err


def test_answer(built: list[dict], tmp_path: Path, capsys: pytest.CaptureFixture[str], cache_folder: Path) -> None:
    output = tmp_path / "x.bit"
    command = ["bitstream", "--board", "ulx3s-25f", "-o", str(output), "--seed", "2"]
    assert main.main(command) == 0
    folder = cache_folder / "lutterfly" / "bitstream" / f"{PRESETS['ecp5-25k-on-chip'].hash:08x}-ulx3s-25f"
    assert (
        capsys.readouterr().out
        == f"""\
{output}: 4 bytes, ulx3s-25f at 100 MHz
look-up tables    1,000 of 24,288
flip-flops          900 of 24,288
multipliers          16 of 28
block RAMs           50 of 56
clock             101.0 MHz with seed 3, of 99.9, 101.0
limited by      a_FF -> b_FF
                3.0 ns in 5 cells, 4.0 ns of wires
logs            {folder}
"""
    )
    assert main.main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "board": "ulx3s-25f",
        "part": "LFE5U-25F",
        "config_hash": PRESETS["ecp5-25k-on-chip"].hash,
        "core_mhz": 100.0,
        "fmax_mhz": 101.0,
        "seed": 3,
        "fmax_by_seed_mhz": {"2": 99.9, "3": 101.0},
        "lut": 1000,
        "ff": 900,
        "dsp": 16,
        "bram": 50,
        "critical_path": {"start": "a_FF", "end": "b_FF", "logic_ns": 3.0, "routing_ns": 4.0, "levels": 5},
        "file_bytes": 4,
        "is_met": True,
    }


def test_a_missed_clock_fails_with_the_figures_and_leaves_the_file(
    built: list[dict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "x.bit"
    output.write_bytes(b"before")
    command = ["bitstream", "--board", "ulx3s-25f", "-o", str(output), "--seeds", "2"]
    assert main.main(command) == 1
    assert output.read_bytes() == b"before"
    said = capsys.readouterr().out
    assert said.startswith(
        "ulx3s-25f must reach 100 MHz, and does not with 2 seeds; nothing is written; try more --seeds"
    )
    assert "clock              99.9 MHz with seed 2, of 90.0, 99.9\n" in said
    assert main.main([*command, "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert (values["is_met"], values["file_bytes"], values["fmax_mhz"]) == (False, 0, 99.9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--board", "arty"], f"board must be one of {', '.join(BOARDS)}, not arty"),
        (["--config", "none"], "config must be one of "),
        (
            ["--board", "ecpix5-85f", "--config", "tiny"],
            "ecpix5-85f has no SDRAM for an arena outside the chip; choose ecp5-85k-on-chip",
        ),
        (["-o", "/nowhere/x.bit"], "/nowhere/x.bit: cannot be written: "),
    ],
)
def test_refused_before_anything_long(
    built: list[dict], tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    command = ["bitstream", "--board", "ulx3s-85f", "-o", str(tmp_path / "x.bit"), *options]
    assert main.main(command) == 2
    assert capsys.readouterr().err.startswith(f"lutterfly: {message}")
    assert main.main([*command, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"].startswith(message)
    assert built == []
    assert not (tmp_path / "x.bit").exists()


def test_missing_tools_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    assert main.main(["bitstream", "--board", "ulx3s-85f", "-o", str(tmp_path / "x.bit")]) == 2
    assert f"run: {install_command('synth')}\n" in capsys.readouterr().err


def test_what_does_not_fit_is_a_wrong_input(
    monkeypatch: pytest.MonkeyPatch, built: list[dict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(*arguments, **options):
        raise ValueError("LFE5U-25F: block RAMs must be at most 56, not 200; choose a smaller configuration")

    monkeypatch.setattr(bitstream, "build", build)
    command = ["bitstream", "--board", "ulx3s-25f", "-o", str(tmp_path / "x.bit"), "--config", "ecp5-85k-on-chip"]
    assert main.main(command) == 2
    assert capsys.readouterr().err.startswith("lutterfly: LFE5U-25F: block RAMs must be at most 56, not 200; ")
    assert not (tmp_path / "x.bit").exists()
