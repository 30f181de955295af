"""Tests that are skipped: CI fails where the reason is not in the list."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cocotb_tests.support.oracles import skips

TESTS = "import pytest\ndef test_runs(): pass\ndef test_is_left_out(): pytest.skip({reason!r})\n"


def run(folder: Path, reason: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_skipped.py").write_text(TESTS.format(reason=reason))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "cocotb_tests.support.oracles.skips",
        "-c",
        os.devnull,
        "-q",
        "--rootdir",
        str(folder),
        *options,
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(skips.__file__).parents[3])}
    return subprocess.run([*command, str(folder)], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_unknown_reason_fails(tmp_path: Path, workers: str) -> None:
    found = run(tmp_path, "the moon is full", "--known-skips", "-n", workers)
    assert found.returncode == pytest.ExitCode.TESTS_FAILED
    assert "skipped for a reason that support/oracles/skips.py does not know: the moon is full" in found.stdout


def test_known_reasons_pass(tmp_path: Path) -> None:
    assert run(tmp_path, "a small disk needs the right to mount one", "--known-skips").returncode == pytest.ExitCode.OK


def test_nothing_fails_unless_asked(tmp_path: Path) -> None:
    assert run(tmp_path, "the moon is full").returncode == pytest.ExitCode.OK


def test_ci_asks() -> None:
    script = (Path(__file__).parents[2] / ".ci" / "run").read_text()
    assert script.count("--known-skips") == script.count("PYTEST_OPTIONS=") == 3
    assert skips.unknown(["the `synth` extra is not installed"]) == ["the `synth` extra is not installed"]
