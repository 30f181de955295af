"""What a file takes from the package stands where the file looks for it: known before the tests of a change run."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Folders whose modules need an extra to be imported (PyTorch): `make test-train` imports them.
NEED_EXTRAS = ("lutterfly.train", "lutterfly.examples")
FILES = [Path(name) for name in subprocess.check_output(["git", "ls-files", "*.py"], cwd=ROOT, text=True).splitlines()]


def missing(text: str) -> list[str]:
    """Give the absolute imports of ``text`` from the package that name what its modules do not have, with lines."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or node.level or (node.module or "").partition(".")[0] != "lutterfly":
            continue
        if node.module.startswith(NEED_EXTRAS):
            continue
        if importlib.util.find_spec(node.module) is None:
            found.append(f"line {node.lineno}: no module {node.module}")
            continue
        module = importlib.import_module(node.module)
        for name in (alias.name for alias in node.names):
            is_module = hasattr(module, "__path__") and importlib.util.find_spec(f"{node.module}.{name}") is not None
            if not is_module and not hasattr(module, name):
                found.append(f"line {node.lineno}: {node.module} has no {name}")
    return found


@pytest.mark.parametrize("path", FILES, ids=str)
def test_what_is_imported_exists(path):
    assert not missing((ROOT / path).read_text())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from lutterfly.hdl.parts.assertions import ASSERTED", "has no ASSERTED"),
        ("from lutterfly.hdl.parts.assertion import Assertions", "no module lutterfly.hdl.parts.assertion"),
    ],
)
def test_what_moved_away_is_noticed(text, message):
    assert message in missing(text)[0]
