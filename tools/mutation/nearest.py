"""Find the tests nearest to a file: those that import it, directly or through other modules."""

from __future__ import annotations

import ast
import functools
import itertools
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from .mutants import ROOT, files

TESTS = "cocotb_tests"
#: Tests of the tree and of its pages, which read sources instead of running them, so that their failure shows nothing.
OF_THE_TREE = f"{TESTS}/project"
#: The number of test files that count as near: more take minutes, and the others are run later with all tests.
NEAREST = 8
PACKAGE = "lutterfly"
#: Folders with modules that tests import.
_FOLDERS = ("boards", "examples", "golden", "hdl", "host", "synth", "train", TESTS)


def nearest(file: str) -> list[str]:
    """Return the test files that are nearest to a file, nearest first.

    Those of its name come first, then those with the fewest imports in between; among these those in folders of the
    same names, and then those that reach the fewest modules, since they are the most specific.
    """
    away = _imports_away(file)
    tests = [name for name in _imported() if Path(name).name.startswith("test_") and not name.startswith(OF_THE_TREE)]
    path = Path(file)
    named = f"test_{path.parent.name if path.stem == '__init__' else path.stem}.py"
    mirrored = f"{TESTS}/{path.parent.as_posix()}/{named}"

    def distance(name: str) -> tuple[bool, int, int, int, str]:
        folders = itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(path.parts, name.split("/")[1:], strict=False)
        )
        is_named = name == mirrored or (Path(name).name == named and away[name] == 1)
        return not is_named, away.get(name, 1), -len(list(folders)), _reach(name), name

    # A test of the same name in the same place may start a program instead of importing it.
    return sorted((name for name in tests if name in away or name == mirrored), key=distance)[:NEAREST]


def _imports_away(file: str) -> dict[str, int]:
    """Return every file that reaches this one, with the number of imports between: 1 for those that import it
    directly."""
    readers: dict[str, set[str]] = {}
    for one, others in _imported().items():
        for other in others:
            readers.setdefault(other, set()).add(one)
    # A file that is not Python is read by the modules beside it.
    beside = {name for name in _imported() if Path(name).parent == Path(file).parent}
    edge = {file} if file.endswith(".py") else beside
    away = dict.fromkeys(edge, 0)
    distance = 0
    while edge:
        distance += 1
        edge = {one for other in edge for one in readers.get(other, ()) if one not in away}
        away |= dict.fromkeys(edge, distance)
    return away


@functools.cache
def _reach(file: str) -> int:
    """Count the files that a file imports, directly and through others."""
    found, edge = set(), {file}
    while edge := {other for one in edge for other in _imported()[one]} - found:
        found |= edge
    return len(found)


@functools.cache
def _imported() -> Mapping[str, set[str]]:
    """Return the imports of each file of the project and of its tests, by paths in the checkout."""
    every = {name for folder in _FOLDERS for name in files(folder, ".py")}
    return {name: {found for found in _imports_of(name) if found in every} for name in sorted(every)}


def _imports_of(file: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.ImportFrom):
            package = file.split("/")[: -node.level] if node.level else []
            module = [*package, *(node.module.split(".") if node.module else [])]
            for parts in (module, *([*module, alias.name] for alias in node.names)):
                yield from _files_of(parts, file)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(alias.name.split("."), file)


def _files_of(parts: list[str], reader: str) -> Iterator[str]:
    """Return possible files of a module: in the package, the checkout or a folder of the tests' path, or beside its
    reader."""
    inside = "/".join(parts[1:] if parts[0] == PACKAGE else parts)
    for folder in ("", *_path_of_tests(), str(Path(reader).parent)):
        place = Path(folder, inside).as_posix()
        yield from (f"{place}.py", f"{place}/__init__.py")


@functools.cache
def _path_of_tests() -> tuple[str, ...]:
    """Return the folders that pytest puts on Python's path."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return tuple(project["tool"]["pytest"]["ini_options"].get("pythonpath", ()))
