"""`lutterfly run --report`: the page is written, and what stands in its way is said before anything runs."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import TINY, Maker
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.host import report
from lutterfly.host.backend import DEFAULT_BACKEND
from lutterfly.host.command import models
from lutterfly.host.command.main import main
from lutterfly.host.command.target import Target
from lutterfly.host.compiler import compile_model
from lutterfly.host.driver.driver import AcceleratorError
from lutterfly.host.program import Speed
from lutterfly.host.session.session import InferenceSession
from lutterfly.synth.tools import install_command

MODEL = digits.model_path("qop")


@pytest.fixture
def pixels(tmp_path: Path) -> str:
    np.save(tmp_path / "pixels.npy", digits.images()[:2])
    return str(tmp_path / "pixels.npy")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    code = main(["run", *words, "--config", "tiny", "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        pytest.fail("an inference ran")

    monkeypatch.setattr(InferenceSession, "run", fail)


@pytest.mark.regress
def test_a_report_changes_no_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path, pixels: str) -> None:
    target = tmp_path / "report.html"
    plain = run(capsys, str(MODEL), "--input", pixels)
    code, values = run(capsys, str(MODEL), "--input", pixels, "--report", str(target))
    assert (code, values.pop("report")) == (0, str(target))
    assert (0, values) == plain
    page = target.read_text()
    assert f"<title>{MODEL.name}: {values['cycles']:,} cycles on tiny</title>" in page
    assert all(f">{value:,}<" in page for value in values["counters"].values())


def test_a_batch_has_a_report_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = Maker(np.random.default_rng(3), "qop", False, TINY)
    maker.start((1, 24))
    maker.fully_connected(10)
    network, target = tmp_path / "net.onnx", tmp_path / "report.html"
    network.write_bytes(maker.finish().model)
    inputs = str(tmp_path / "x.npy")
    samples = np.random.default_rng(0).integers(-128, 128, (5, 24), np.int8)
    np.save(inputs, samples)
    drawn, make = [], report.make
    monkeypatch.setattr(report, "make", lambda *given: drawn.append(given[2]["x"]) or make(*given))
    code, values = run(capsys, str(network), "--input", inputs, "--batch", "4", "--report", str(target))
    assert (code, values["batch"]) == (0, 4)
    page = target.read_text()
    # Of the second inference, whose last three samples are missing.
    np.testing.assert_array_equal(drawn, [samples[4:]])
    assert f"<title>net.onnx: {values['cycles']:,} cycles on tiny</title>" in page
    assert f">{values['counters']['compute_busy']:,}<" in page


@pytest.mark.regress
def test_the_text_names_the_report(capsys: pytest.CaptureFixture[str], tmp_path: Path, pixels: str) -> None:
    target = tmp_path / "report.html"
    assert main(["run", str(MODEL), "--input", pixels, "--config", "tiny", "--report", str(target)]) == 0
    assert capsys.readouterr().out.endswith(f"\nreport: {target}\n")


@pytest.mark.regress
def test_times_are_those_of_the_measured_cycles(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pixels: str
) -> None:
    target = tmp_path / "report.html"
    _, values = run(capsys, str(MODEL), "--input", pixels, "--report", str(target), "--mhz", "50")
    assert values.items() >= Speed(50).values(values["cycles"], 1).items()
    time, rate = Speed(50).text(values["cycles"], 1).split(" at ")
    assert f"<b>{time}</b><span>at {rate}</span>" in target.read_text()


@pytest.mark.regress
def test_a_compiled_program_has_a_report_too(capsys: pytest.CaptureFixture[str], tmp_path: Path, pixels: str) -> None:
    program, target = tmp_path / "digits.program", tmp_path / "report.html"
    program.write_bytes(compile_model(MODEL.read_bytes(), PRESETS["tiny"]).to_bytes())
    assert run(capsys, str(program), "--input", pixels, "--report", str(target))[0] == 0
    assert "node_conv2d" in target.read_text()


@pytest.mark.regress
@pytest.mark.parametrize("command", ["check", "run"])
def test_a_program_file_is_shown_without_compiler_and_frontend(tmp_path: Path, pixels: str, command: str) -> None:
    program, target = tmp_path / "digits.program", tmp_path / "report.html"
    program.write_bytes(compile_model(MODEL.read_bytes(), PRESETS["tiny"]).to_bytes())
    words = [command, str(program), "--config", "tiny"]
    words += ["--input", pixels, "--report", str(target)] if command == "run" else []
    script = (
        "import sys; sys.modules['lutterfly.host.compiler'] = sys.modules['lutterfly.host.frontend'] = None; "
        f"from lutterfly.host.command.main import main; sys.exit(main({words!r}))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert "node_conv2d" in (target.read_text() if command == "run" else done.stdout)


@pytest.mark.usefixtures("never_runs")
@pytest.mark.parametrize(
    ("target", "reason"), [("nowhere/x.html", "No such file or directory"), (".", "Is a directory")]
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pixels: str, target: str, reason: str
) -> None:
    path = tmp_path / target
    assert run(capsys, str(MODEL), "--input", pixels, "--report", str(path)) == (
        2,
        {"error": f"{path}: cannot be written: {reason}; name another place"},
    )


@pytest.mark.regress
@pytest.mark.usefixtures("never_runs")
def test_the_report_takes_no_other_files_place(capsys: pytest.CaptureFixture[str], tmp_path: Path, pixels: str) -> None:
    model, inputs, output = (tmp_path / f"{name}.html" for name in ("model", "inputs", "output"))
    shutil.copy(MODEL, model)
    shutil.copy(pixels, inputs)
    for path in (model, inputs, output):
        before = path.read_bytes() if path.exists() else None
        code, values = run(capsys, str(model), "--input", str(inputs), "--output", str(output), "--report", str(path))
        assert (code, values["error"]) == (
            2,
            f"report must be another file than what the run reads and writes, not {path}",
        )
        assert (path.read_bytes() if path.exists() else None) == before


@pytest.mark.parametrize("name", ["x.pdf", "x", "html"])
def test_a_report_is_called_a_page_before_anything_is_compiled(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pixels: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(Target, "load", lambda *_, **__: pytest.fail("a network was compiled"))
    target = tmp_path / name
    assert run(capsys, str(MODEL), "--input", pixels, "--report", str(target)) == (
        2,
        {"error": f"report must be a file that ends in .html, as the report is a page, not {target}"},
    )
    assert not target.exists()


@pytest.mark.usefixtures("never_runs")
def test_without_plotly_the_remedy_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pixels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "plotly" else found(name))
    target = tmp_path / "report.html"
    assert run(capsys, str(MODEL), "--input", pixels, "--report", str(target)) == (
        2,
        {"error": f"a report needs Plotly, which is not installed; run: {install_command('report')}"},
    )
    assert not target.exists()


@pytest.mark.regress
def test_a_run_without_report_needs_no_plotly(pixels: str) -> None:
    script = (
        "import sys; sys.modules['plotly'] = None; from lutterfly.host.command.main import main; "
        f"sys.exit(main(['run', {str(MODEL)!r}, '--input', {pixels!r}, '--config', 'tiny']))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_a_run_that_fails_leaves_no_report_and_harms_none(
    tmp_path: Path, pixels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AcceleratorError("stopped", code=0, unit=0)

    monkeypatch.setattr(InferenceSession, "run", fail)
    old = tmp_path / "old.html"
    old.write_text("before")
    for target in (tmp_path / "new.html", old):
        with pytest.raises(AcceleratorError):
            models.run(MODEL, [pixels], [], target, DEFAULT_BACKEND, Target(PRESETS["tiny"], batch=1), lambda *_: None)
    assert not (tmp_path / "new.html").exists()
    assert old.read_text() == "before"
