"""Tensors of 16-bit codes: pointwise operators between 8-bit codes may have them, quantised products may not.

QuantizeLinear to 16 bits and DequantizeLinear of them are pointwise operators themselves: what stands between two
tensors of 8-bit codes is one table, however it is quantised on the way.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto

from ..reading.errors import ModelError
from ..reading.source import Source
from .fragments import FLOAT_PRODUCTS, LAYOUT, POOLING, TRANSPARENT, Fragment, label

NARROW = "quantise to int8 here (activation_type=QuantType.QInt8)"
REMEDY = f"only pointwise operators on one activation may have 16-bit tensors around them: {NARROW}"
#: What ONNX Runtime makes of a product of quantised weights with activations that have no 8-bit codes.
_WEIGHTS_ALONE = "MatMulNBits"
#: What ONNX Runtime may leave between a product and its quantised ends.
_BESIDE = (*LAYOUT, *POOLING, *TRANSPARENT, "Relu", "Clip")


def is_wide(source: Source, tensor: str) -> bool:
    """Whether a tensor is an activation of int16 or uint16 codes."""
    return source.types.get(tensor) in (np.int16, np.uint16)


def wide_tensor(source: Source, fragment: Fragment) -> str:
    """What a fragment has of 16-bit codes, for messages: type and name of the first tensor, or an empty string."""
    names = [name for node in fragment.nodes for name in (*source.dynamic_inputs(node), *node.output)]
    return next((shown(source, name) for name in names if is_wide(source, name)), "")


def wide_between(source: Source, fragment: Fragment, one: NodeProto, other: NodeProto) -> str:
    """Likewise of what lies between two nodes of a fragment."""
    first, last = (node for node in fragment.nodes if node in (one, other))
    after, ahead = set(first.output), set(source.dynamic_inputs(last))
    for node in fragment.nodes:
        after |= set(node.output) if after.intersection(node.input) else set()
    for node in reversed(fragment.nodes):
        ahead |= set(source.dynamic_inputs(node)) if ahead.intersection(node.output) else set()
    return next((shown(source, name) for name in after & ahead if is_wide(source, name)), "")


def shown(source: Source, tensor: str) -> str:
    """Type and name of a tensor."""
    return f"the {source.types[tensor]} tensor {tensor!r}"


def check_wide(source: Source) -> None:
    """Check that quantised products read and make 8-bit codes.

    Raises
    ------
    ModelError
        If one reads or makes a tensor of 16-bit codes: ONNX Runtime has no integer kernel for it.
    """
    for node in source.nodes:
        if not _is_quantised(source, node):
            continue
        found = [f"it reads {shown(source, name)}" for name in _codes_ahead(source, node) if is_wide(source, name)]
        found += [f"it makes {shown(source, name)}" for name in _codes_after(source, node) if is_wide(source, name)]
        if found:
            raise ModelError(
                f"{source.name}: ONNX Runtime computes {label(node)} in float, because {found[0]}; {REMEDY}"
            )


def _is_quantised(source: Source, node: NodeProto) -> bool:
    """Whether a node is a product with quantised weights."""
    constants = [name for name in node.input if name in source.constants]
    if node.op_type not in FLOAT_PRODUCTS:
        return node.op_type == _WEIGHTS_ALONE
    return any(
        other.op_type == "DequantizeLinear" and other.output[0] in constants for other in source.model.graph.node
    )


def _codes_ahead(source: Source, node: NodeProto) -> Iterator[str]:
    """The quantised tensors that the activations of a product come from."""
    for name in source.dynamic_inputs(node):
        producer = source.producer.get(name)
        if producer is not None and producer.op_type == "DequantizeLinear":
            yield producer.input[0]
        elif producer is not None and producer.op_type in _BESIDE:
            yield from _codes_ahead(source, producer)


def _codes_after(source: Source, node: NodeProto) -> Iterator[str]:
    """The quantised tensors that the result of a product becomes."""
    for reader in source.consumers.get(node.output[0], []):
        if reader.op_type == "QuantizeLinear":
            yield reader.output[0]
        elif reader.op_type in _BESIDE:
            yield from _codes_after(source, reader)
