"""Make tables in a row one, drop those that nothing reads, and fuse the others into the layer that feeds them."""

from __future__ import annotations

import dataclasses

from ...golden.tables import apply_table
from ..graph import Add, BinaryConvolution, Convolution, FastPointwise, Graph, Int8, Layer, MaxPool, Pointwise
from .signs import simplified, takes_signs


def compose_tables(graph: Graph) -> None:
    """Let a table behind a table read what that one reads, where nothing else reads the codes in between."""
    for at, layer in enumerate(graph.layers):
        before = next((other for other in graph.layers if other.output == layer.input), None)
        readers = sum(layer.input in other.inputs for other in graph.layers)
        alone = readers == 1 and layer.input not in graph.outputs
        if isinstance(layer, Pointwise) and isinstance(before, Pointwise) and alone:
            composed = dataclasses.replace(layer, inputs=before.inputs, table=_composed(before.table, layer.table))
            graph.layers[at] = simplified(graph, composed)
    _drop_unread(graph)


def fuse_tables(graph: Graph) -> None:
    """Let a convolution, pooling or sum apply the table behind it, where nothing else reads the codes in between.

    Dense convolutions alone take signs as well.
    """
    producer = {layer.output: layer for layer in graph.layers}
    fused: dict[Layer, Layer] = {}
    dropped: set[Layer] = set()
    for layer in graph.layers:
        before = producer.get(layer.input)
        if not isinstance(layer, Pointwise) or before is None or before.output in graph.outputs:
            continue
        readers = [other for other in graph.layers if layer.input in other.inputs]
        if len(readers) == 1 and (_takes_signs(before) if takes_signs(graph, layer) else _takes_tables(before)):
            inner = {"pooled" if isinstance(before, MaxPool) else "requantised": before.output}
            fused[before] = dataclasses.replace(before, output=layer.output, table=layer.table, **inner)
            dropped.add(layer)
    graph.layers = [fused.get(layer, layer) for layer in graph.layers if layer not in dropped]


def _takes_tables(layer: Layer) -> bool:
    return isinstance(layer, (Convolution, FastPointwise, MaxPool, Add))


def _takes_signs(layer: Layer) -> bool:
    """Averages and borders are no dense convolutions, though of one channel they have one group."""
    return type(layer) in (Convolution, BinaryConvolution) and layer.groups == 1


def _composed(first: Int8, second: Int8 | None) -> Int8:
    """A table, and another one behind it; signs have none."""
    return first if second is None else apply_table(first, second)


def _drop_unread(graph: Graph) -> None:
    """Drop tables whose result no layer reads and that is no output: its ONNX tensors become views of their input."""
    for layer in reversed(graph.layers):
        read = layer.output in graph.outputs or any(layer.output in other.inputs for other in graph.layers)
        if read or not isinstance(layer, Pointwise):
            continue
        graph.layers = [other for other in graph.layers if other is not layer]
        source = graph.tensors[layer.input]
        views = [
            dataclasses.replace(view, table=layer.table if view.table is None else apply_table(layer.table, view.table))
            for view in graph.tensors.pop(layer.output).views
        ]
        graph.tensors[layer.input] = dataclasses.replace(source, views=(*source.views, *views))
