"""Make tables in a row one, drop those that nothing reads, and fuse the others into the layer that feeds them."""

from __future__ import annotations

import dataclasses
from collections import Counter

from ...graph import Graph, Int8, Layer
from ...graph.geometry import composed
from .signs import gives_signs, simplified


def compose_tables(graph: Graph) -> None:
    """Let a table after a table read what that one reads, where nothing else reads the codes in between."""
    readers, producer = _readers(graph), {layer.output: layer for layer in graph.layers}
    for at, layer in enumerate(graph.layers):
        before = producer.get(layer.input)
        alone = readers[layer.input] == 1 and layer.input not in graph.outputs
        if alone and layer.is_table and before is not None and before.is_table:
            one = dataclasses.replace(before.with_table(layer.output, layer.table), name=layer.name)
            graph.layers[at] = producer[layer.output] = simplified(graph, one)
            readers.subtract({*layer.inputs})
            readers.update({*graph.layers[at].inputs})
    _drop_unread(graph)


def fuse_tables(graph: Graph) -> None:
    """Let layers take the table after them, or signs, where nothing else reads the codes in between."""
    readers, producer = _readers(graph), {layer.output: layer for layer in graph.layers}
    fused: dict[Layer, Layer] = {}
    dropped: set[Layer] = set()
    for layer in graph.layers:
        before = producer.get(layer.input)
        if not layer.is_table or before is None or before.is_table or before.output in graph.outputs:
            continue
        can_fuse = before.takes_signs if gives_signs(graph, layer) else before.finish is not None
        if readers[layer.input] == 1 and can_fuse:
            fused[before] = before.with_table(layer.output, layer.table)
            dropped.add(layer)
            if before.table is not None and before.inner == before.output:
                _look_up(graph, before.output, before.table)
    graph.layers = [fused.get(layer, layer) for layer in graph.layers if layer not in dropped]


def _drop_unread(graph: Graph) -> None:
    """Drop tables whose result no layer reads and that is no output: its ONNX tensors become views of their input."""
    readers, dropped = _readers(graph), set[Layer]()
    for layer in reversed(graph.layers):
        if layer.output in graph.outputs or readers[layer.output] or not layer.is_table:
            continue
        dropped.add(layer)
        readers.subtract({*layer.inputs})
        _look_up(graph, layer.output, layer.table)
        source, views = graph.tensors[layer.input], graph.tensors.pop(layer.output).views
        graph.tensors[layer.input] = dataclasses.replace(source, views=(*source.views, *views))
    graph.layers = [layer for layer in graph.layers if layer not in dropped]


def _readers(graph: Graph) -> Counter[str]:
    """How many layers read each tensor."""
    return Counter(name for layer in graph.layers for name in {*layer.inputs})


def _look_up(graph: Graph, name: str, table: Int8) -> None:
    """Let the ONNX tensors that a tensor is be what a table makes of it: it holds the codes in front of the table."""
    tensor = graph.tensors[name]
    views = [dataclasses.replace(view, table=composed(table, view.table)) for view in tensor.views]
    graph.tensors[name] = dataclasses.replace(tensor, views=(*views,))
