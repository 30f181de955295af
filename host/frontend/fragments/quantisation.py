"""Scales and zero points of activations: where operators keep them, and those of a tensor of codes."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from ...graph.tabulate import code_offset
from ..reading.errors import ModelError
from ..reading.parse import PER_TENSOR
from ..reading.source import Source
from .fragments import Fragment, label

#: Where operators keep scales of activations, the result's last; zero points follow them, inputs stand before them.
_SCALES = {
    "QuantizeLinear": (1,),
    "DequantizeLinear": (1,),
    "QLinearConv": (1, 6),
    "QGemm": (1, 7),
    "QLinearMatMul": (1, 6),
    "QLinearSigmoid": (1, 3),
    "QLinearLeakyRelu": (1, 3),
    "QLinearAdd": (1, 4, 6),
    "QLinearMul": (1, 4, 6),
    "QLinearWhere": (2, 5, 7),
    "QLinearAveragePool": (1, 3),
    "QLinearGlobalAveragePool": (1, 3),
    "QLinearSoftmax": (1, 3),
}


def check_scales(source: Source, fragment: Fragment) -> None:
    """Check the scales and zero points that a fragment's nodes name.

    Raises
    ------
    ModelError
        If one is computed, per channel or not positive.
    """
    for node in fragment.nodes:
        for kind, name in quantisation_operands(node):
            constant = source.constants.get(name)
            if constant is None:
                raise ModelError(
                    f"{source.name}: the {kind} {name!r} of {label(node)} must be a constant; quantise "
                    "the model statically"
                )
            if constant.size != 1:
                raise ModelError(
                    f"{source.name}: the {kind} {name!r} of {label(node)} must be one value, not "
                    f"{constant.size}; {PER_TENSOR}"
                )
            if kind == "scale" and not (np.isfinite(constant).all() and (constant > 0).all()):
                raise ModelError(
                    f"{source.name}: the scale {name!r} of {label(node)} must be positive, not "
                    f"{constant.item()}; quantise the model again"
                )


def _scale_positions(node: NodeProto) -> tuple[int, ...]:
    if node.op_type == "QLinearConcat":
        return (*range(3, len(node.input), 3), 0)
    return _SCALES.get(node.op_type, ())


def quantisation_operands(node: NodeProto) -> list[tuple[str, str]]:
    """("scale" or "zero point", tensor) for every scale and zero point of an activation that the node names."""
    found = []
    for position in _scale_positions(node):
        for kind, at in (("scale", position), ("zero point", position + 1)):
            if at < len(node.input) and node.input[at]:
                found.append((kind, node.input[at]))
    return found


def quantisation(source: Source, tensor: str) -> tuple[float, int]:
    """Scale and zero point, as an int8 code, of a tensor of codes.

    They stand in the node that computes it, or, for operators that keep them (MaxPool, Reshape ...) and for inputs,
    further along.
    """
    offset = code_offset(source.types[tensor])
    name, seen, unknown, computed_by = tensor, set(), (1.0, -offset), None
    while name in source.producer and name not in seen:
        seen.add(name)
        node = source.producer[name]
        computed_by = source.function(node)
        if computed_by is not None:
            unknown = 1.0, computed_by.result_zero_point
            break
        operands = quantisation_operands(node)
        if operands:
            return _values(source, node, _scale_positions(node)[-1], offset)
        name = node.input[0]
    frontier = [name]
    while frontier:
        name = frontier.pop()
        for node in source.consumers.get(name, []):
            function = source.function(node)
            if function is not None:
                unknown = unknown if computed_by else (1.0, function.zero_point)
                continue
            for position in _scale_positions(node):
                if position > 0 and node.input[position - 1] == name:
                    return _values(source, node, position, offset)
            frontier += [output for output in node.output if source.is_codes(output)]
    return unknown


def _values(source: Source, node: NodeProto, position: int, offset: int) -> tuple[float, int]:
    zero = node.input[position + 1] if position + 1 < len(node.input) else ""
    code = int(source.constants[zero].item()) if zero else 0
    return float(source.constants[node.input[position]].item()), code - offset
