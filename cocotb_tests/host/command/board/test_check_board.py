"""`lutterfly check --board`: whether a model runs on a board, why not, and on which boards it does."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from lutterfly.boards import BOARDS
from lutterfly.examples import digits
from lutterfly.golden.config_parts import ArenaConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.host.command.main import main

ROOT = Path(__file__).parents[4]
MODEL = str(digits.model_path())
PAGE = (ROOT / "docs" / "boards.md").read_text()


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    code = main(["check", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def shrink(monkeypatch: pytest.MonkeyPatch, *presets: str) -> None:
    """Give presets memories that are too small for the digits' network."""
    for preset in presets:
        config = PRESETS[preset]
        memory = dataclasses.replace(config.memory, weight_bytes=4 << 10)
        small = dataclasses.replace(config, memory=memory, arena=ArenaConfig(on_chip_bytes=4 << 10))
        monkeypatch.setitem(PRESETS, preset, small)


def test_a_model_that_runs_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    code, values = answer(capsys, MODEL, "--board", "colorlight-i5")
    assert (code, values["board"], values["boards"]) == (0, "colorlight-i5", list(BOARDS))
    # The configuration and the clock are the board's.
    assert values["memories"]["weight memory"]["bytes"] == PRESETS["ecp5-25k-on-chip"].memory.weight_bytes
    assert values["mhz"] == BOARDS["colorlight-i5"].core_mhz
    assert main(["check", MODEL, "--board", "colorlight-i5"]) == 0
    assert capsys.readouterr().out.endswith(f"\nruns on {', '.join(BOARDS)}\n")


def test_a_model_that_runs_on_some_boards(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"ecp5-25k-on-chip", "ecp5-25k-sdram"}
    shrink(monkeypatch, *small)
    running = [name for name, board in BOARDS.items() if board.preset not in small]
    code, values = answer(capsys, MODEL, "--board", "ulx3s-85f")
    assert (code, values["boards"]) == (0, running)
    code, values = answer(capsys, MODEL, "--board", "icepi-zero")
    assert code == 2
    assert values["error"].startswith("icepi-zero: an inference needs ")
    assert values["error"].endswith(f" on the chip; the model runs on {', '.join(running)}")


def test_a_model_that_runs_from_sdram_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, *{board.preset for board in BOARDS.values()})
    code, values = answer(capsys, MODEL, "--board", "ulx3s-85f")
    with_sdram = [name for name, board in BOARDS.items() if board.sdram_preset]
    assert (code, values["boards"], values["preset"]) == (0, with_sdram, BOARDS["ulx3s-85f"].sdram_preset)
    assert values["mhz"] == BOARDS["ulx3s-85f"].sdram_mhz
    code, values = answer(capsys, MODEL, "--board", "ecpix5-85f")
    assert (code, values["error"].endswith(f"; the model runs on {', '.join(with_sdram)}")) == (2, True)


@pytest.mark.regress
def test_a_model_that_runs_on_no_board(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, *{variant.preset for board in BOARDS.values() for variant in board.variants})
    code, values = answer(capsys, MODEL, "--board", "ulx3s-85f")
    assert code == 2
    assert values["error"].endswith("; the model runs on no board")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([MODEL, "--board", "arty"], f"board must be one of {', '.join(BOARDS)}, not arty"),
        ([MODEL, "--board", "ulx3s-85f", "--config", "tiny"], "board must be given with MODEL and without --supported"),
        ([MODEL, "--board", "ulx3s-85f", "--cores", "2"], "board must be given with MODEL and without --supported"),
        (["--supported", "--board", "ulx3s-85f"], "board must be given with MODEL and without --supported"),
    ],
)
def test_refuses_in_one_line(capsys: pytest.CaptureFixture[str], words: list[str], error: str) -> None:
    code, values = answer(capsys, *words)
    assert code == 2
    assert values["error"].startswith(error)


@pytest.mark.regress
def test_the_page_says_on_which_boards_networks_run(capsys: pytest.CaptureFixture[str], models_dir: Path) -> None:
    _, _, table = PAGE.partition("| `--board` | `ad` |")
    head, *rows = (f"| `--board` | `ad` |{table}").partition("\n\n")[0].splitlines()
    said: dict[str, list[str]] = {name: [] for name in re.findall(r"`(\w+)`", head)}
    listed = []
    for row in rows[1:]:
        boards, *cells = row.strip("| ").split(" | ")
        names = re.findall(r"`([\w-]+)`", boards)
        listed += names
        for network, cell in zip(said, cells, strict=True):
            assert cell in ("yes", "no")
            said[network] += names if cell == "yes" else []
    assert sorted(listed) == sorted(BOARDS)
    for network, expected in said.items():
        _, values = answer(capsys, str(models_dir / f"{network}_qdq.onnx"), "--board", "ulx3s-85f")
        running = values.get("boards") or values["error"].rpartition("runs on ")[2].split(", ")
        assert sorted(running) == (sorted(expected) or ["no board"]), network
