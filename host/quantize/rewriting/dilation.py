"""Dilation written as SpaceToBatch and BatchToSpace, as one convolution."""

from __future__ import annotations

from onnx import NodeProto

from ...frontend.lowering.space_to_batch import Network, find_dilated
from .float_graph import FloatGraph, Rewriting


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    # Images of a batch: a batch of its own has one.
    if graph.shapes.get(node.input[0], [0])[0] < 2:
        return None
    nodes = [other for other in graph.nodes if not graph.is_dropped(other)]
    network = Network(nodes, graph.constants, graph.shapes, graph.outputs, graph.opsets, graph.ir_version)
    found = find_dilated(network, node)
    made = None if found is None else found.written(graph.constant)
    if found is None or made is None:
        return None
    for other in found.replaced:
        graph.drop(other)
    return made


DILATION = Rewriting(
    "dilation written as SpaceToBatch and BatchToSpace as one dilated convolution",
    "Nothing else changes.",
    _spell,
    ("Conv",),
)
