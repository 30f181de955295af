"""Operators that fit Amaranth, for mutants of ``hdl/``.

Source: DeMillo, Lipton and Sayward, "Hints on test data selection", 1978.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mutation.mutant_source import COMPARISONS, Edit, Source, is_call

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


class HardwareOperators:
    """See :class:`mutant_source.Operators`."""

    def __init__(self, source: Source, tree: ast.Module):
        self._source = source
        shapes = [argument for call in ast.walk(tree) if is_call(call, *_SHAPES) for argument in call.args]
        self._widths = {node for shape in shapes for node in ast.walk(shape)}

    def of_expression(self, node: ast.expr) -> Iterator[Edit]:
        source = self._source
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
                yield source.between(left, right, *COMPARISONS[type(operator)])
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
                yield source.between(left, right, *_OPERATORS[type(operator)])
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                yield source.replace(node, source.of(operand))
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                # A wider signal seldom makes a difference, and there is none of no bits.
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
                # Widened with the condition, so that names in it count as used.
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
        # Messages and types have no effect on the hardware; inside of f-strings positions are not told.
        return (
            isinstance(child, ast.Raise | ast.JoinedStr | ast.arguments)
            or is_call(child, *_NO_HARDWARE)
            or (isinstance(node, ast.FunctionDef) and child is node.returns)
        )
