"""Mutants: a source with one place broken, by operators over its syntax tree or by the list ``mutants.toml``."""

from __future__ import annotations

import ast
import functools
import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mutation.mutant_source import Source, edits
from mutation.mutants_of_hardware import HardwareOperators
from mutation.mutants_of_python import PythonOperators, optional_arguments

ROOT = Path(__file__).parents[3]
LISTED = Path(__file__).with_name("mutants.toml")
#: What has operators of Amaranth, and what has those of plain Python.
HARDWARE, SOFTWARE = ("hdl",), ("golden", "host")
#: What has only the mutants of the list, of Verilog among them.
LISTED_ONLY = ("synth",)


@dataclass(frozen=True)
class Mutant:
    """A source with one place changed.

    Attributes
    ----------
    file : str
        Its path in the checkout.
    name : str
        Says which place, by what stands there rather than by its line, so that it outlives changes elsewhere.
    text : str
        The whole file.
    """

    file: str
    name: str
    text: str


def generated(file: str, text: str) -> list[Mutant]:
    """All mutants of one file that the operators give, each with a name of its own."""
    source, tree, found = Source(text), ast.parse(text), {}
    is_hardware = file.partition("/")[0] in HARDWARE
    operators = HardwareOperators(source, tree) if is_hardware else PythonOperators(source, _optional())
    for place, edit in edits(operators, tree):
        name = f"{file}: {place or 'module'}: {source.shown(edit)}"
        while name in found:
            name += " (again)"
        found[name] = Mutant(file, name, source.changed(edit))
    return list(found.values())


@functools.cache
def _optional() -> Mapping[str, set[str]]:
    return optional_arguments([ast.parse(path.read_text()) for path in sources(*SOFTWARE).values()])


def sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """``count`` of them, each with the same chance; what is added to a file or taken from it moves few others, and so
    does another folder."""

    def rank(mutant: Mutant) -> bytes:
        place = mutant.name.removeprefix(mutant.file)
        return hashlib.sha256(f"{seed} {Path(mutant.file).name}{place}".encode()).digest()

    return sorted(mutants, key=rank)[:count]


@functools.cache
def sources(*folders: str) -> Mapping[str, Path]:
    """The files of some folders, or all that are broken, by their paths in the checkout."""
    paths = [path for folder in folders or (*HARDWARE, *SOFTWARE) for path in sorted((ROOT / folder).rglob("*.py"))]
    names = {path.relative_to(ROOT).as_posix(): path for path in paths}
    # Where hardware is imported only, nothing can be broken.
    return {name: path for name, path in names.items() if path.name != "__init__.py" or not name.startswith(HARDWARE)}


def named() -> list[Mutant]:
    """The mutants of the list that somebody thought of.

    Raises
    ------
    ValueError
        If the text to replace is not found exactly once.
    """
    mutants = []
    for entry in tomllib.loads(LISTED.read_text())["named"]:
        text = (ROOT / entry["file"]).read_text()
        times = text.count(entry["old"])
        if times != 1:
            raise ValueError(f"{entry['name']}: old must stand in {entry['file']} once, not {times} times")
        mutants.append(Mutant(entry["file"], entry["name"], text.replace(entry["old"], entry["new"])))
    return mutants


def reasons(kind: str) -> dict[str, str]:
    """Mutants that are ``equivalent``, or ``uncaught`` all the same, with the reason."""
    return {entry["name"]: entry["reason"] for entry in tomllib.loads(LISTED.read_text()).get(kind, [])}
