"""What the layers of a graph are, in order: as classes, by the names of these, and as `describe` calls them."""

from __future__ import annotations

from lutterfly.host.frontend import describe
from lutterfly.host.graph import Graph


def layer_types(graph: Graph) -> list[type]:
    """The class of each layer."""
    return [type(layer) for layer in graph.layers]


def layer_names(graph: Graph) -> list[str]:
    """The name of each layer's class."""
    return [layer.__name__ for layer in layer_types(graph)]


def described_kinds(graph: Graph) -> list[str]:
    """The kind of every operation, those of the host included."""
    return [row.kind for row in describe(graph)]


def tabled_names(graph: Graph) -> list[str]:
    """The name of each layer's class, and whether it has a table."""
    tables = [getattr(layer, "table", None) is not None for layer in graph.layers]
    return [name + " + table" * has_table for name, has_table in zip(layer_names(graph), tables, strict=True)]
