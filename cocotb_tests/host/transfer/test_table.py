"""`lutterfly table`: answers, files, and refusals in one line before anything is written."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import onnx
import pytest

from lutterfly.host.command.main import main
from lutterfly.host.transfer.operators import chain_of
from lutterfly.synth.tools import install_command

SCHEMES = ("--from", "q3.4", "--to", "q0.7")
TANH = ("--operator", "Tanh", *SCHEMES)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    code = main(["table", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_values(capsys: pytest.CaptureFixture[str]) -> None:
    code, values = answer(capsys, *TANH)
    assert code == 0
    assert (values["operator"], values["from"], values["to"]) == ("Tanh", "q3.4", "q0.7")
    assert (values["entries"], values["stored_entries"], values["is_half"], values["latency"]) == (256, 128, True, 4)
    assert values["block_rams"] == {"ecp5": 0, "xilinx": 0}
    assert 0.99 < values["greatest_error_steps"] < 1
    assert "module" not in values


def test_without_a_file_codes_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", *TANH]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Tanh: q3.4 to q0.7"
    assert lines[-1] == "33 of 256 codes"


@pytest.mark.regress
def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target, page = tmp_path / "tanh.v", tmp_path / "tanh.html"
    code, values = answer(capsys, *TANH, "-o", str(target), "--plot", str(page))
    assert (code, values["module"], values["plot"]) == (0, "tanh_table", str(page))
    assert values["file_bytes"] == target.stat().st_size
    assert "\nmodule tanh_table(" in target.read_text()
    assert "<title>Tanh: q3.4 to q0.7</title>" in page.read_text()
    assert main(["table", *TANH, "-o", str(target)]) == 0
    shown = capsys.readouterr().out
    assert f"{target}: {values['file_bytes']:,} bytes of Verilog, module tanh_table" in shown
    assert "stands for" not in shown


@pytest.mark.regress
def test_a_chain_and_its_file_have_the_same_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words, path = ["Clip:min=-2,max=2", "Erf"], tmp_path / "chain.onnx"
    onnx.save(chain_of(words), path)
    texts = []
    for source in (["--model", str(path)], [part for word in words for part in ("--operator", word)]):
        code, values = answer(capsys, *source, *SCHEMES, "-o", str(tmp_path / "x.v"))
        texts.append((tmp_path / "x.v").read_text())
        assert code == 0
    assert values["operator"] == "Clip:min=-2,max=2, Erf"
    bodies = [[line for line in text.splitlines() if not line.startswith("// operator")] for text in texts]
    assert bodies[0] == bodies[1]


CHOICE = (
    "operator or model must be given, and not both: --operator Tanh, or --model FILE with a chain of pointwise "
    "operators; --operator Identity requantises"
)


@pytest.mark.sampled(11)
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (SCHEMES, CHOICE),
        ((*TANH, "--model", "x.onnx"), CHOICE),
        (("--operator", "Tanh", "--to", "q0.7"), "Missing option '--from'."),
        (
            ("--operator", "Tanh", "--from", "q3.5", "--to", "q0.7"),
            "q3.5: fixed point must have 8 or 16 bits (a sign bit, m before the point and n after it), not 9 as q3.5;",
        ),
        (("--operator", "Tanh", "--from", "q3.4", "--to", "int8"), "int8: scale must be given, as int8:scale=0.05"),
        (("--operator", "tanh", *SCHEMES), "tanh: operator must be one of ONNX's (operator set 21), as Tanh or Erf"),
        (("--operator", "Relu", "--operator", "Softmax", *SCHEMES), "Relu, Softmax: Softmax must be pointwise: for "),
        (
            ("--operator", "Sqrt", *SCHEMES),
            "operator must give a finite number for every code of q3.4, not nan for the code -128 (-8), the first of ",
        ),
        (
            ("--operator", "Log", "--from", "uq4.4", "--to", "q3.4"),
            "operator must give a finite number for every code of uq4.4, not -inf for the code 0 (0), the first of 1: ",
        ),
        (("--model", "none.onnx", *SCHEMES), "none.onnx: must be a file that can be read: No such file or directory"),
        (("--model", __file__, *SCHEMES), f"{__file__}: must be an ONNX file; export the chain of operators to ONNX"),
        ((*TANH, "-o", "/nowhere/x.v"), "/nowhere/x.v: cannot be written: No such file or directory; name"),
        ((*TANH, "--plot", "/nowhere/x.html"), "/nowhere/x.html: cannot be written: No such file or directory; name"),
        ((*TANH, "--plot", "x.png"), "plot must be a file that ends in .html, as the plot is a page, not x.png"),
        ((*TANH, "-o", "x.html", "--plot", "x.html"), "plot must be another file than the Verilog, not x.html"),
        (("--model", "x.v", *SCHEMES, "-o", "x.v"), "output must be another file than the model, not x.v"),
        (
            ("--operator", "Exp", "--from", "q3.12", "--to", "uq12.4", "--block-rams", "ecp5=56", "-o", "x.v"),
            "the table must fit 56 block RAMs of ecp5, not 64 for 65,536 entries of 16 bits; choose schemes of 8 bits,",
        ),
        ((*TANH, "--block-rams", "lattice=56"), "block-rams must be ecp5=COUNT or xilinx=COUNT, not lattice=56"),
    ],
)  # fmt: skip
def test_refuses_in_one_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], error: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, values = answer(capsys, *words)
    assert (code, values.keys()) == (2, {"error"})
    assert values["error"].startswith(error)
    assert main(["table", *words]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_is_refused_leaves_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "sqrt.v"
    target.write_text("mine")
    assert answer(capsys, "--operator", "Sqrt", *SCHEMES, "-o", str(target))[0] == 2
    assert target.read_text() == "mine"


def test_a_plot_without_plotly_says_what_installs_it(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, values = answer(capsys, *TANH, "--plot", "x.html")
    wanted = f"a plot needs Plotly, which is not installed; run: {install_command('report')}"
    assert (code, values) == (2, {"error": wanted})
