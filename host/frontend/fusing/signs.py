"""Binary tensors: signs that several layers read are computed once, and maps of +1 and -1 are packed where they can."""

from __future__ import annotations

import dataclasses

import numpy as np

from ....golden.elements import BINARY_BITS
from ....golden.numerics.binary import signs
from ...graph import CodeFinish, Graph, Int8, Layer
from ...graph.geometry import looked_up
from ...graph.tabulate import CODES

_SIGNS = np.array([-1, 1], np.int8)


def share_signs(graph: Graph) -> None:
    """Let layers that read the same signs of the same tensor read one binary tensor."""
    first: dict[tuple[str, bytes], str] = {}
    same: dict[str, str] = {}
    for layer in graph.layers:
        if gives_signs(graph, layer):
            key = layer.inputs[0], _signs_after(layer.table).tobytes()
            same[layer.output] = first.setdefault(key, layer.output)
    _read_instead(graph, {name: other for name, other in same.items() if name != other})


def pack_signs(graph: Graph) -> None:
    """Make tensors binary that hold +1 and -1, where binary layers and max pooling alone read them.

    Others may read such a tensor as codes: it stays one then, and so does an output of the network.
    """
    packed = _packable(graph)
    for name in packed:
        graph.tensors[name] = dataclasses.replace(graph.tensors[name], bits=BINARY_BITS)
    kept = {
        layer.output: layer.input for layer in graph.layers if layer.input in packed and _repeats_signs(graph, layer)
    }
    _read_instead(graph, kept)
    graph.layers = [simplified(graph, layer) for layer in graph.layers]


def gives_signs(graph: Graph, layer: Layer) -> bool:
    """Whether a layer is nothing but the signs of a tensor, after a table or not."""
    return layer.is_table and graph.tensors[layer.output].bits == BINARY_BITS


def simplified(graph: Graph, layer: Layer) -> Layer:
    """Signs without a table that does not change them."""
    if gives_signs(graph, layer) and (_signs_after(layer.table) == signs(CODES)).all():
        return dataclasses.replace(layer, finish=CodeFinish())
    return layer


def _packable(graph: Graph) -> set[str]:
    """Tensors that hold +1 and -1, whose readers all take signs, or pool them into such a tensor."""
    producer = {layer.output: layer for layer in graph.layers}
    found = {name for name in producer if name not in graph.outputs and _holds_signs(graph, producer, name)}

    def may_stay(name: str) -> bool:
        readers = [layer for layer in graph.layers if name in layer.inputs]
        pools = [producer[name], *(layer for layer in readers if not _repeats_signs(graph, layer))]
        ends = {end for layer in pools if layer.keeps_signs for end in (layer.input, layer.output)}
        return ends <= found and all(layer.keeps_signs for layer in pools[1:])

    # One that does not stay may take others with it, on either side of a pooling.
    while gone := {name for name in found if not may_stay(name)}:
        found -= gone
    return found


def _holds_signs(graph: Graph, producer: dict[str, Layer], name: str) -> bool:
    """Whether all codes of a tensor are +1 and -1."""
    layer = producer.get(name)
    if layer is None:
        return False
    if layer.keeps_signs:
        # A window in the border alone has the least code.
        rows, columns, _ = graph.tensors[layer.input].shape
        return layer.window.counts(rows, columns).all() and _holds_signs(graph, producer, layer.input)
    return layer.is_table and layer.table is not None and np.isin(layer.table, _SIGNS).all()


def _repeats_signs(graph: Graph, layer: Layer) -> bool:
    """Whether a layer takes signs, and those of +1 and -1 are the same again."""
    return gives_signs(graph, layer) and (signs(looked_up(_SIGNS, layer.table)) == _SIGNS).all()


def _signs_after(table: Int8 | None) -> Int8:
    """The sign of every code after a table."""
    return signs(looked_up(CODES, table))


def _read_instead(graph: Graph, others: dict[str, str]) -> None:
    """Drop layers by the names of their outputs; their readers read other tensors."""
    graph.layers = [
        dataclasses.replace(layer, inputs=tuple(others.get(name, name) for name in layer.inputs))
        for layer in graph.layers
        if layer.output not in others
    ]
    for name in others:
        del graph.tensors[name]
