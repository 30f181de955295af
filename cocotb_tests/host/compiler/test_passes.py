"""The compiler's page names its passes as they are, in their order, and files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import lutterfly.host.compiler as compiler

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "compiler.md").read_text()
ROWS = re.findall(r"^\| (\w+) \| (`.+?`) \| .+ \|$", PAGE.split("| pass |")[1].split("\n\n")[0], re.MULTILINE)


def test_the_table_has_every_pass_in_its_order() -> None:
    assert [name for name, _ in ROWS] == [step.name for step in compiler.PASSES]


def test_the_files_of_the_table_exist() -> None:
    folder = Path(compiler.__file__).parent
    names = [name for _, files in ROWS for name in re.findall("`(.+?)`", files)]
    assert [name for name in names if not list(folder.glob(name))] == []
