"""Operators on two activations that stay in float, because they are pointwise: all that they read is one activation."""

from __future__ import annotations

from collections.abc import Container, Iterator

import onnx
from onnx import NodeProto

from ..frontend.fragments import EXTREMES, MULTIPLICATION, POINTWISE, SUBTRACTION, has_elements

#: What is quantised, unless it is a function of one tensor.
_TABLES = (*SUBTRACTION, *MULTIPLICATION, *EXTREMES)


def pointwise_nodes(model: onnx.ModelProto) -> Iterator[str]:
    """Names of operators on two operands of which one is constant, or that both are functions of one tensor: a table.

    ``x * sigmoid(x)`` is one of them.
    """
    producers = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type not in ("Add", *_TABLES):
            continue
        is_table = node.op_type in _TABLES and len(_origins(node, producers, constants)) == 1
        if is_table or any(name in constants and not has_elements(constants[name]) for name in node.input):
            yield node.name


def _origins(node: NodeProto, producers: dict[str, NodeProto], constants: Container[str]) -> set[str]:
    """The tensors that a pointwise node is a function of: those that no pointwise operator computes, or that two
    operands meet in."""
    found: set[str] = set()
    waiting = [name for name in node.input if name and name not in constants]
    while waiting:
        name = waiting.pop()
        producer = producers.get(name)
        inner = [one for one in producer.input if one and one not in constants] if producer else []
        if producer is None or producer.op_type not in POINTWISE or len(inner) > 1:
            found.add(name)
        else:
            waiting += inner
    return found
