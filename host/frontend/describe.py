"""Rows for people: every layer of a network, and where it runs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from ...golden.elements import BINARY_BITS
from ..graph import (
    Add,
    AveragePool,
    BinaryConvolution,
    Convolution,
    FastPointwise,
    Graph,
    Layer,
    MaxPool,
    Pad,
    Pointwise,
    Slice,
    Window,
)


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
    behind = " + table" if getattr(layer, "table", None) is not None else ""
    if graph.tensors[layer.output].bits == BINARY_BITS and not isinstance(layer, MaxPool):
        if isinstance(layer, Pointwise):
            return f"signs{' of a table' if behind else ''}"
        behind += " + signs"
    if isinstance(layer, Pad):
        return f"border{behind}"
    if isinstance(layer, AveragePool):
        return f"average pooling {_geometry(layer.window)}{behind}"
    if isinstance(layer, Convolution):
        binary = "binary " if isinstance(layer, BinaryConvolution) else ""
        window, (height, width, channels) = layer.window, graph.tensors[layer.input].shape
        if window.kernel == (height, width) and not any(window.pads) and layer.groups == 1:
            return f"{binary}fully connected{behind}"
        kind = {channels: "depthwise ", 1: ""}.get(layer.groups, f"{layer.groups} groups, ")
        return f"{binary}{kind}convolution {_geometry(window)}{behind}"
    if isinstance(layer, MaxPool):
        return f"max pooling {_geometry(layer.window)}{behind}"
    if isinstance(layer, Add):
        return f"sum{behind}"
    if isinstance(layer, Slice):
        return "selection of channels"
    kind = layer.kind(graph.tensors[layer.input].shape, graph.tensors[layer.output].shape)
    return f"{kind}, {layer.stages.pattern.stages} stages{behind}" if isinstance(layer, FastPointwise) else kind


def _geometry(window: Window) -> str:
    text = "x".join(map(str, window.kernel))
    if window.stride != (1, 1):
        text += " stride " + "x".join(map(str, window.stride))
    if window.dilation != (1, 1):
        text += " dilation " + "x".join(map(str, window.dilation))
    return text


def _host_rows(part: bytes) -> list[Row]:
    if not part:
        return []
    model = onnx.load_from_string(part)
    return [Row(node.name, node.op_type, (), (), "host") for node in model.graph.node]
