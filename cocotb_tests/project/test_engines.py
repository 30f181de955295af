"""An engine is one room: its code is named in few places, which a look through the syntax trees finds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from lutterfly.golden.isa import Engine

ROOT = Path(__file__).parents[2]
#: Besides the specification of the engine itself, which is ``golden/engines/<name>.py``.
PLACES = (
    "golden/isa.py",
    # The presets, and the engine that every configuration has.
    "golden/config.py",
    "hdl/engines/*.py",
    "host/compiler/lower/*.py",
)


def named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every engine that is named, as ``Engine.MAC`` or as ``Engine["MAC"]``."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name("Engine") | ast.Attribute(attr="Engine"), attr=name):
                pass
            case ast.Subscript(
                value=ast.Name("Engine") | ast.Attribute(attr="Engine"), slice=ast.Constant(value=str(name))
            ):
                pass
            case _:
                continue
        if name in Engine.__members__:
            yield node.lineno, name


@pytest.mark.parametrize("text", ["Engine.ADD", "isa.Engine.ADD", "x == isa.Engine['ADD']"])
def test_a_name_is_found(text: str) -> None:
    assert list(named(ast.parse(text))) == [(1, "ADD")]


def test_engines_are_named_in_their_rooms_only() -> None:
    wrong = [
        f"{place}:{line}: {name}"
        for folder in ("golden", "hdl", "synth", "host", "bench", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in named(ast.parse(path.read_text()))
        if (place := path.relative_to(ROOT).as_posix()) != f"golden/engines/{name.lower()}.py"
        and not any(fnmatch(place, pattern) for pattern in PLACES)
    ]
    assert wrong == []


def test_no_component_is_told_by_its_kind() -> None:
    """Hardware asks what an engine has, not what it is."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("compute", "control", "dma", "memories")
        for path in sorted((ROOT / "hdl" / folder).glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("isinstance", "issubclass")
    ]
    assert wrong == []
