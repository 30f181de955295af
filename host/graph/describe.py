"""Rows for people: every layer of a network, and where it runs."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.model import Model
from . import Graph, Layer, Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """One operation.

    Attributes
    ----------
    layer, kind : str
        The ONNX node and what it is, in a few words.
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
    layers = [_row(layer, *graph.ends(layer)) for layer in graph.layers]
    return [*_host_rows(graph.head), *layers, *_host_rows(graph.tail)]


def _row(layer: Layer, source: Tensor, target: Tensor) -> Row:
    return Row(layer.name, layer.describe(source, target), source.shape, target.shape, "accelerator")


def _host_rows(part: Model) -> list[Row]:
    return [Row(node.name, node.op_type, (), (), "host") for node in part.proto.graph.node] if part else []
