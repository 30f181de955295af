"""A Python source in which single places are replaced, and what they are called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
_LONGEST = 70


@dataclass(frozen=True)
class Edit:
    """What to put in the place of some bytes."""

    start: int
    end: int
    new: str


class Source:
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

    def replace(self, node, new: str) -> Edit:
        return Edit(*self.span(node), new)

    def between(self, left, right, old: str, new: str) -> Edit:
        """Replace the operator ``old`` that stands between two operands."""
        start = self.encoded.index(old.encode(), self.span(left)[1], self.span(right)[0])
        return Edit(start, start + len(old), new)

    def changed(self, edit: Edit) -> str:
        return (self.encoded[: edit.start] + edit.new.encode() + self.encoded[edit.end :]).decode()

    def shown(self, edit: Edit) -> str:
        """The line or lines around an edit, with what it does, in one short line."""
        old = self.encoded[edit.start : edit.end].decode()
        begin = self.encoded.rfind(b"\n", 0, edit.start) + 1
        end = self.encoded.find(b"\n", edit.end)
        before, after = self.encoded[begin : edit.start].decode(), self.encoded[edit.end : end].decode()

        def short(text: str, *, keep_end: bool = False) -> str:
            text = " ".join(text.split())
            if len(text) <= _LONGEST:
                return text
            return "..." + text[-_LONGEST:] if keep_end else text[:_LONGEST] + "..."

        return f"{short(before, keep_end=True)} [{short(old)} -> {short(edit.new)}] {short(after)}".strip()


class Operators(Protocol):
    """How places of a file are broken."""

    def of_statement(self, node: ast.stmt) -> Iterator[Edit]:
        """Edits of a statement as a whole."""

    def of_expression(self, node: ast.expr) -> Iterator[Edit]:
        """Edits of an expression as a whole."""

    def skips(self, node: ast.AST, child: ast.AST) -> bool:
        """Whether nothing is broken in a child of a node."""


def edits(operators: Operators, node: ast.AST, place: str = "") -> Iterator[tuple[str, Edit]]:
    """Edits of ``node`` and of all below it, with the function that they are in."""
    if isinstance(node, ast.stmt):
        yield from ((place, edit) for edit in operators.of_statement(node))
    elif isinstance(node, ast.expr):
        yield from ((place, edit) for edit in operators.of_expression(node))
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        place = f"{place}.{node.name}".lstrip(".")
    for child in ast.iter_child_nodes(node):
        if not operators.skips(node, child):
            yield from edits(operators, child, place)


def is_call(node: ast.AST, *names: str) -> bool:
    """Whether a node calls a function or method of one of these names."""
    return isinstance(node, ast.Call) and called(node) in names


def called(node: ast.Call) -> str | None:
    """The name of the function or method that is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
