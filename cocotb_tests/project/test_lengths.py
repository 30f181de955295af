"""Files and functions are short enough to be read at once; what is longer has a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("golden", "hdl", "host", "boards", "synth", "train", "examples")
#: Lines of a file, and of a function with its signature and docstring, at most.
FILE_LINES, FUNCTION_LINES = 250, 60
#: What is longer for good, and why: a file by its path, a function as ``path:name``.
EXCEPTIONS: dict[str, str] = {}


def sources() -> Iterator[tuple[str, str]]:
    """Every file, by its path in the checkout."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


def too_long(name: str, text: str) -> Iterator[tuple[str, int]]:
    """The file, if it is too long, and its functions that are, with their lines."""
    if (lines := len(text.splitlines())) > FILE_LINES:
        yield name, lines
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{name}:{node.name}", lines


def test_files_and_functions_are_short():
    found = {place: lines for name, text in sources() for place, lines in too_long(name, text)}
    assert {place: lines for place, lines in found.items() if place not in EXCEPTIONS} == {}, (
        "divide it along what it does, or give the reason in EXCEPTIONS"
    )
    assert EXCEPTIONS.keys() - found.keys() == set(), "it is short enough now: take it out of the list"


def test_exceptions_have_a_reason():
    assert [place for place, reason in EXCEPTIONS.items() if len(reason.split()) < 5] == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(FUNCTION_LINES, {}), (FUNCTION_LINES + 1, {"x.py:long": FUNCTION_LINES + 1})],
)
def test_a_long_function_is_seen(lines: int, expected: dict[str, int]):
    text = "class Some:\n    def long(self):\n" + "        pass\n" * (lines - 1)
    assert dict(too_long("x.py", text)) == expected


def test_a_long_file_is_seen():
    assert dict(too_long("x.py", "a = 1\n" * FILE_LINES)) == {}
    assert dict(too_long("x.py", "a = 1\n" * (FILE_LINES + 1))) == {"x.py": FILE_LINES + 1}
