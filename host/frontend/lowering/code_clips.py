"""Clip of codes after QuantizeLinear, as Brevitas writes fewer than 8 bits, moved in front of it."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from ...graph import own_name
from ..fragments.fragments import FLOAT_PRODUCTS, LAYOUT, POOLING, TRANSPARENT
from ..reading.source import Source, connect
from .linear import constant


def clip_ahead(source: Source) -> None:
    """Clip the numbers that are quantised instead of their codes, where nothing else reads these.

    QuantizeLinear never decreases: its codes of clipped numbers are the clipped codes, with the codes of the bounds for
    bounds. What is in front of it then knows that it may round as it likes beyond them.
    """
    graph = source.model.graph
    readers: dict[str, int] = {}
    for name in [*(name for node in graph.node for name in node.input), *source.outputs]:
        readers[name] = readers.get(name, 0) + 1
    made = {node.output[0]: node for node in graph.node if node.op_type == "QuantizeLinear"}
    for clip in [node for node in graph.node if node.op_type == "Clip" and node.input[0] in made]:
        quantise = made[clip.input[0]]
        if readers[clip.input[0]] == 1 and _is_product(source, quantise.input[0]):
            _move(source, clip, quantise)
    connect(source)


def _is_product(source: Source, name: str) -> bool:
    """Whether a float tensor is a product, with what only cuts or moves its results after it."""
    node = source.producer.get(name)
    while node is not None and node.op_type in ("Relu", "Clip", *LAYOUT, *POOLING, *TRANSPARENT):
        node = source.producer.get(node.input[0])
    return node is not None and node.op_type in FLOAT_PRODUCTS


def _move(source: Source, clip: NodeProto, quantise: NodeProto) -> None:
    scale, zero_point, *bounds = operands = (
        *(constant(source, quantise, at) for at in (1, 2)),
        *(constant(source, clip, at) for at in (1, 2)),
    )
    computed = source.dynamic_inputs(clip)[1:] + source.dynamic_inputs(quantise)[1:]
    if computed or any(operand is not None and operand.size != 1 for operand in operands):
        return
    scale, zero_point = scale.reshape(()), 0 if zero_point is None else zero_point.item()
    taken, result = (source.shapes, source.constants), clip.output[0]
    number = own_name(f"{result} in float", *taken)
    names = [
        "" if bound is None else own_name(f"{number} {end}", *taken)
        for end, bound in zip(("least", "greatest"), bounds, strict=True)
    ]
    for name, bound in zip(names, bounds, strict=True):
        if bound is not None:
            value = np.asarray((np.float32(bound.item()) - np.float32(zero_point)) * scale, np.float32)
            source.constants[name] = value
            source.model.graph.initializer.append(numpy_helper.from_array(value, name))
    nodes = source.model.graph.node
    moved = helper.make_node("Clip", [quantise.input[0], *names], [number], clip.name)
    moved.metadata_props.extend(clip.metadata_props)
    nodes.remove(clip)
    nodes.insert(list(nodes).index(quantise), moved)
    shape = source.shapes[quantise.input[0]]
    source.shapes[number], source.types[number] = shape, np.dtype(np.float32)
    quantise.input[0], quantise.output[0] = number, result
