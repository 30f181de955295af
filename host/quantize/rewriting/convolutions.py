"""Transposed convolutions, and dilation written as SpaceToBatch, spelled as convolutions in integers."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from ...frontend.lowering.space_to_batch import Surroundings, find_dilated
from ...model.executed import Transposed, uncut_size
from ...model.onnx_graph import attributes_of
from .affine import affine
from .axes import Step, to_space
from .float_graph import FloatGraph, Rewriting, chained

#: Operators that commute with the division into phases after a convolution.
_POINTWISE = ("Relu", "Clip")


def _spell_transposed(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    geometry = _geometry(graph, node)
    if geometry is None:
        return None
    chain = _chain(graph, node)
    for other in chain:
        graph.drop(other)
    return _spelled(graph, node, geometry, chain)


def _geometry(graph: FloatGraph, node: NodeProto) -> Transposed | None:
    """Return the geometry of a transposed convolution; one with one dimension has one row."""
    attributes = attributes_of(node)
    sizes, weights = graph.spatial(node.input[0])[1:], graph.constants.get(node.input[1])
    if weights is None or not sizes or not graph.are_constant(node.input[2:]):
        return None
    rank = len(sizes)
    kernel, ones = weights.shape[2:], (1,) * rank
    strides, dilations = tuple(attributes.get("strides", ones)), tuple(attributes.get("dilations", ones))
    more = attributes.get("output_padding", (0,) * rank)
    whole = [uncut_size(*each) for each in zip(sizes, kernel, strides, dilations, more, strict=True)]
    borders = _borders(attributes, whole, [size * stride for size, stride in zip(sizes, strides, strict=True)])
    if borders is None:
        return None
    target = tuple(size - before - after for size, (before, after) in zip(whole, borders, strict=True))
    line = (1,) * (2 - rank)
    return Transposed(
        kernel=(*line, *kernel),
        strides=(*line, *strides),
        dilations=(*line, *dilations),
        begin=(*(0,) * (2 - rank), *(before for before, _ in borders)),
        source=(*line, *sizes),
        target=(*line, *target),
        groups=attributes.get("group", 1),
    )


def _borders(attributes: dict[str, object], whole: list[int], same: list[int]) -> list[tuple[int, int]] | None:
    """Return the elements that are cut off before and after each axis; None if elements are added."""
    rank, automatic = len(whole), attributes.get("auto_pad", b"NOTSET")
    target = attributes.get("output_shape", ())[-rank:]
    if not target and automatic in (b"NOTSET", b"VALID"):
        pads = attributes.get("pads", (0,) * 2 * rank) if automatic == b"NOTSET" else (0,) * 2 * rank
        return [*zip(pads[:rank], pads[rank:], strict=True)]
    totals = [size - wanted for size, wanted in zip(whole, target or same, strict=True)]
    if min(totals) < 0:
        return None
    halves = [(total // 2, total - total // 2) for total in totals]
    return halves if automatic == b"SAME_UPPER" else [half[::-1] for half in halves]


def _chain(graph: FloatGraph, node: NodeProto) -> list[NodeProto]:
    """Return the following nodes that can come before the phases: batch normalisation, then pointwise operators."""
    chain: list[NodeProto] = []
    while (reader := graph.reader((chain[-1] if chain else node).output[0])) is not None:
        normalises = not chain and reader.op_type == "BatchNormalization"
        if not normalises and reader.op_type not in _POINTWISE:
            break
        if not graph.are_constant(reader.input[1:]):
            break
        chain.append(reader)
    return chain


def _spelled(graph: FloatGraph, node: NodeProto, geometry: Transposed, chain: list[NodeProto]) -> list[NodeProto]:
    name, constants = node.output[0], graph.constants
    given_weights = constants[node.input[1]].astype(np.float64)
    rank = given_weights.ndim - 2
    weights = geometry.weights(given_weights.reshape(*given_weights.shape[:2], *geometry.kernel))
    bias = constants[node.input[2]].astype(np.float64) if len(node.input) > 2 and node.input[2] else np.zeros(1)
    channels = len(weights) // len(geometry.phases)
    bias = np.broadcast_to(bias, channels)
    if chain and chain[0].op_type == "BatchNormalization":
        factor, offset = affine(chain[0], constants)
        weights *= geometry.of_outputs(factor).reshape(-1, 1, 1, 1)
        bias = bias * factor + offset
    top, left, bottom, right = geometry.pads
    if rank == 1:
        weights = weights[:, :, 0]
    operands = [
        graph.constant(f"{name}_weights", weights),
        graph.constant(f"{name}_bias", geometry.of_outputs(bias)),
    ]
    pads = (left, right) if rank == 1 else (top, left, bottom, right)
    attributes = {"pads": pads, "group": geometry.groups, "kernel_shape": weights.shape[2:]}
    steps: list[Step] = [("Conv", operands, attributes)]
    for other in chain:
        if other.op_type in _POINTWISE:
            steps.append((other.op_type, list(other.input[1:]), attributes_of(other)))
    block, whole, target = (each[2 - rank :] for each in (geometry.strides, geometry.whole, geometry.target))
    sizes = [size // more for size, more in zip(whole, block, strict=True)]
    steps += to_space(graph, name, channels, block, sizes, phases_first=geometry.phases_first)
    if whole != target:
        bounds = {"starts": (0,) * rank, "ends": target, "axes": range(2, 2 + rank)}
        names = [graph.constant(f"{name}_{each}", np.array(values, np.int64)) for each, values in bounds.items()]
        steps.append(("Slice", names, {}))
    made = chained(node, steps)
    made[-1].output[0] = (chain or [node])[-1].output[0]
    return made


TRANSPOSED = Rewriting(
    "transposed convolution as a convolution of all phases, which become pixels",
    "Batch normalisation behind it is part of the weights; weights have a scale for each channel of each phase.",
    _spell_transposed,
    ("ConvTranspose",),
)


# Dilation that is written as SpaceToBatch and BatchToSpace becomes one convolution.


def _spell_dilation(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    # SpaceToBatch makes several images of a sample; without it the batch is 1.
    if graph.shapes.get(node.input[0], [0])[0] < 2:
        return None
    found = find_dilated(Surroundings(graph), node)
    made = None if found is None else found.written(graph.constant)
    if found is None or made is None:
        return None
    for other in found.replaced:
        graph.drop(other)
    return made


DILATION = Rewriting(
    "dilation written as SpaceToBatch and BatchToSpace as one dilated convolution",
    "Nothing else changes.",
    _spell_dilation,
    ("Conv",),
)
