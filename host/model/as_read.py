"""Rewrite models that ONNX Runtime reads although they break the standard into models that obey it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_STANDARD = "ai.onnx"


def as_onnx_runtime_reads(model: onnx.ModelProto) -> None:
    """Change a parsed model into one that obeys the standard and has the meaning that ONNX Runtime gives it.

    ONNX Runtime sorts nodes, takes the last one of several initializers of a name, ignores those without a name, and
    accepts the standard operators with their domain's name too.
    """
    graph = model.graph
    for node in graph.node:
        if node.domain == _STANDARD:
            node.domain = ""
    last = {tensor.name: place for place, tensor in enumerate(graph.initializer)}
    for place in reversed(range(len(graph.initializer))):
        name = graph.initializer[place].name
        if not name or last[name] != place:
            del graph.initializer[place]
    nodes = list(graph.node)
    order = list(_sorted(graph))
    if order != sorted(order) and len(order) == len(nodes):
        copies = [copy.deepcopy(nodes[place]) for place in order]
        del graph.node[:]
        graph.node.extend(copies)


def unmade(graph: onnx.GraphProto) -> tuple[onnx.NodeProto, str] | None:
    """Return a node that can never run, and a tensor that it waits for; None if there is none.

    The tensor is one that nothing computes, if there is one; else nodes wait for one another.
    """
    done = set(_sorted(graph))
    waiting = [node for place, node in enumerate(graph.node) if place not in done]
    made = {name for node in graph.node for name in node.output} | _given(graph)
    missing = [(node, name) for node in waiting for name in reads(node) if name not in made]
    late = {name for node in waiting for name in node.output}
    return next(iter([*missing, *((node, name) for node in waiting for name in reads(node) if name in late)]), None)


def reads(node: onnx.NodeProto) -> list[str]:
    """Return the tensors that a node reads, including those that its branches and bodies read from outside."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = {item.name for item in (*graph.input, *graph.initializer)}
            own |= {name for inner in graph.node for name in inner.output}
            inside = [*(name for inner in graph.node for name in reads(inner)), *(item.name for item in graph.output)]
            names += [name for name in inside if name not in own]
    return names


def _given(graph: onnx.GraphProto) -> set[str]:
    sparse = {tensor.values.name for tensor in graph.sparse_initializer}
    return sparse | {item.name for item in (*graph.input, *graph.initializer)}


def _sorted(graph: onnx.GraphProto) -> Iterator[int]:
    """Return the indices of nodes in an order in which they can run, as far as there is one, close to the given
    order."""
    known, readers = _given(graph), dict[str, list[int]]()
    missing: list[set[str]] = []
    for place, node in enumerate(graph.node):
        missing.append(set(reads(node)) - known)
        if missing[place]:
            for name in missing[place]:
                readers.setdefault(name, []).append(place)
            continue
        ready = [place]
        while ready:
            at = ready.pop()
            yield at
            for name in set(graph.node[at].output) - known:
                known.add(name)
                for reader in readers.pop(name, []):
                    missing[reader].discard(name)
                    if not missing[reader]:
                        ready.append(reader)
