"""How the channels of a network are connected, and which of them lie on no path from an input to a prediction.

Kernels, strides and sizes do not matter here: a layer says which channels of its sources each channel of its result
depends on. Source: "Sparse channel connectivity", on connection patterns without dead filters.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


class Kind(enum.StrEnum):
    """What a channel of a layer's result depends on."""

    #: On the channels of its source that a connection pattern names: a convolution.
    SPARSE = "sparse"
    #: On all channels of its source: a convolution, a fully connected layer.
    DENSE = "dense"
    #: On one channel of its source: depthwise convolution, pooling, normalisation, an activation. With m times as many
    #: channels (a depthwise convolution with a multiplier, a flattened feature map) each channel becomes m neighbours.
    CHANNELWISE = "channelwise"
    #: On the channel of the same number of each source.
    SUM = "sum"
    #: On one channel of one source: they follow one another.
    CONCATENATION = "concatenation"
    #: On one channel of its source: those from a first one on, one after the other.
    SLICE = "slice"


@dataclass(frozen=True)
class ChannelLayer:
    """A layer, and the tensor that it computes, which has its name.

    Attributes
    ----------
    name : str
    kind : Kind
    sources : tuple of str
        Names of the tensors that it reads: two or more for a SUM, one or more for a CONCATENATION, else one.
    channels : int
        Of its result.
    first : int
        The first channel of its source that a SLICE has; 0 elsewhere.
    """

    name: str
    kind: Kind
    sources: tuple[str, ...]
    channels: int
    first: int = 0


@dataclass(frozen=True)
class ChannelGraph:
    """Layers in an order in which they can be executed.

    Attributes
    ----------
    inputs : mapping of str to int
        Channels of each input.
    layers : tuple of ChannelLayer
    outputs : tuple of str
        The predictions: names of tensors.

    Raises
    ------
    ValueError
        If a name is taken twice or unknown, channels do not fit, or a tensor is neither read nor an output.
    """

    inputs: Mapping[str, int]
    layers: tuple[ChannelLayer, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        known = dict(self.inputs)
        for name, channels in known.items():
            _check_channels(name, channels)
        for layer in self.layers:
            if layer.name in known:
                raise ValueError(f"{layer.name}: name must be of one tensor, not of two; rename a layer")
            _check_channels(layer.name, layer.channels)
            for source in layer.sources:
                if source not in known:
                    raise ValueError(
                        f"{layer.name}: sources must be inputs or layers before it, not {source!r}; "
                        "list layers in order of execution"
                    )
            _check_layer(layer, [known[source] for source in layer.sources])
            known[layer.name] = layer.channels
        for name in self.outputs:
            if name not in known:
                raise ValueError(f"outputs must be inputs or layers, not {name!r}")
        read = {source for layer in self.layers for source in layer.sources}
        for name in known:
            if name not in read and name not in self.outputs:
                raise ValueError(
                    f"{name}: result must be read by a layer or be an output, and is neither; "
                    "leave the layer out, or name it among the outputs"
                )

    @property
    def channels(self) -> dict[str, int]:
        """Of every tensor, inputs first."""
        return dict(self.inputs) | {layer.name: layer.channels for layer in self.layers}

    @property
    def sparse_layers(self) -> tuple[ChannelLayer, ...]:
        """Those that have a connection pattern."""
        return tuple(layer for layer in self.layers if layer.kind is Kind.SPARSE)

    def covering_layers(self) -> frozenset[str]:
        """Names of the sparse layers that have to connect each channel of their source.

        For a tensor that only sparse layers read, this is the one with the most possible connections, the first of
        equals. If another layer reads the tensor too (a sum around the convolution), or it is an output, it is none.
        """
        found = set()
        for name in self.channels:
            readers = [layer for layer in self.layers if name in layer.sources]
            if name not in self.outputs and all(layer.kind is Kind.SPARSE for layer in readers):
                found.add(max(readers, key=lambda layer: layer.channels).name)
        return frozenset(found)


@dataclass(frozen=True)
class DeadChannel:
    """A channel on no path from an input to a prediction: a dead filter of the layer that computes it.

    Attributes
    ----------
    layer : str
        Or an input's name.
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
        Which input channel each sparse layer connects to which output channel.

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
    """Which channels of each tensor an input reaches."""
    reached = {name: np.ones(channels, bool) for name, channels in graph.inputs.items()}
    for layer in graph.layers:
        before = [reached[source] for source in layer.sources]
        if layer.kind is Kind.SPARSE:
            result = np.logical_or.reduce(connections[layer.name][before[0]], axis=0)
        elif layer.kind is Kind.DENSE:
            result = np.full(layer.channels, before[0].any())
        elif layer.kind is Kind.SUM:
            result = np.logical_or.reduce(before)
        elif layer.kind is Kind.SLICE:
            result = before[0][layer.first : layer.first + layer.channels]
        else:
            whole = np.concatenate(before)
            result = whole.repeat(layer.channels // len(whole))
        reached[layer.name] = result
    return reached


def _needed(graph: ChannelGraph, connections: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Which channels of each tensor reach a prediction."""
    needed = {name: np.full(channels, name in graph.outputs) for name, channels in graph.channels.items()}
    for layer in reversed(graph.layers):
        behind = needed[layer.name]
        widths = [len(needed[source]) for source in layer.sources]
        if layer.kind is Kind.SPARSE:
            parts = [np.logical_or.reduce(connections[layer.name][:, behind], axis=1)]
        elif layer.kind is Kind.DENSE:
            parts = [np.full(widths[0], behind.any())]
        elif layer.kind is Kind.SUM:
            parts = [behind for _ in widths]
        elif layer.kind is Kind.SLICE:
            parts = [np.pad(behind, (layer.first, widths[0] - layer.first - layer.channels))]
        else:
            parts = np.split(np.logical_or.reduce(behind.reshape(sum(widths), -1), axis=1), np.cumsum(widths)[:-1])
        for source, part in zip(layer.sources, parts, strict=True):
            needed[source] = needed[source] | part
    return needed


def _check_channels(name: str, channels: int) -> None:
    if channels < 1:
        raise ValueError(f"{name}: channels must be at least 1, not {channels}")


def _check_layer(layer: ChannelLayer, before: list[int]) -> None:
    """Check that the number of its sources, and their channels, are what its kind requires."""
    least, most = {Kind.SUM: (2, None), Kind.CONCATENATION: (1, None)}.get(layer.kind, (1, 1))
    if len(before) < least or (most is not None and len(before) > most):
        count = f"{least} or more" if most is None else "1"
        raise ValueError(f"{layer.name}: sources of a {layer.kind} layer must be {count}, not {len(before)}")
    if layer.kind is Kind.SUM and set(before) != {layer.channels}:
        raise ValueError(f"{layer.name}: sources of a sum must have {layer.channels} channels each, not {before}")
    if layer.kind is Kind.CONCATENATION and sum(before) != layer.channels:
        raise ValueError(f"{layer.name}: channels must be {sum(before)}, the sum of its sources', not {layer.channels}")
    end = layer.first + layer.channels
    if layer.first and layer.kind is not Kind.SLICE:
        raise ValueError(f"{layer.name}: first must be 0 of a {layer.kind} layer, not {layer.first}")
    if layer.kind is Kind.SLICE and not 0 <= layer.first < end <= before[0]:
        raise ValueError(
            f"{layer.name}: channels must be among its source's {before[0]}, not {layer.first} to {end - 1}"
        )
    if layer.kind is Kind.CHANNELWISE and layer.channels % before[0]:
        raise ValueError(
            f"{layer.name}: channels must be a multiple of its source's {before[0]}, not {layer.channels}; "
            "if it mixes channels, it is a dense layer"
        )


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
