"""Constant operands of operators on two activations: codes that the host delivers, as it does an input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto

from ..reading.source import Source, connect
from .fragments import ADDITION, CONCAT, EXTREMES, MULTIPLICATION, SUBTRACTION

_OPERATORS = (*ADDITION, *SUBTRACTION, *MULTIPLICATION, *EXTREMES, *CONCAT)


def deliver_constants(source: Source) -> None:
    """Make activations of constant codes with a value for each element, as a position embedding or a class token.

    Scalars stay, which become part of a table, and so do values of channels.
    """
    makers = {name: node for node in source.model.graph.node for name in node.output}
    found: set[str] = set()
    for node in source.nodes:
        for name in _operands(node) if node.op_type in _OPERATORS else ():
            maker = makers.get(name)
            dequantised = maker is not None and maker.op_type == "DequantizeLinear"
            codes = source.constants.get(maker.input[0] if dequantised else name)
            if name not in source.constants or codes is None or codes.dtype not in (np.int8, np.uint8):
                continue
            # ONNX' own operators take codes that are not dequantised as integers.
            is_quantised = dequantised or node.domain == "com.microsoft"
            if node.op_type in CONCAT or (is_quantised and has_elements(codes.shape)):
                found |= {name, maker.input[0]} if dequantised else {name}
    for name in found:
        array = source.constants.pop(name)
        source.shapes[name], source.types[name] = array.shape, array.dtype
    if found:
        connect(source)


def _operands(node: NodeProto) -> Sequence[str]:
    """What an operator combines, without scales and zero points."""
    if node.op_type == "QLinearConcat":
        return node.input[2::3]
    return (node.input[0], node.input[3]) if node.domain == "com.microsoft" else node.input


def has_elements(shape: Sequence[int]) -> bool:
    """Whether a constant has a value for each element: along more axes than one."""
    return sum(size > 1 for size in shape) > 1
