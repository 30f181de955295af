"""Find dead filters: channels on no path from an input to a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .channel_graph import ChannelGraph, Dependence


@dataclass(frozen=True)
class DeadChannel:
    """A channel on no path from an input to a prediction: a dead filter of the layer that computes it.

    Attributes
    ----------
    layer : str
        The name of the layer, or of an input.
    channel : int
    is_reached : bool
        Whether some input reaches it.
    is_needed : bool
        Whether it reaches a prediction.
    """

    layer: str
    channel: int
    is_reached: bool
    is_needed: bool

    def __str__(self) -> str:
        reasons = [] if self.is_reached else ["is not reached from an input"]
        reasons += [] if self.is_needed else ["does not reach a prediction"]
        return f"{self.layer}: channel {self.channel} {' and '.join(reasons)}"


def find_dead(graph: ChannelGraph, connections: Mapping[str, np.ndarray]) -> list[DeadChannel]:
    """Find dead filters.

    Parameters
    ----------
    graph : ChannelGraph
    connections : mapping of str to bool[inputs, outputs]
        For each sparse layer, whether an input channel is connected to an output channel.

    Returns
    -------
    list of DeadChannel
        In order of layers and channels. If it is empty, every connection lies on a path from an input to a prediction.

    Raises
    ------
    TypeError, ValueError
        If a sparse layer has no connections, or they are not of its channels; if there is no such layer.
    """
    _check_connections(graph, connections)
    reached, needed = _reached(graph, connections), _needed(graph, connections)
    return [
        DeadChannel(name, channel, bool(reached[name][channel]), bool(needed[name][channel]))
        for name in graph.channels
        for channel in np.flatnonzero(~(reached[name] & needed[name])).tolist()
    ]


def _reached(graph: ChannelGraph, connections: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return, for each tensor, whether some input reaches each channel."""
    reached = {name: np.ones(channels, bool) for name, channels in graph.inputs.items()}
    for layer in graph.layers:
        before = [reached[source] for source in layer.sources]
        if layer.kind is Dependence.SPARSE:
            result = np.logical_or.reduce(connections[layer.name][before[0]], axis=0)
        elif layer.kind is Dependence.DENSE:
            result = np.full(layer.channels, before[0].any())
        elif layer.kind is Dependence.SUM:
            result = np.logical_or.reduce(before)
        elif layer.kind is Dependence.SLICE:
            result = before[0][layer.first : layer.first + layer.channels]
        else:
            whole = np.concatenate(before)
            result = whole.repeat(layer.channels // len(whole))
        reached[layer.name] = result
    return reached


def _needed(graph: ChannelGraph, connections: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return, for each tensor, whether each channel reaches a prediction."""
    needed = {name: np.full(channels, name in graph.outputs) for name, channels in graph.channels.items()}
    for layer in reversed(graph.layers):
        after = needed[layer.name]
        widths = [len(needed[source]) for source in layer.sources]
        if layer.kind is Dependence.SPARSE:
            parts = [np.logical_or.reduce(connections[layer.name][:, after], axis=1)]
        elif layer.kind is Dependence.DENSE:
            parts = [np.full(widths[0], after.any())]
        elif layer.kind is Dependence.SUM:
            parts = [after for _ in widths]
        elif layer.kind is Dependence.SLICE:
            parts = [np.pad(after, (layer.first, widths[0] - layer.first - layer.channels))]
        else:
            parts = np.split(np.logical_or.reduce(after.reshape(sum(widths), -1), axis=1), np.cumsum(widths)[:-1])
        for source, part in zip(layer.sources, parts, strict=True):
            needed[source] = needed[source] | part
    return needed


def _check_connections(graph: ChannelGraph, connections: Mapping[str, np.ndarray]) -> None:
    channels, names = graph.channels, [layer.name for layer in graph.sparse_layers]
    for name in connections:
        if name not in names:
            raise ValueError(f"{name}: connections must be of a sparse layer, and it is none of {', '.join(names)}")
    for layer in graph.sparse_layers:
        if layer.name not in connections:
            raise ValueError(f"{layer.name}: connections must be given, and are missing")
        given, shape = connections[layer.name], (channels[layer.sources[0]], layer.channels)
        if given.dtype != bool:
            raise TypeError(f"{layer.name}: connections must be bool, not {given.dtype}")
        if given.shape != shape:
            raise ValueError(f"{layer.name}: connections must be bool{list(shape)}, not bool{list(given.shape)}")
