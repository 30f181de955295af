"""Matrices: weights that are known at run time only, in the order in which the array takes them."""

from __future__ import annotations

import dataclasses

import numpy as np

from ....golden.config import Config
from ...graph import Graph, Layer, copies, own_name
from ..data.errors import CompileError
from ..data.plan import Plan

#: What :func:`~.copies.arrange` takes for the code 0.
_ZERO = -129


def arrange_matrices(plan: Plan) -> Plan:
    """Put a layer in front of every product of two activations that arranges the one whose words are weights.

    What it writes is stored, and loaded into the weight memory as it lies.

    Raises
    ------
    CompileError
        If that takes too many pieces.
    """
    graph, layers = dataclasses.replace(plan.graph, tensors=dict(plan.graph.tensors)), []
    for layer in plan.graph.layers:
        layers += _arranged(graph, layer, plan.config) if layer.weight_place is not None else [layer]
    return dataclasses.replace(plan, graph=dataclasses.replace(graph, layers=layers))


def _arranged(graph: Graph, layer: Layer, config: Config) -> list[Layer]:
    source, array = graph.tensors[layer.inputs[1]], config.array
    matrix = own_name(f"{layer.output} weights", graph.tensors)
    (outputs, inputs), (columns, lanes) = layer.order.shape, (array.columns, array.lanes)
    tiles, steps = -(-outputs // columns), -(-inputs // lanes)
    padding = (0, tiles * columns - outputs), (0, steps * lanes - inputs)
    wanted = np.pad(layer.order, padding, constant_values=_ZERO).reshape(tiles, columns, steps, lanes)
    words = wanted.swapaxes(1, 2).reshape(tiles * steps, columns, lanes)
    arrangement = copies.arrange(layer.name, "weights", [source.name], matrix, [source.shape], words)
    if arrangement is None:
        raise CompileError(
            f"{layer.name}: {source.name} becomes weights in more than {copies.MOST_PIECES} pieces; let the "
            "elements that are added up lie side by side, or leave the product to the host"
        )
    graph.tensors[matrix] = dataclasses.replace(source, name=matrix, shape=words.shape, views=(), order=())
    # Where each element of the matrix lies now.
    places = np.arange(words.size).reshape(tiles, steps, columns, lanes).swapaxes(1, 2)
    order = places.reshape(tiles * columns, -1)[:outputs, :inputs]
    return [arrangement, dataclasses.replace(layer, inputs=(layer.input, matrix), order=order)]
