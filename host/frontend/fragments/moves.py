"""Which operators move elements of a feature map, and compute nothing."""

from __future__ import annotations

from onnx import NodeProto

from ..reading.source import Source
from .fragments import CHOICE, CROP, LAYOUT, MOVES


def is_move(source: Source, node: NodeProto) -> bool:
    """Whether an operator moves elements to other pixels, repeats them or leaves some out."""
    return node.op_type in MOVES or is_crop(source, node)


def is_layout(source: Source, node: NodeProto) -> bool:
    """Whether an operator has its elements in another order or shape, or some of them, and no image need be there."""
    return node.op_type in LAYOUT or is_choice(source, node)


def is_choice(source: Source, node: NodeProto) -> bool:
    """Whether an operator takes elements by constant indices."""
    if node.op_type not in CHOICE:
        return False
    return node.input[0] in source.shapes and node.input[1] in source.constants


def is_crop(source: Source, node: NodeProto) -> bool:
    """Whether an operator takes neighbouring rows and columns of a feature map with channels in front."""
    if node.op_type not in CROP:
        return False
    before, after = (source.shapes.get(name, ()) for name in (node.input[0], node.output[0]))
    steps = source.constants.get(node.input[4]) if len(node.input) > 4 and node.input[4] else None
    starts = source.constants.get(node.input[1]) if len(node.input) > 1 else None
    if len(before) not in (3, 4) or before[:2] != after[:2] or before == after or starts is None:
        return False
    return steps is None or bool((steps == 1).all())
