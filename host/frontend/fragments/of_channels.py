"""Pointwise operators that have a value for each channel: which fragments consist of them."""

from __future__ import annotations

import math

from onnx import NodeProto

from ..reading.source import Source
from .fragments import NORMALISATION, POINTWISE, QUANTISERS, Fragment


def is_of_channels(source: Source, fragment: Fragment) -> bool:
    """Whether a fragment is a function of the code and the channel of each element of one feature map."""
    shape = source.shapes.get(fragment.inputs[0], ()) if len(fragment.inputs) == 1 else ()
    if len(shape) not in (3, 4) or any(source.shapes.get(name) != shape for name in fragment.outputs):
        return False
    inner = [node for node in fragment.nodes if node.op_type not in QUANTISERS]
    if any(node.op_type not in (*POINTWISE, NORMALISATION) for node in inner):
        return False
    return all(_fits(source, node, shape) for node in inner) and any(_has_channels(source, node) for node in inner)


def _fits(source: Source, node: NodeProto, shape: tuple[int, ...]) -> bool:
    """Whether operands are scalars, or have a value for each channel, and no shape changes."""
    if any(source.shapes.get(name) != shape for name in (*source.dynamic_inputs(node), *node.output)):
        return False
    if node.op_type == NORMALISATION:
        return all(name in source.constants for name in node.input[1:])
    wanted = (shape[1], *[1] * (len(shape) - 2))
    for name in node.input:
        found = source.constants[name].shape if name in source.constants else ()
        if math.prod(found) != 1 and (*[1] * (len(shape) - len(found)), *found) != (1, *wanted):
            return False
    return True


def _has_channels(source: Source, node: NodeProto) -> bool:
    return node.op_type == NORMALISATION or any(
        source.constants[name].size > 1 for name in node.input if name in source.constants
    )
