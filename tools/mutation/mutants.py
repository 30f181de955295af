"""Mutants: a source with one place broken, drawn from those that the operators give or listed in ``mutants.toml``.

A listed place is found by its module, its function and the text there, so that a file that moves breaks no entry.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .operators import Edit, HardwareOperators, PythonOperators, SourceFile, edits, optional_arguments

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_name("mutants.toml")
#: The folders in which places are drawn.
FOLDERS = ("golden", "hdl", "host", "synth", "train")
#: The folder with operators for Amaranth.
HARDWARE = "hdl"
#: Files that a listed place may be in: Python, and Verilog that is shipped.
_SUFFIXES = (".py", ".vh")
#: An entry of the parsed list.
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Mutant:
    """A source with one place changed.

    Attributes
    ----------
    file : str
        Its path in the checkout.
    function : str
        The qualified name of the function or class with the place; empty for the module's own level.
    change : str
        The line of the place with the change in brackets, so that it outlives changes elsewhere.
    edit : Edit
    listed_as : str
        Its name in the list; empty if an operator gave it.
    equivalent, uncaught : str
        The reason why nothing can differ, or why no test need notice; empty if there is none.
    """

    file: str
    function: str
    change: str
    edit: Edit
    listed_as: str = ""
    equivalent: str = ""
    uncaught: str = ""

    @property
    def folder(self) -> str:
        """The top folder of its file."""
        return self.file.partition("/")[0]

    @property
    def name(self) -> str:
        """The name in results."""
        return self.listed_as or f"{module_of(self.file)}: {self.function or 'module'}: {self.change}"

    @property
    def text(self) -> str:
        """The whole file with the change in it."""
        return _source(self.file).changed(self.edit)


def module_of(file: str) -> str:
    """Return the dotted name of a file; that of a package is its folder's."""
    return file.rpartition(".")[0].removesuffix("/__init__").replace("/", ".")


def generated(file: str, text: str | None = None) -> list[Mutant]:
    """Return all mutants of one file that the operators give; ``text`` is its contents if it is not in the checkout."""
    source = _source(file) if text is None else SourceFile(text)
    tree = ast.parse(source.text)
    is_hardware = file.startswith(f"{HARDWARE}/")
    operators = HardwareOperators(source, tree) if is_hardware else PythonOperators(source, _optional())
    found: dict[tuple[str, str], Mutant] = {}
    for function, edit in edits(operators, tree):
        change = source.shown(edit)
        while (function, change) in found:
            change += " (again)"
        found[function, change] = Mutant(file, function, change, edit)
    return list(found.values())


def drawn(count: int, seed: int) -> list[Mutant]:
    """Draw ``count`` mutants of all folders, in proportion to their places; the same for the same seed.

    A place has the same rank wherever its file is, so that a change elsewhere replaces few of them.
    """

    def rank(mutant: Mutant) -> tuple[bytes, str]:
        place = f"{seed} {mutant.folder} {Path(mutant.file).stem} {mutant.function} {mutant.change}"
        return hashlib.sha256(place.encode()).digest(), mutant.file

    places = {folder: [one for file in files(folder, ".py") for one in generated(file)] for folder in FOLDERS}
    total = sum(map(len, places.values()))
    shares = {folder: divmod(count * len(found), total) for folder, found in places.items()}
    counts = {folder: whole for folder, (whole, _) in shares.items()}
    # The remainder goes to the folders that lose most by rounding down.
    by_rest = sorted(shares, key=lambda folder: shares[folder][1], reverse=True)
    for folder in by_rest[: min(count, total) - sum(counts.values())]:
        counts[folder] += 1
    found = [one for folder, number in counts.items() for one in sorted(places[folder], key=rank)[:number]]
    reasons = _reasons()
    return [replace(one, **reasons.get((one.file, one.function, one.change), {})) for one in found]


def listed() -> list[Mutant]:
    """Return the mutants of the list.

    Raises
    ------
    ValueError
        If entries, of any kind, are not found exactly once; the message names all of them.
    """
    return [
        replace(
            one, listed_as=entry["name"], equivalent=entry.get("equivalent", ""), uncaught=entry.get("uncaught", "")
        )
        for entry, one in _found().get("named", [])
    ]


@functools.cache
def files(folder: str, *suffixes: str) -> tuple[str, ...]:
    """Return the files of a top folder, by their paths in the checkout."""
    paths = sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in (suffixes or _SUFFIXES))
    return tuple(path.relative_to(ROOT).as_posix() for path in paths)


@functools.cache
def _source(file: str) -> SourceFile:
    return SourceFile((ROOT / file).read_text())


@functools.cache
def _optional() -> Mapping[str, set[str]]:
    software = [file for folder in FOLDERS if folder != HARDWARE for file in files(folder, ".py")]
    return optional_arguments([ast.parse(_source(file).text) for file in software])


def _reasons() -> dict[tuple[str, str, str], dict[str, str]]:
    """Return the reasons for which mutants of the operators are equivalent, or uncaught."""
    return {
        (one.file, one.function, one.change): {kind: entry["reason"]}
        for kind in ("equivalent", "uncaught")
        for entry, one in _found().get(kind, [])
    }


@functools.cache
def _found() -> Mapping[str, list[tuple[Entry, Mutant]]]:
    """Find the entries of the list by their kinds, each with its only place.

    A place is looked for in the modules whose names end as the entry says, and then, if it is in none of them, in the
    whole top folder.
    """
    entries = tomllib.loads(LISTED.read_text())
    found: dict[str, list[tuple[Entry, Mutant]]] = {kind: [] for kind in entries}
    lost = []
    for kind, entry in ((kind, entry) for kind, of_kind in entries.items() for entry in of_kind):
        places = _places_of_text if kind == "named" else _places_of_change
        every = files(entry["folder"])
        named = [file for file in every if f".{module_of(file)}".endswith(f".{entry['module']}")]
        hits = [one for file in named for one in places(entry, file)]
        hits = hits or [one for file in every if file not in named for one in places(entry, file)]
        if len(hits) == 1:
            found[kind].append((entry, hits[0]))
        else:
            where = f"{entry['folder']}: {entry['module']}: {entry.get('function') or 'module'}"
            lost.append(f"[[{kind}]] {entry.get('name', entry.get('change'))} ({where}): {len(hits)} places")
    if lost:
        raise ValueError("\n".join([f"each entry of {LISTED.name} must have one place:", *lost]))
    return found


def _places_of_change(entry: Entry, file: str) -> list[Mutant]:
    """Return the places where the operators give the change of an entry."""
    if not file.endswith(".py"):
        return []
    return [one for one in generated(file) if (one.function, one.change) == (entry["function"], entry["change"])]


def _places_of_text(entry: Entry, file: str) -> list[Mutant]:
    """Return the places of an entry's old text in its function, independent of line breaks and indentation."""
    source = _source(file)
    pattern = r"\s+".join(map(re.escape, entry["old"].split()))
    found = []
    for match in re.finditer(pattern, source.text):
        start, end = (len(source.text[:position].encode()) for position in match.span())
        if _function_around(file, start, end) == entry.get("function", ""):
            edit = Edit(start, end, _indented(entry["new"], source.text, match.start()))
            found.append(Mutant(file, entry.get("function", ""), source.shown(edit), edit))
    return found


def _indented(new: str, text: str, position: int) -> str:
    """Indent the further lines of a new text like its first one."""
    line = text[text.rfind("\n", 0, position) + 1 :]
    indent = line[: len(line) - len(line.lstrip())]
    return new.replace("\n", f"\n{indent}")


def _function_around(file: str, start: int, end: int) -> str:
    """Return the innermost function or class that contains a range of bytes; outer ones begin first."""
    around = [name for name, first, last in _functions(file) if first <= start and end <= last]
    return around[-1] if around else ""


@functools.cache
def _functions(file: str) -> list[tuple[str, int, int]]:
    """Yield qualified name, first byte and last of every function and class, in the order of the file."""
    if not file.endswith(".py"):
        return []
    source, found = _source(file), []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            function = f"{function}.{node.name}".lstrip(".")
            found.append((function, *source.span(node)))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(source.text), "")
    return found
