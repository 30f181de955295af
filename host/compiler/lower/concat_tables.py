"""Concat tables: what a concatenation looks codes up in becomes part of the layer that writes them."""

from __future__ import annotations

import dataclasses

import numpy as np

from ...graph import Concat, Layer
from ..plan import Plan


def move_tables(plan: Plan) -> Plan:
    """Give the tables of each concatenation to the layers that write its inputs, where nothing else reads these.

    A table behind a table is one table. The tensor between the two is then in no memory, like that in front of any
    other table.
    """
    graph = plan.graph
    layers, tensors = list(graph.layers), dict(graph.tensors)
    reads = [name for layer in layers for name in layer.inputs] + graph.outputs
    for index, layer in enumerate(layers):
        if not isinstance(layer, Concat):
            continue
        inputs, tables = list(layer.inputs), list(layer.tables)
        for at, (name, table) in enumerate(zip(inputs, tables, strict=True)):
            writer = next((number for number, other in enumerate(layers) if other.output == name), None)
            if table is None or reads.count(name) > 1 or writer is None or not _takes_table(layers[writer]):
                continue
            inputs[at], tables[at] = f"{name} in {layer.output}", None
            target = tensors[layer.output]
            # No view: the model has no tensor with these codes but as channels of the concatenation.
            tensors[inputs[at]] = dataclasses.replace(target, name=inputs[at], shape=tensors[name].shape, views=())
            layers[writer] = _with_table(layers[writer], inputs[at], table)
        layers[index] = dataclasses.replace(layer, inputs=tuple(inputs), tables=tuple(tables))
    return dataclasses.replace(plan, graph=dataclasses.replace(graph, layers=layers, tensors=tensors))


def _takes_table(layer: Layer) -> bool:
    """Whether its codes may be looked up in a table behind it."""
    return hasattr(layer, "table")


def _with_table(layer: Layer, output: str, table: np.ndarray) -> Layer:
    """The layer with a table behind it."""
    if layer.table is not None:
        table = table[layer.table.astype(np.int64) + 128]
    changes = {"output": output, "table": table}
    if hasattr(layer, "requantised"):
        changes["requantised"] = layer.requantised or layer.output
    return dataclasses.replace(layer, **changes)
