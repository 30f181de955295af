"""Operators that fit plain Python, for mutants of ``golden/`` and ``host/``."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping

from mutation.mutant_source import COMPARISONS, Edit, Source, called, is_call

_COMPARISONS = {
    **COMPARISONS,
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
_OPERATORS = {
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
#: Arguments of functions that are not the project's, which these do without.
_OPTIONAL = {"axis", "default", "keepdims", "key", "initial", "reverse", "start", "side"}
#: What is said to people: no behaviour that a test must hold.
_SPOKEN = ("__repr__", "__str__", "print", "add_argument", "add_parser", "warn", "field")
#: The values of names, which say what to call something.
_TEXT = ("__all__", "__doc__")


def optional_arguments(trees: list[ast.Module]) -> Mapping[str, set[str]]:
    """The arguments with a default, by the names of the functions, methods and dataclasses that take them."""
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
    """See :class:`mutant_source.Operators`.

    Parameters
    ----------
    source : Source
    optional : mapping
        From :func:`optional_arguments`.
    """

    def __init__(self, source: Source, optional: Mapping[str, set[str]]):
        self._source, self._optional = source, optional

    def of_expression(self, node: ast.expr) -> Iterator[Edit]:
        source = self._source
        match node:
            case ast.Compare(left=left, ops=operators, comparators=comparators):
                operands = [left, *comparators]
                for operator, one, other in zip(operators, operands, comparators, strict=False):
                    if type(operator) in _COMPARISONS:
                        yield source.between(one, other, *_COMPARISONS[type(operator)])
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
                # Texts and paths are no numbers.
                if not any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (left, right)):
                    yield source.between(left, right, *_OPERATORS[type(operator)])
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
                # With the comma in front, or the one after of the first.
                if at:
                    start = source.span(arguments[at - 1])[1]
                elif len(arguments) > 1:
                    end = source.span(arguments[1])[0]
                yield Edit(start, end, "")

    def _decided(self, test: ast.expr) -> Iterator[Edit]:
        """A condition that is never true, and one that always is."""
        yield self._source.replace(test, f"(({self._source.of(test)}) and False)")
        yield self._source.replace(test, f"(({self._source.of(test)}) or True)")

    def of_statement(self, node: ast.stmt) -> Iterator[Edit]:
        source = self._source
        match node:
            case ast.If(test=test, body=[*_, ast.Raise()]):
                # Always raised says little.
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
                if type(operator) in _OPERATORS:
                    yield source.between(target, value, old, f"{_OPERATORS[type(operator)][1]}=")
            case ast.Expr(value=ast.Call() as call) if not is_call(call, *_SPOKEN):
                yield source.replace(node, "pass")

    def skips(self, node: ast.AST, child: ast.AST) -> bool:
        # Messages, types, and what is said to people; inside of f-strings positions are not told.
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
            # A strict zip says that lengths are alike, which no test need find out.
            or (isinstance(child, ast.keyword) and child.arg == "strict")
            or (isinstance(child, ast.ImportFrom | ast.Import))
        )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
