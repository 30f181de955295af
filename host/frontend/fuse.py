"""Fuse tables into the layer that feeds them."""
from __future__ import annotations

import dataclasses

from ..graph import Add, Convolution, Graph, Layer, MaxPool, Pointwise


def fuse_tables(graph: Graph) -> None:
    """Let a convolution, pooling or sum apply the table behind it, where nothing else reads the codes in between."""
    producer = {layer.output: layer for layer in graph.layers}
    fused: dict[Layer, Layer] = {}
    dropped: set[Layer] = set()
    for layer in graph.layers:
        before = producer.get(layer.input)
        if not isinstance(layer, Pointwise) or before is None or before.output in graph.outputs:
            continue
        readers = [other for other in graph.layers if layer.input in other.inputs]
        if len(readers) == 1 and isinstance(before, (Convolution, MaxPool, Add)):
            inner = {"pooled" if isinstance(before, MaxPool) else "requantised": before.output}
            fused[before] = dataclasses.replace(before, output=layer.output, table=layer.table, **inner)
            dropped.add(layer)
    graph.layers = [fused.get(layer, layer) for layer in graph.layers if layer not in dropped]
