"""An engine is one room: what is its own is named in few places, which a look through the syntax trees finds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from lutterfly.golden.engines import ENGINES

ROOT = Path(__file__).parents[2]
ROOMS = {engine.name.lower() for engine in ENGINES.values()}
#: Besides the room of the engine itself, which is ``golden/engines/<name>/``.
PLACES = (
    # The tables.
    "golden/engines/__init__.py",
    "golden/engines/specifications.py",
    "golden/presets.py",
    # The engine that every configuration has, and those of a configuration that does not say.
    "golden/config.py",
    "hdl/engines/*.py",
    # It draws what the array and its engines can do at most.
    "host/report/figures.py",
    "host/compiler/lower/*.py",
)
#: What other parts of the project may take of a room: numbers that are part of how they compute, and its butterfly.
SHARED = {
    # Engines that work on the multipliers of the array, or as it does.
    *((f"golden/engines/{room}/specification.py", "mac") for room in ("depthwise", "fpc", "xnor")),
    ("golden/engines/binary_maximum/specification.py", "maximum"),
    ("hdl/butterfly/stage_sum.py", "fpc"),
    ("hdl/butterfly/butterfly.py", "fpc"),
}


def named(place: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and room of everything that is taken from an engine's room, or is the engine itself."""
    package = place.split("/")[:-1]
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*base, *filter(None, [node.module])]).removeprefix("lutterfly.")
        for alias in node.names:
            parts = f"{module}.{alias.name}".split(".")
            if parts[:2] == ["golden", "engines"] and parts[2].lower() in ROOMS:
                yield node.lineno, parts[2].lower()


def own_fields(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and room of every name of an engine where fields are taken: ``step.fields.fpc``."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Attribute(attr="fields"), attr=room) if room in ROOMS:
                yield node.lineno, room


@pytest.mark.parametrize(
    ("place", "text", "room"),
    [
        ("host/x.py", "from lutterfly.golden.engines import ENGINES, ADD", "add"),
        ("host/compiler/x.py", "from ...golden.engines import ADD", "add"),
        ("hdl/dma/x.py", "from ...golden.engines.fpc.configuration import FpcConfig", "fpc"),
        ("golden/x.py", "from .engines.fpc import FPC", "fpc"),
        ("golden/engines/add/x.py", "from ..fpc import FPC", "fpc"),
    ],
)
def test_a_name_is_found(place: str, text: str, room: str) -> None:
    assert set(named(place, ast.parse(text))) == {(1, room)}


def test_other_modules_of_its_name_are_no_rooms() -> None:
    assert list(named("golden/x.py", ast.parse("from .fpc import Stages"))) == []


def test_fields_are_found() -> None:
    assert list(own_fields(ast.parse("x = self.step.fields.fpc.stages"))) == [(1, "fpc")]


def test_engines_are_named_in_their_rooms_only() -> None:
    wrong = [
        f"{place}:{line}: {room}"
        for folder in ("golden", "hdl", "synth", "host", "bench", "examples", "train")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for tree in [ast.parse(path.read_text())]
        for place in [path.relative_to(ROOT).as_posix()]
        for line, room in [*named(place, tree), *own_fields(tree)]
        if not place.startswith(f"golden/engines/{room}/")
        and not any(fnmatch(place, pattern) for pattern in PLACES)
        and (place, room) not in SHARED
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
