"""`lutterfly table`: its facts, block RAMs, answers and files, and refusals before anything is written."""

from __future__ import annotations

import importlib.util
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from amaranth.hdl import unsigned

from lutterfly.golden.transfer.schemes import parse
from lutterfly.hdl.parts.table_rom import TableRom
from lutterfly.host.command.main import main
from lutterfly.host.transfer.operators import chain_of
from lutterfly.host.transfer.table import BlockRams, TableFacts, block_rams, shown_codes, summary, tabulate_chain
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


# What is said of a table: errors, saturation, block RAMs.


def facts(source: str, function, target: str) -> TableFacts:
    return tabulate_chain("f", function, parse(source), parse(target))


def test_the_error_is_that_of_the_codes() -> None:
    values = facts("q3.4", lambda x: x * np.float32(0.3), "q3.4").values()
    errors = [abs(round(code * 0.3) / 16 - code * 0.3 / 16) for code in range(-128, 128)]
    assert values["greatest_error"] == pytest.approx(max(errors), abs=1e-6)
    assert values["greatest_error_steps"] == values["greatest_error"] * 16 <= 0.5
    assert values["saturated"] == 0


def test_saturation_is_counted() -> None:
    values = facts("q3.4", lambda x: x * np.float32(2), "q3.4").values()
    assert (values["saturated"], values["greatest_error"], values["greatest_error_at"]) == (128, 8, -8)
    # A result that lies half a step beyond is rounded, and does not count.
    assert facts("q3.4", lambda x: x + np.float32(1 / 32), "q3.4").saturated == 0


@pytest.mark.parametrize(
    "target",
    [
        *("q0.7", "q3.4:symmetric", "uq4.4", "q3.12", "uq0.16", "int8:scale=0.05,zero_point=-128", "uint8:scale=0.3"),
        *("int8:scale=0.1,zero_point=127", "uint16:scale=0.0007,zero_point=300", "int16:scale=0.0003,zero_point=-9"),
    ],
)
def test_what_saturates_lies_more_than_half_a_step_beyond(target: str) -> None:
    """Numbers around either end, among them the nearest to where saturation begins, counted in exact fractions."""
    after = parse(target)
    scale, half = Fraction(after.scale), Fraction(1, 2)
    ends = [scale * (code - after.zero_point) for code in (after.least - half, after.greatest + half)]
    near = [np.float32(end + scale * part) for end in ends for part in (-40, -1, -half, 0, half, 1, 40)]
    near += [np.nextafter(number, np.float32(way)) for number in near for way in (-np.inf, np.inf)]
    results = np.resize(near, 256)
    beyond = [not ends[0] <= Fraction(float(result)) <= ends[1] for result in results]
    assert 50 < sum(beyond) < 206
    assert facts("q3.4", lambda _: results, target).saturated == sum(beyond)


@pytest.mark.parametrize(
    ("source", "function", "target", "stored", "blocks"),
    [
        ("q3.4", np.tanh, "q0.7", 128, (0, 0)),
        ("q3.4", np.exp, "uq12.4", 256, (0, 0)),
        ("q3.12", np.tanh, "q0.7", 1 << 15, (16, 8)),
        ("q3.12", np.exp, "uq4.4", 1 << 16, (32, 16)),
        ("q3.12", np.tanh, "q0.15", 1 << 15, (32, 16)),
        ("q3.12", np.exp, "uq12.4", 1 << 16, (64, 32)),
    ],
)
def test_memory(source: str, function, target: str, stored: int, blocks: tuple[int, int]) -> None:
    found = facts(source, function, target)
    values = found.values()
    assert (values["stored_entries"], values["is_half"]) == (stored, stored < len(found.table))
    assert values["block_rams"] == dict(zip(("ecp5", "xilinx"), blocks, strict=True))
    assert values["is_block_ram"] == any(blocks)


def test_the_unused_code_of_a_symmetric_source_has_the_entry_of_its_neighbour() -> None:
    found = facts("q3.4:symmetric", np.exp, "uq4.4")
    assert found.rom.table.tolist() == [found.table[0], *found.table]
    assert len(found.table) == 255


# What `lutterfly table` shows of a table.


@pytest.mark.parametrize("source", ["q3.4", "q3.4:symmetric", "q3.12"])
def test_codes_from_the_first_to_the_last(source: str) -> None:
    facts = tabulate_chain("Tanh", np.tanh, parse(source), parse("q0.7"))
    head, _, *rows, note = shown_codes(facts).splitlines()
    assert head.split() == ["code", "input", "operator", "result's", "code", "stands", "for", "error", "in", "steps"]
    assert note == f"{len(rows)} of {facts.table.size:,} codes"
    cells = [row.split() for row in rows]
    assert (int(cells[0][0]), int(cells[-1][0])) == (facts.source.least, facts.source.greatest)
    for code, value, result, target, stands_for, error in cells:
        place = int(code) - facts.source.least
        assert int(target) == facts.table[place]
        assert float(value) == pytest.approx(facts.inputs[place], rel=1e-5)
        assert float(result) == pytest.approx(facts.results[place], rel=1e-5)
        assert float(stands_for) == pytest.approx(facts.table[place] / 128, rel=1e-5)
        assert float(error) == pytest.approx(facts.errors[place] * 128, rel=1e-5)


def test_summary() -> None:
    lines = summary(tabulate_chain("Tanh", np.tanh, parse("q3.12"), parse("q0.7"))).splitlines()
    assert lines[0] == "Tanh: q3.12 to q0.7"
    assert lines[1] == (
        "65,536 entries, half of them stored (32,768), in block RAM (16 of ecp5, 8 of xilinx); latency 4 cycles"
    )
    assert lines[2] == "greatest error 0.007812 (1 steps of 0.0078125) for the input 7.88379"
    assert lines[3].endswith(" results lie beyond the codes and saturate")
    text = summary(tabulate_chain("Exp", np.exp, parse("q3.4"), parse("uq4.4")))
    assert "256 entries, all of them stored, in fabric; latency 2 cycles" in text


# Block RAMs: a table that takes as many as there are fits, one that takes more is refused.


def rom(bits: int, width: int) -> TableRom:
    entries = [code * code % 251 for code in range(1 << bits)]
    return TableRom(entries, is_signed=False, result=unsigned(width))


@pytest.mark.parametrize(("family", "needed"), [("ecp5", 32), ("xilinx", 16)])
def test_the_limit(family: str, needed: int) -> None:
    table = rom(16, 8)
    assert block_rams(table)[family] == needed
    BlockRams(family, needed).check(table)
    with pytest.raises(ValueError, match=rf"must fit {needed - 1} block RAMs of {family}, not {needed} for 65,536 "):
        BlockRams(family, needed - 1).check(table)


def test_what_lies_in_the_fabric_takes_none() -> None:
    BlockRams("ecp5", 0).check(rom(8, 8))


@pytest.mark.parametrize("text", ["ecp5", "ecp5=", "=3", "ecp5=-1", "ecp5=1.5", "ECP5=4", "ecp5=1,xilinx=2"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"block-rams must be ecp5=COUNT or xilinx=COUNT, not {text}"):
        BlockRams.parse(text)


def test_words() -> None:
    assert BlockRams.parse("xilinx=50") == BlockRams("xilinx", 50)
