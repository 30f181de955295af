"""Concat tables: what a concatenation looks codes up in becomes part of the layer that writes them."""

from __future__ import annotations

import dataclasses
from collections import Counter

from ...graph import own_name
from ..data.plan import Plan


def move_tables(plan: Plan) -> Plan:
    """Give the tables of each concatenation to the layers that write its inputs, where nothing else reads these.

    A table after a table is one table. The tensor between the two is then in no memory, like that in front of any
    other table.
    """
    graph = plan.graph
    layers, tensors = list(graph.layers), dict(graph.tensors)
    reads = Counter([name for layer in layers for name in layer.inputs] + graph.outputs)
    writers = {layer.output: number for number, layer in enumerate(layers)}
    for index, layer in enumerate(layers):
        inputs, tables = list(layer.inputs), list(layer.input_tables)
        for at, (name, table) in enumerate(zip(inputs, tables, strict=True)):
            writer = writers.get(name)
            if table is None or reads[name] > 1 or writer is None or layers[writer].finish is None:
                continue
            inputs[at], tables[at] = own_name(f"{name} in {layer.output}", tensors), None
            target = tensors[layer.output]
            # No view: the model has no tensor with these codes but as channels of the concatenation.
            tensors[inputs[at]] = dataclasses.replace(target, name=inputs[at], shape=tensors[name].shape, views=())
            layers[writer] = layers[writer].with_table(inputs[at], table)
        if inputs != list(layer.inputs):
            layers[index] = layer.with_input_tables(inputs, tables)
    return dataclasses.replace(plan, graph=dataclasses.replace(graph, layers=layers, tensors=tensors))
