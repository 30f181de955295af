"""Mutants of a hardware source: the same file with one place broken, by operators over its syntax tree.

Source: DeMillo, Lipton and Sayward, "Hints on test data selection", 1978; the operators are those that fit Amaranth.
"""

from __future__ import annotations

import ast
import hashlib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_name("mutants.toml")

_COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
_OPERATORS = {
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
}
_METHODS = {"any": "all", "all": "any"}
#: Signals that say whether something is there, by the ends of their names.
_FLAGS = ("valid", "ready", "enable", "en")
_SHAPES = ("Signal", "range", "signed", "unsigned")
#: Ports, whose widths are those of what they carry, and what only simulations look at.
_NO_HARDWARE = ("In", "Out", "never")
_LONGEST = 70


@dataclass(frozen=True)
class Mutant:
    """A source of the hardware with one place changed.

    Attributes
    ----------
    file : str
        Its name in ``hdl``.
    name : str
        Says which place, by what stands there rather than by its line, so that it outlives changes elsewhere.
    text : str
        The whole file.
    """

    file: str
    name: str
    text: str


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    new: str


class _Source:
    """A file's text, with the positions that the syntax tree uses."""

    def __init__(self, text: str):
        self.text = text
        self.encoded = text.encode()
        self._lines = [0]
        for line in self.encoded.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def span(self, node) -> tuple[int, int]:
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def of(self, node) -> str:
        start, end = self.span(node)
        return self.encoded[start:end].decode()

    def replace(self, node, new: str) -> _Edit:
        return _Edit(*self.span(node), new)

    def between(self, left, right, old: str, new: str) -> _Edit:
        """Replace the operator ``old`` that stands between two operands."""
        start = self.encoded.index(old.encode(), self.span(left)[1], self.span(right)[0])
        return _Edit(start, start + len(old), new)

    def changed(self, edit: _Edit) -> str:
        return (self.encoded[: edit.start] + edit.new.encode() + self.encoded[edit.end :]).decode()


def _is_call(node, *names: str) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)) in names


def _of_expression(source: _Source, node: ast.expr, *, is_width: bool) -> Iterator[_Edit]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARISONS:
            yield source.between(left, right, *_COMPARISONS[type(operator)])
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            yield source.between(left, right, *_OPERATORS[type(operator)])
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            yield source.replace(node, source.of(operand))
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            # A wider signal seldom makes a difference, and there is none of no bits.
            if not is_width:
                yield source.replace(node, str(value + 1))
            if value > int(is_width):
                yield source.replace(node, str(value - 1))
        case ast.Call(func=ast.Attribute(attr=attribute), args=[]) if attribute in _METHODS:
            start, end = source.span(node.func)
            yield _Edit(end - len(attribute), end, _METHODS[attribute])
        case ast.Call(args=[_, first, second]) if _is_call(node, "Mux"):
            start, end = source.span(first)[0], source.span(second)[1]
            yield _Edit(start, end, f"{source.of(second)}, {source.of(first)}")
        case ast.Call(args=[condition]) if _is_call(node, "If", "Elif"):
            # Widened with the condition, so that names in it count as used.
            yield source.replace(condition, f"({source.of(condition)}) & 0")
            yield source.replace(condition, f"({source.of(condition)}) | 1")
        case ast.Call(func=ast.Attribute(value=target, attr="eq"), args=[value]):
            if source.of(target).endswith(_FLAGS) and not isinstance(value, ast.Constant):
                yield source.replace(value, "1")
        case ast.Call(args=[_, value, cycles]) if _is_call(node, "delay"):
            yield source.replace(cycles, f"{source.of(cycles)} + 1")


def _of_statement(source: _Source, node: ast.stmt) -> Iterator[_Edit]:
    match node:
        case ast.AugAssign(target=ast.Attribute(value=ast.Attribute(attr="d")), value=ast.List(elts=elements)):
            for element in elements:
                yield source.replace(element, "*[]")
        case ast.AugAssign(target=ast.Attribute(value=ast.Attribute(attr="d")), value=value):
            yield source.replace(value, "[]")
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="m"), attr="next")]):
            yield source.replace(node, "pass")


def _edits(source: _Source, node: ast.AST, place: str, *, is_width: bool = False) -> Iterator[tuple[str, _Edit]]:
    """Edits of ``node`` and of all below it, with the function that they are in."""
    if isinstance(node, ast.stmt):
        yield from ((place, edit) for edit in _of_statement(source, node))
    elif isinstance(node, ast.expr):
        yield from ((place, edit) for edit in _of_expression(source, node, is_width=is_width))
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        place = f"{place}.{node.name}".lstrip(".")
    for child in ast.iter_child_nodes(node):
        # Messages and types have no effect on the hardware; inside of f-strings positions are not told.
        skipped = isinstance(child, ast.Raise | ast.JoinedStr | ast.arguments) or _is_call(child, *_NO_HARDWARE)
        if skipped or (isinstance(node, ast.FunctionDef) and child is node.returns):
            continue
        is_shape = _is_call(node, *_SHAPES) and child in node.args
        yield from _edits(source, child, place, is_width=is_width or is_shape)


def _shown(source: _Source, edit: _Edit) -> str:
    """The line or lines around an edit, with what it does, in one short line."""
    old = source.encoded[edit.start : edit.end].decode()
    begin = source.encoded.rfind(b"\n", 0, edit.start) + 1
    end = source.encoded.find(b"\n", edit.end)
    before, after = source.encoded[begin : edit.start].decode(), source.encoded[edit.end : end].decode()

    def short(text: str, *, keep_end: bool = False) -> str:
        text = " ".join(text.split())
        if len(text) <= _LONGEST:
            return text
        return "..." + text[-_LONGEST:] if keep_end else text[:_LONGEST] + "..."

    return f"{short(before, keep_end=True)} [{short(old)} -> {short(edit.new)}] {short(after)}".strip()


def generated(file: str, text: str) -> list[Mutant]:
    """All mutants of one file that the operators give, each with a name of its own."""
    source, found = _Source(text), {}
    for place, edit in _edits(source, ast.parse(text), ""):
        name = f"{file}: {place or 'module'}: {_shown(source, edit)}"
        while name in found:
            name += " (again)"
        found[name] = Mutant(file, name, source.changed(edit))
    return list(found.values())


def sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """``count`` of them, each with the same chance; what is added to a file or taken from it moves few others."""
    return sorted(mutants, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest())[:count]


def sources() -> dict[str, Path]:
    """The hardware's files by their names, of which no two are alike."""
    return {path.name: path for path in sorted((ROOT / "hdl").rglob("*.py")) if path.name != "__init__.py"}


def named() -> list[Mutant]:
    """The mutants of the list that somebody thought of.

    Raises
    ------
    ValueError
        If the text to replace is not found exactly once.
    """
    mutants = []
    for entry in tomllib.loads(LISTED.read_text())["named"]:
        text = sources()[entry["file"]].read_text()
        times = text.count(entry["old"])
        if times != 1:
            raise ValueError(f"{entry['name']}: old must stand in {entry['file']} once, not {times} times")
        mutants.append(Mutant(entry["file"], entry["name"], text.replace(entry["old"], entry["new"])))
    return mutants


def reasons(kind: str) -> dict[str, str]:
    """Mutants that are ``equivalent``, or ``uncaught`` all the same, with the reason."""
    return {entry["name"]: entry["reason"] for entry in tomllib.loads(LISTED.read_text()).get(kind, [])}
