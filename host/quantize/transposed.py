"""Transposed convolutions, which ONNX Runtime computes in float, spelled as what it computes in integers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from ..model.transposed import Transposed, uncut_size
from .normalisation import affine

#: What may stand between a convolution and DepthToSpace as well as after both.
_POINTWISE = ("Relu", "Clip")


def spell_transposed(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Spell each ConvTranspose as a Conv that computes all phases, a DepthToSpace, and a Slice if that is too large.

    A BatchNormalization after it becomes part of the weights, and a Relu or Clip stands in front of the DepthToSpace.
    Left as it is where it has other strides down than across, weights that are computed, or borders that are not told.
    """
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    outputs = {value.name for value in graph.output}
    nodes: list[NodeProto] = []
    dropped: set[str] = set()
    for node in graph.node:
        if node.output[0] in dropped:
            continue
        geometry = _geometry(node, constants, shapes) if node.op_type == "ConvTranspose" else None
        if geometry is None:
            nodes.append(node)
            continue
        chain = _chain(graph, node, constants, outputs)
        dropped |= {other.output[0] for other in chain}
        nodes += _spelled(graph, node, geometry, chain, constants)
    del graph.node[:]
    graph.node.extend(nodes)


def _geometry(
    node: NodeProto, constants: Mapping[str, np.ndarray], shapes: Mapping[str, Sequence[int]]
) -> Transposed | None:
    given = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    source = tuple(shapes.get(node.input[0], ())[2:])
    weights = constants.get(node.input[1])
    is_known = given.get("auto_pad", b"NOTSET") == b"NOTSET" and "output_shape" not in given
    if weights is None or len(source) != 2 or not all(source) or not is_known:
        return None
    if any(name and name not in constants for name in node.input[2:]):
        return None
    down, across = given.get("strides", (1, 1))
    if down != across:
        return None
    dilations, pads = given.get("dilations", (1, 1)), given.get("pads", (0, 0, 0, 0))
    more = given.get("output_padding", (0, 0))
    target = tuple(
        uncut_size(source[axis], weights.shape[2 + axis], down, dilations[axis], more[axis])
        - pads[axis]
        - pads[2 + axis]
        for axis in range(2)
    )
    return Transposed(
        kernel=weights.shape[2:],
        strides=(down, across),
        dilations=tuple(dilations),
        begin=tuple(pads[:2]),
        source=source,
        target=target,
        groups=given.get("group", 1),
    )


def _chain(
    graph: onnx.GraphProto, node: NodeProto, constants: Mapping[str, np.ndarray], outputs: set[str]
) -> list[NodeProto]:
    """What follows, as far as it can stand in front of DepthToSpace: batch normalisation, then pointwise operators."""
    chain: list[NodeProto] = []
    while True:
        name = (chain[-1] if chain else node).output[0]
        readers = [other for other in graph.node if name in other.input]
        if len(readers) != 1 or name in outputs:
            return chain
        (reader,) = readers
        normalises = not chain and reader.op_type == "BatchNormalization"
        if not normalises and reader.op_type not in _POINTWISE:
            return chain
        if any(operand not in constants for operand in reader.input if operand not in ("", name)):
            return chain
        chain.append(reader)


def _spelled(
    graph: onnx.GraphProto,
    node: NodeProto,
    geometry: Transposed,
    chain: list[NodeProto],
    constants: Mapping[str, np.ndarray],
) -> list[NodeProto]:
    name, end = node.output[0], (chain or [node])[-1].output[0]
    weights = geometry.weights(constants[node.input[1]].astype(np.float64))
    bias = constants[node.input[2]].astype(np.float64) if len(node.input) > 2 and node.input[2] else np.zeros(1)
    bias = np.broadcast_to(bias, len(weights) // len(geometry.phases))
    if chain and chain[0].op_type == "BatchNormalization":
        factor, offset = affine(chain[0], constants)
        weights *= geometry.of_outputs(factor).reshape(-1, 1, 1, 1)
        bias = bias * factor + offset
    operands = {f"{name}_weights": weights, f"{name}_bias": geometry.of_outputs(bias)}
    graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), operand) for operand, array in operands.items()
    )
    made = [
        helper.make_node(
            "Conv", [node.input[0], *operands], [""], node.name, pads=geometry.pads, group=geometry.groups,
            kernel_shape=weights.shape[2:],
        )
    ]  # fmt: skip
    for other in chain:
        if other.op_type in _POINTWISE:
            made.append(copy.deepcopy(other))
    if len(geometry.phases) > 1:
        mode = "DCR" if geometry.phases_first else "CRD"
        block = geometry.strides[0]
        made.append(helper.make_node("DepthToSpace", [""], [""], f"{node.name}_phases", blocksize=block, mode=mode))
    if geometry.whole != geometry.target:
        bounds = {"starts": (0, 0), "ends": geometry.target, "axes": (2, 3)}
        graph.initializer.extend(
            numpy_helper.from_array(np.array(values, np.int64), f"{name}_{bound}") for bound, values in bounds.items()
        )
        made.append(
            helper.make_node("Slice", ["", *(f"{name}_{bound}" for bound in bounds)], [""], f"{node.name}_rest")
        )
    for at, one in enumerate(made):
        one.output[0] = end if one is made[-1] else f"{name}_{one.op_type}_{at}"
        if at:
            one.input[0] = made[at - 1].output[0]
    return made
