"""Rows for people: every layer of a network, and where it runs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from ..graph import Graph, Layer


@dataclass(frozen=True, slots=True)
class Row:
    """One operation.

    Attributes
    ----------
    layer, kind : str
        The ONNX node and what it is.
    input_shape, output_shape : tuple of int
        (height, width, channels); empty on the host.
    where : str
        "accelerator" or "host".
    """

    layer: str
    kind: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    where: str


def describe(graph: Graph) -> list[Row]:
    """Every operation of the network in order of execution: the head on the host, the layers, the tail on the host."""
    tensors = graph.tensors
    layers = [
        Row(layer.name, kind_of(graph, layer), tensors[layer.input].shape, tensors[layer.output].shape, "accelerator")
        for layer in graph.layers
    ]
    return [*_host_rows(graph.head), *layers, *_host_rows(graph.tail)]


def kind_of(graph: Graph, layer: Layer) -> str:
    """What a layer is, in a few words."""
    return layer.describe(graph.tensors[layer.input], graph.tensors[layer.output])


def _host_rows(part: bytes) -> list[Row]:
    if not part:
        return []
    model = onnx.load_from_string(part)
    return [Row(node.name, node.op_type, (), (), "host") for node in model.graph.node]
