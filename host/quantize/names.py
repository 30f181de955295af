"""Names of our own while a float model is quantised, and the user's back afterwards.

Quantising makes names of names: ``x`` gets a scale ``x_scale``. A file may have that name already, and nodes may have
none. So every tensor and node is called by a number in between, from which no other name can be made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import onnx
from onnx import GraphProto, ModelProto, NodeProto

_OWN = re.compile(r"%(\d+)%")
_Value = TypeVar("_Value")


class Names:
    """The names of a model, in whose place are numbers from here on.

    Parameters
    ----------
    model : ModelProto
        Its tensors and nodes are renamed.
    """

    def __init__(self, model: ModelProto):
        self._given: list[str] = []
        self._tensors: dict[str, str] = {}
        graph = model.graph
        for name in _tensors(graph):
            self._tensors.setdefault(name, self._own(name))
        _rename(graph, self._tensors)
        taken: set[str] = {node.name for node in graph.node}
        seen: set[str] = set()
        for place, node in enumerate(graph.node):
            name = node.name
            if not name or name in seen:
                name = _free(f"{node.name or node.op_type}_{place}", taken)
            seen.add(name)
            node.name = self._own(name)

    def _own(self, name: str) -> str:
        self._given.append(name)
        return f"%{len(self._given) - 1}%"

    def of_tensors(self, values: Mapping[str, _Value]) -> dict[str, _Value]:
        """Values by our names of tensors, of those that the model has."""
        return {self._tensors[name]: value for name, value in values.items() if name in self._tensors}

    def told(self, text: str) -> str:
        """A text in which the user's names stand."""
        return _OWN.sub(lambda own: self._given[int(own[1])], text)

    def restore(self, *models: ModelProto) -> None:
        """Give models that were made of it the user's names; what was made on the way gets names that nobody has."""
        found: dict[str, str] = {}
        taken = set(self._tensors)
        for model in models:
            for name in _tensors(model.graph):
                if name not in found:
                    told = self.told(name)
                    found[name] = told if _OWN.fullmatch(name) else _free(told, taken)
            _rename(model.graph, found)
            nodes: set[str] = {self.told(node.name) for node in model.graph.node if _OWN.fullmatch(node.name)}
            for node in model.graph.node:
                told = self.told(node.name)
                node.name = told if _OWN.fullmatch(node.name) else _free(told or node.op_type, nodes)


def _free(name: str, taken: set[str]) -> str:
    """The name, or one made of it that is not taken; it is then."""
    chosen = name
    number = 0
    while chosen in taken:
        number += 1
        chosen = f"{name}_{number}"
    taken.add(chosen)
    return chosen


def _tensors(graph: GraphProto) -> Iterator[str]:
    """Names of the tensors of a graph, not of those within it; some several times."""
    for values in (graph.input, graph.initializer, graph.output, graph.value_info):
        yield from (value.name for value in values if value.name)
    yield from (value.values.name for value in graph.sparse_initializer)
    for node in graph.node:
        yield from (name for name in (*node.input, *node.output) if name)


def _rename(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Rename tensors in a graph and in those within it, which read them too."""
    for values in (graph.input, graph.initializer, graph.output, graph.value_info):
        for value in values:
            value.name = names.get(value.name, value.name)
    for value in graph.sparse_initializer:
        value.values.name = names.get(value.values.name, value.values.name)
    del graph.quantization_annotation[:]
    for node in graph.node:
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
        for inner in _graphs(node):
            _rename(inner, names)


def _graphs(node: NodeProto) -> Iterable[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs
