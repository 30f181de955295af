"""The Makefile names everything that a machine lacks, before it tries to install or build."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAD = "Lutterfly needs, and this machine lacks:"


def requirements(folder: Path, *programs: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Run `make requirements` where only ``programs`` are installed."""
    for program in programs:
        (folder / program).symlink_to(shutil.which(program))
    command = [shutil.which("make"), "-C", ROOT, "--no-print-directory", "requirements", f"PYTHON={python}"]
    return subprocess.run(command, env={"PATH": str(folder)}, capture_output=True, text=True, timeout=60, check=False)


def test_a_complete_machine_passes_without_a_word(tmp_path: Path):
    result = requirements(tmp_path, "g++", "make", "perl")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_all_missing_programs_are_named_at_once(tmp_path: Path):
    result = requirements(tmp_path, "make", python="nopython")
    assert result.returncode == 2
    python = "  Python 3.11 or later (as nopython; another one: make PYTHON=python3.12)"
    assert result.stderr.splitlines()[:4] == [HEAD, "  g++", "  perl", python]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("exit 1", "  Python 3.11 or later ({python} is older; another one: make PYTHON=python3.12)"),
        ('case "$2" in *venv*) exit 1;; esac', "  Python's venv (on Debian and Ubuntu: apt install python3-venv)"),
    ],
)
def test_a_python_that_does_not_serve_is_named(tmp_path: Path, body: str, line: str):
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    result = requirements(tmp_path, "g++", "make", "perl", python=str(python))
    assert result.stderr.splitlines()[:2] == [HEAD, line.format(python=python)]


@pytest.mark.parametrize("script", ["exit 100", "echo noise; echo trouble >&2"])
def test_a_browser_that_cannot_be_installed_is_no_failure(tmp_path: Path, script: str):
    for program in ("make", "sh", "timeout", "env"):
        (tmp_path / program).symlink_to(shutil.which(program))
    for name, body in (("id", "echo 0"), ("apt-get", f'echo "$*" >> {tmp_path}/asked; {script}')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    command = [shutil.which("make"), "-C", ROOT, "--no-print-directory", "browser"]
    result = subprocess.run(
        command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "Installing Chromium, to open reports in: about a minute, once\n"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0] == "update -qq"
    # An update that fails is the end.
    assert asked[1:] == ([] if "exit" in script else ["install -y -qq --no-install-recommends chromium"])
