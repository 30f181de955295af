"""The command line without the simulator: answers, refusals, exit codes, the demo, and what is not imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS, ROUTED_MHZ
from lutterfly.golden.program.program import Program
from lutterfly.host import InferenceSession
from lutterfly.host.command import demo
from lutterfly.host.command.main import main
from lutterfly.host.program import Speed

MODEL = str(digits.model_path("qop"))


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    code = main([*words, "--json"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    return code, json.loads(lines[0])


def test_the_command_line_imports_little() -> None:
    heavy = ("amaranth", "onnx", "onnxruntime", "plotly", "rich")
    script = f"import sys, lutterfly.host.command.main; print([name for name in {heavy} if name in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
        == "[]"
    )


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    code, values = answer(capsys, "check", MODEL)
    assert code == 0
    assert values["macs"] == 418_112
    assert values["predicted_cycles"] > values["macs"] / PRESETS["ecp5-85k"].multipliers
    assert [layer["where"] for layer in values["layers"]] == ["host", *7 * ["accelerator"], "host"]
    assert main(["check", MODEL]) == 0
    assert "3x3" in capsys.readouterr().out


@pytest.mark.regress
def test_times_at_a_clock(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """That of the preset, or one that is given."""
    image = tmp_path / "image.npy"
    np.save(image, digits.images()[:1])
    for words, mhz in (
        (["check", MODEL], ROUTED_MHZ["ecp5-85k"]),
        (["check", MODEL, "--mhz", "80"], 80.0),
        (["run", MODEL, "--input", str(image), "--backend", "golden", "--mhz", "25"], 25.0),
    ):
        code, values = answer(capsys, *words)
        assert code == 0
        cycles, times = values["predicted_cycles"], Speed(mhz)
        assert values.items() >= times.values(cycles, 1).items()
        assert main(words) == 0
        assert f"{times.text(cycles, 1)}\n" in capsys.readouterr().out
    _, values = answer(capsys, "check", MODEL, "--config", "tiny", "--cores", "2")
    assert "mhz" not in values


def test_compile_for_a_configuration_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config, output = tmp_path / "config.json", tmp_path / "digits.program"
    config.write_text(PRESETS["tiny"].to_json())
    code, values = answer(capsys, "compile", MODEL, "-o", str(output), "--config", str(config))
    assert code == 0
    assert values["file_bytes"] == output.stat().st_size
    assert Program.from_bytes(output.read_bytes()).config_hash == PRESETS["tiny"].hash


@pytest.mark.sampled(11)
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["check", "nothing.onnx"], "nothing.onnx: must be a file that can be read: No such file or directory"),
        (["check", __file__], f"{__file__}: must be an ONNX file; export the network to ONNX"),
        (["check", MODEL, "--config", "huge"], f"config must be one of {', '.join(PRESETS)} or a JSON file, not huge"),
        (
            ["check", MODEL, "--config", "none.json"],
            "none.json: must be a configuration file, and there is none; name a file, or a preset: tiny, ecp5-85k",
        ),
        (["check", MODEL, "--mhz", "0"], "mhz must be between 1 and 2000, the clock in MHz, not 0"),
        (["compile", MODEL, "-o", "/nowhere/x"], "/nowhere/x: cannot be written: No such file or directory"),
        (["run", MODEL], "Missing option '--input'."),
        (["run", MODEL, "--input", "x=x.npy"], "input must be one of pixels, not x"),
        (["run", MODEL, "--input", __file__], f"{__file__}: must be a NumPy file (.npy): "),
        (["run", MODEL, "--input", "x.npy", "--batch", "2"], "node_conv2d_quant: batch must be 1 for a network with "),
        (["compile", MODEL, "-o", "x", "--batch", "2"], "node_conv2d_quant: batch must be 1 for a network with "),
        (["verify", MODEL, "--batch", "2"], "node_conv2d_quant: batch must be 1 for a network with "),
        (["verify", MODEL, "--batch", "0"], "Invalid value for '--batch': "),
        (["demo", "--form", "none"], "form must be one of qdq, qop, uint8, not none"),
        (["verify", MODEL, "--samples", "0"], "Invalid value for '--samples': "),
    ],
)
def test_refuses_in_one_line(capsys: pytest.CaptureFixture[str], words: list[str], error: str) -> None:
    code, values = answer(capsys, *words)
    assert code == 2
    assert values.keys() == {"error"}
    assert values["error"].startswith(error)
    assert main(words) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert error in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.sampled(2)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_inputs_are_finite(capsys: pytest.CaptureFixture[str], tmp_path: Path, value: float) -> None:
    pixels, target = digits.images()[:2].astype(np.float32), tmp_path / "pixels.npy"
    pixels[1, 0, 2, 3] = value
    np.save(target, pixels)
    code, values = answer(capsys, "run", MODEL, "--input", str(target))
    assert (code, values) == (2, {"error": f"{target}: input pixels must be finite, not {value} at [1, 0, 2, 3]"})


WORDS = [
    *("check", "compile", "run", "verify", "quantize", MODEL, "nothing.onnx", "", ".", "-", "--", "x=", "=x", "\udcff"),
    *("--config", "tiny", "huge", "--json", "--input", "--output", "-o", "--batch", "-1", "0", "1" * 30, "1.5", "nan"),
    *("--samples", "--seed", "--calibrate", "--report", "--version", "--help", "--unknown"),
    *("table", "--from", "--to", "--operator", "--plot", "q3.4", "q9.9", "Tanh", "Softmax", "Elu:alpha=1"),
]


@pytest.mark.regress
@settings(derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.sampled_from(WORDS) | st.text(st.characters(exclude_characters="\0"), max_size=4), max_size=7))
def test_any_command_line_is_answered(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is raised, and what is refused is refused with a message, for scripts as an object."""
    monkeypatch.chdir(tmp_path)
    if words[:1] == ["verify"] or {"verilog", "synth", "demo"} & set(words):
        # Simulation takes longer than all of the others.
        words = ["--json", *words]
    code = main(words)
    shown = capsys.readouterr()
    assert code in (0, 2)
    assert shown.out or shown.err
    if code and "--json" in words:
        assert json.loads(shown.out).keys() == {"error"}


# The demo: what it says of some digits, and how it shows them.


@pytest.mark.regress
@needs_reference
def test_what_it_says_is_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = digits.images()[:6], digits.labels()[:6]
    monkeypatch.setattr(digits, "images", lambda: images)
    monkeypatch.setattr(digits, "labels", lambda: labels)
    config = PRESETS["tiny"]
    found = demo.run(config)
    session = InferenceSession(digits.model_path("qdq"), config)
    logits = session.run(None, {"pixels": images})[0]
    np.testing.assert_array_equal(found.predictions, logits.argmax(axis=1))
    np.testing.assert_array_equal(found.reference_predictions, found.predictions)
    assert (found.bytes, found.mismatched_bytes) == (logits.nbytes, 0)
    # The first image's program is not resident yet.
    cycles = [counters["cycles"] for counters in session.counters]
    assert found.cycles == cycles[-1] < cycles[0]
    assert found.predicted_cycles == session.program.predicted_cycles
    assert found.utilisation == found.macs / (cycles[-1] * config.multipliers)
    assert found.is_right


def test_images_side_by_side_in_shades() -> None:
    images = np.array([[[[0, 0.1], [0.55, 1]]], [[[0.99, 0.05], [1, 0]]]], np.float32)
    assert demo.picture(images) == "  ..   @@  \n++@@   @@  "
