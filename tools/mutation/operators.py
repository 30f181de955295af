"""Operators that break a source in single places, over its syntax tree: Amaranth's, and those of plain Python.

Source: DeMillo, Lipton and Sayward, "Hints on test data selection", 1978.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

_COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
#: Characters of a line that are shown before a change, in it and after it.
_LONGEST = 70


@dataclass(frozen=True)
class Edit:
    """A replacement of a range of bytes."""

    start: int
    end: int
    new: str


class SourceFile:
    """The text of a file, with the positions of the syntax tree."""

    def __init__(self, text: str):
        self.text = text
        self.encoded = text.encode()
        self._lines = [0]
        for line in self.encoded.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def span(self, node) -> tuple[int, int]:
        """Return the first byte of a node, and the one after its last."""
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def of(self, node) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.encoded[start:end].decode()

    def replace(self, node, new: str) -> Edit:
        """Replace a node by ``new``."""
        return Edit(*self.span(node), new)

    def between(self, left, right, old: str, new: str) -> Edit:
        """Replace the operator ``old`` between two operands."""
        start = self.encoded.index(old.encode(), self.span(left)[1], self.span(right)[0])
        return Edit(start, start + len(old), new)

    def changed(self, edit: Edit) -> str:
        """Return the whole file after an edit."""
        return (self.encoded[: edit.start] + edit.new.encode() + self.encoded[edit.end :]).decode()

    def shown(self, edit: Edit) -> str:
        """Describe an edit, with the code around it, in one short line."""
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
    """Mutation operators of a kind of source."""

    def of_statement(self, node: ast.stmt) -> Iterator[Edit]:
        """Yield edits of a statement as a whole."""

    def of_expression(self, node: ast.expr) -> Iterator[Edit]:
        """Yield edits of an expression as a whole."""

    def skips(self, node: ast.AST, child: ast.AST) -> bool:
        """Return whether a child of a node is left unchanged."""


def edits(operators: Operators, node: ast.AST, function: str = "") -> Iterator[tuple[str, Edit]]:
    """Yield edits of ``node`` and of all nodes below it, each with the qualified name of its function or class."""
    if isinstance(node, ast.stmt):
        yield from ((function, edit) for edit in operators.of_statement(node))
    elif isinstance(node, ast.expr):
        yield from ((function, edit) for edit in operators.of_expression(node))
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        function = f"{function}.{node.name}".lstrip(".")
    for child in ast.iter_child_nodes(node):
        if not operators.skips(node, child):
            yield from edits(operators, child, function)


def is_call(node: ast.AST, *names: str) -> bool:
    """Return whether a node calls a function or method of one of these names."""
    return isinstance(node, ast.Call) and called(node) in names


def called(node: ast.Call) -> str | None:
    """Return the name of the called function or method."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)


_HARDWARE_OPERATORS = {
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
}
_METHODS = {"any": "all", "all": "any"}
#: Signals that mark valid data, by the ends of their names.
_FLAGS = ("valid", "ready", "enable", "en")
_SHAPES = ("Signal", "range", "signed", "unsigned")
#: Ports, whose widths are given by their users, and functions that only simulations use.
_NO_HARDWARE = ("In", "Out", "never")


class HardwareOperators:
    """See :class:`Operators`."""

    def __init__(self, source: SourceFile, tree: ast.Module):
        self._source = source
        shapes = [argument for call in ast.walk(tree) if is_call(call, *_SHAPES) for argument in call.args]
        self._widths = {node for shape in shapes for node in ast.walk(shape)}

    def of_expression(self, node: ast.expr) -> Iterator[Edit]:
        source = self._source
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARISONS:
                yield source.between(left, right, *_COMPARISONS[type(operator)])
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _HARDWARE_OPERATORS:
                yield source.between(left, right, *_HARDWARE_OPERATORS[type(operator)])
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                yield source.replace(node, source.of(operand))
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                # A wider signal seldom makes a difference, and a signal has at least one bit.
                is_width = node in self._widths
                if not is_width:
                    yield source.replace(node, str(value + 1))
                if value > int(is_width):
                    yield source.replace(node, str(value - 1))
            case ast.Call(func=ast.Attribute(attr=attribute), args=[]) if attribute in _METHODS:
                start, end = source.span(node.func)
                yield Edit(end - len(attribute), end, _METHODS[attribute])
            case ast.Call(args=[_, first, second]) if is_call(node, "Mux"):
                start, end = source.span(first)[0], source.span(second)[1]
                yield Edit(start, end, f"{source.of(second)}, {source.of(first)}")
            case ast.Call(args=[condition]) if is_call(node, "If", "Elif"):
                # The condition is part of the result, so that names in it count as used.
                yield source.replace(condition, f"({source.of(condition)}) & 0")
                yield source.replace(condition, f"({source.of(condition)}) | 1")
            case ast.Call(func=ast.Attribute(value=target, attr="eq"), args=[value]):
                if source.of(target).endswith(_FLAGS) and not isinstance(value, ast.Constant):
                    yield source.replace(value, "1")
            case ast.Call(args=[_, value, cycles]) if is_call(node, "delay"):
                yield source.replace(cycles, f"{source.of(cycles)} + 1")

    def of_statement(self, node: ast.stmt) -> Iterator[Edit]:
        source = self._source
        match node:
            case ast.AugAssign(target=ast.Attribute(value=ast.Attribute(attr="d")), value=ast.List(elts=elements)):
                for element in elements:
                    yield source.replace(element, "*[]")
            case ast.AugAssign(target=ast.Attribute(value=ast.Attribute(attr="d")), value=value):
                yield source.replace(value, "[]")
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="m"), attr="next")]):
                yield source.replace(node, "pass")

    def skips(self, node: ast.AST, child: ast.AST) -> bool:
        # Messages and types have no effect on the hardware; positions inside f-strings are not known.
        return (
            isinstance(child, ast.Raise | ast.JoinedStr | ast.arguments)
            or is_call(child, *_NO_HARDWARE)
            or (isinstance(node, ast.FunctionDef) and child is node.returns)
        )


_PYTHON_COMPARISONS = {
    **_COMPARISONS,
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
_PYTHON_OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
}
_SWAPPED = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
    "argmin": "argmax",
    "argmax": "argmin",
    "floor": "ceil",
    "ceil": "floor",
}
#: Optional arguments of functions of other packages.
_OPTIONAL = {"axis", "default", "keepdims", "key", "initial", "reverse", "start", "side"}
#: Texts for people, which no test has to check.
_SPOKEN = ("__repr__", "__str__", "print", "add_argument", "add_parser", "warn", "field")
#: Arguments that are names of things.
_TEXT = ("__all__", "__doc__")


def optional_arguments(trees: list[ast.Module]) -> Mapping[str, set[str]]:
    """Return the arguments with a default, by the names of the functions, methods and dataclasses that take them."""
    found: dict[str, set[str]] = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef):
            positional = [*node.args.posonlyargs, *node.args.args]
            given = positional[len(positional) - len(node.args.defaults) :]
            given += [one for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if default]
            found.setdefault(node.name, set()).update(one.arg for one in given)
        elif isinstance(node, ast.ClassDef):
            fields = [line for line in node.body if isinstance(line, ast.AnnAssign) and line.value is not None]
            found.setdefault(node.name, set()).update(getattr(line.target, "id", "") for line in fields)
    return found


class PythonOperators:
    """See :class:`Operators`.

    Parameters
    ----------
    source : SourceFile
    optional : mapping
        The result of :func:`optional_arguments`.
    """

    def __init__(self, source: SourceFile, optional: Mapping[str, set[str]]):
        self._source, self._optional = source, optional

    def of_expression(self, node: ast.expr) -> Iterator[Edit]:
        source = self._source
        match node:
            case ast.Compare(left=left, ops=operators, comparators=comparators):
                operands = [left, *comparators]
                for operator, one, other in zip(operators, operands, comparators, strict=False):
                    if type(operator) in _PYTHON_COMPARISONS:
                        yield source.between(one, other, *_PYTHON_COMPARISONS[type(operator)])
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _PYTHON_OPERATORS:
                # Texts and paths are not numbers.
                if not any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (left, right)):
                    yield source.between(left, right, *_PYTHON_OPERATORS[type(operator)])
            case ast.BoolOp(op=operator, values=values):
                old, new = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
                for one, other in itertools.pairwise(values):
                    yield source.between(one, other, old, new)
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                yield source.replace(node, f"({source.of(operand)})")
            case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
                yield source.replace(node, source.of(operand))
            case ast.Constant(value=bool(value)):
                yield source.replace(node, str(not value))
            case ast.Constant(value=int(value)):
                yield source.replace(node, str(value + 1))
                if value > 0:
                    yield source.replace(node, str(value - 1))
            case ast.Slice(lower=lower, upper=upper):
                for bound in (lower, upper):
                    if bound is not None and not isinstance(bound, ast.Constant):
                        yield source.replace(bound, f"({source.of(bound)}) + 1")
            case ast.IfExp(test=test):
                yield from self._decided(test)
            case ast.Yield(value=value) if value is not None:
                # It stays a generator.
                yield source.replace(node, f"(yield {source.of(value)}) if 0 else None")
            case ast.YieldFrom():
                yield source.replace(node, "yield from ()")
            case ast.Call():
                yield from self._of_call(node)
            case ast.ListComp(generators=loops) | ast.SetComp(generators=loops) | ast.GeneratorExp(generators=loops):
                for condition in (condition for loop in loops for condition in loop.ifs):
                    yield source.replace(condition, f"(({source.of(condition)}) or True)")

    def _of_call(self, node: ast.Call) -> Iterator[Edit]:
        source, name = self._source, called(node)
        if name in _SWAPPED:
            _, end = source.span(node.func)
            yield Edit(end - len(name), end, _SWAPPED[name])
        optional = self._optional.get(name or "", _OPTIONAL)
        arguments = [*node.args, *node.keywords]
        for keyword in node.keywords:
            if keyword.arg in optional:
                start, end = source.span(keyword)
                at = arguments.index(keyword)
                # The comma before it is removed too, or for the first one the comma after it.
                if at:
                    start = source.span(arguments[at - 1])[1]
                elif len(arguments) > 1:
                    end = source.span(arguments[1])[0]
                yield Edit(start, end, "")

    def _decided(self, test: ast.expr) -> Iterator[Edit]:
        """Yield a condition that is never true, and one that always is."""
        yield self._source.replace(test, f"(({self._source.of(test)}) and False)")
        yield self._source.replace(test, f"(({self._source.of(test)}) or True)")

    def of_statement(self, node: ast.stmt) -> Iterator[Edit]:
        source = self._source
        match node:
            case ast.If(test=test, body=[*_, ast.Raise()]):
                # An error that is always raised would show little.
                yield next(self._decided(test))
            case ast.If(test=test):
                yield from self._decided(test)
            case ast.While(test=test):
                yield next(self._decided(test))
            case ast.Continue():
                yield source.replace(node, "break")
            case ast.Break():
                yield source.replace(node, "continue")
            case ast.AugAssign(op=operator, target=target, value=value):
                old = source.encoded[source.span(target)[1] : source.span(value)[0]].decode().strip()
                yield source.replace(node, "pass")
                if type(operator) in _PYTHON_OPERATORS:
                    yield source.between(target, value, old, f"{_PYTHON_OPERATORS[type(operator)][1]}=")
            case ast.Expr(value=ast.Call() as call) if not is_call(call, *_SPOKEN):
                yield source.replace(node, "pass")

    def skips(self, node: ast.AST, child: ast.AST) -> bool:
        # Messages, types and texts for people are skipped; positions inside f-strings are not known.
        is_type = child in (
            *(getattr(node, name, None) for name in ("annotation", "returns")),
            *getattr(node, "decorator_list", ()),
        )
        return (
            is_type
            or isinstance(child, ast.Raise | ast.Assert | ast.JoinedStr)
            or (isinstance(child, ast.ClassDef) and any(getattr(base, "id", "") == "Protocol" for base in child.bases))
            or (isinstance(child, ast.FunctionDef) and child.name in _SPOKEN)
            or is_call(child, *_SPOKEN)
            or (isinstance(child, ast.Assign) and getattr(child.targets[0], "id", "") in _TEXT)
            or (isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING")
            # A strict zip asserts equal lengths, which no test has to check.
            or (isinstance(child, ast.keyword) and child.arg == "strict")
            or (isinstance(child, ast.ImportFrom | ast.Import))
        )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
