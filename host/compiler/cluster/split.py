"""Splits: which part of a layer's output each core computes, and what of the inputs it needs for that."""

from __future__ import annotations

import enum
import itertools

from ...graph import Graph, Layer
from ..data.exchange import Excerpt, Region


class Split(enum.Enum):
    """What of a layer's output the cores have a part of each."""

    #: One core computes all of it.
    ONE = enum.auto()
    ROWS = enum.auto()
    CHANNELS = enum.auto()


#: What each core computes of an output; None of a core that has no part.
Parts = tuple[Region | None, ...]


def parts_of(graph: Graph, layer: Layer, split: Split, cores: int, unit: int) -> Parts | None:
    """What each core computes of a layer's output; None where the layer cannot be split so.

    Parameters
    ----------
    graph : Graph
    layer : Layer
    split : Split
    cores : int
    unit : int
        Channels that stay together.
    """
    whole = Excerpt.all_of(graph.tensors[layer.output]).region
    if split is Split.ONE:
        return (whole, *(None,) * (cores - 1))
    if split is Split.ROWS:
        # Rows that have the same window stay together.
        shares = evenly(len(whole.rows), cores, layer.window.up[0])
        parts = [Region(rows, whole.channels) if rows else None for rows in shares]
    else:
        parts = [
            Region(whole.rows, channels) if channels else None for channels in evenly(len(whole.channels), cores, unit)
        ]
    possible = all(part is None or part_of(graph, layer, part) is not None for part in parts)
    return tuple(parts) if possible and parts[1] is not None else None


def evenly(count: int, cores: int, unit: int = 1) -> list[range]:
    """``range(count)`` in a part for each core, as even as whole units allow, the larger ones first."""
    units = -(-count // unit)
    sizes = [units // cores + (core < units % cores) for core in range(cores)]
    edges = [min(edge * unit, count) for edge in itertools.accumulate(sizes, initial=0)]
    return [range(start, stop) for start, stop in itertools.pairwise(edges)]


def part_of(graph: Graph, layer: Layer, region: Region) -> tuple[Layer, Region] | None:
    """The layer that computes some of a layer's output, and the region that it needs of each input.

    None where the layer cannot be taken apart so, or where the part is computed of nothing but padding.
    """
    target, sources = graph.tensors[layer.output], [graph.tensors[name] for name in layer.inputs]
    rows = [range(source.shape[0]) for source in sources]
    if region.rows != range(target.shape[0]):
        rows = [layer.window.rows_read(region.rows, sources[0].shape[0])] * len(sources)
        part = layer.of_rows(region.rows, sources[0].shape[0])
        if part is None:
            return None
        layer = part
    channels = None
    if region.channels != range(target.shape[2]):
        found = layer.of_channels(region.channels, sources[0])
        if found is None:
            return None
        layer, channels = found
    needed = [Region(own, channels or range(source.shape[2])) for own, source in zip(rows, sources, strict=True)]
    edges = [(source, edge) for source, part in zip(sources, needed, strict=True) for edge in _edges(part, source)]
    edges += [(target, edge) for edge in _edges(region, target)]
    if not all(rows) or any(edge * tensor.bits % 8 for tensor, edge in edges):
        return None
    return layer, needed


def _edges(region: Region, tensor) -> list[int]:
    """Channels at which a region begins, or ends before the tensor does."""
    return [edge for edge in (region.channels.start, region.channels.stop) if edge < tensor.shape[2]]
