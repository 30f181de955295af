"""The channel graph of a network: the channels of each layer and the channels that they depend on.

Kernels, strides and sizes do not matter here: a layer states on which channels of its sources each channel of its
result depends. Source: "Sparse channel connectivity", on connection patterns without dead filters.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Dependence(enum.StrEnum):
    """The channels of its sources on which a channel of a layer's result depends."""

    #: The channels of its source that a connection pattern names, for a convolution.
    SPARSE = "sparse"
    #: All channels of its source: a convolution, a fully connected layer.
    DENSE = "dense"
    #: One channel of its source: depthwise convolution, pooling, normalisation, an activation. With m times as many
    #: channels (a depthwise convolution with a multiplier, a flattened feature map) each channel becomes m neighbours.
    CHANNELWISE = "channelwise"
    #: The channel of the same number of each source.
    SUM = "sum"
    #: One channel of one source; the sources follow one another.
    CONCATENATION = "concatenation"
    #: One channel of its source: those from a first one on, one after the other.
    SLICE = "slice"


@dataclass(frozen=True)
class ChannelLayer:
    """A layer, and the tensor that it computes, which has its name.

    Attributes
    ----------
    name : str
    kind : Dependence
    sources : tuple of str
        Names of the tensors that it reads: two or more for a SUM, one or more for a CONCATENATION, else one.
    channels : int
        The channels of its result.
    first : int
        The first channel of its source that a SLICE has; 0 elsewhere.
    """

    name: str
    kind: Dependence
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
        """The number of channels of every tensor, inputs first."""
        return dict(self.inputs) | {layer.name: layer.channels for layer in self.layers}

    @property
    def sparse_layers(self) -> tuple[ChannelLayer, ...]:
        """The layers that have a connection pattern."""
        return tuple(layer for layer in self.layers if layer.kind is Dependence.SPARSE)

    def covering_layers(self) -> frozenset[str]:
        """Return the names of the sparse layers that have to connect every channel of their source.

        For a tensor that only sparse layers read, this is the one with the most possible connections, the first of
        equals. If another layer reads the tensor too (a sum around the convolution), or it is an output, it is none.
        """
        found = set()
        for name in self.channels:
            readers = [layer for layer in self.layers if name in layer.sources]
            if name not in self.outputs and all(layer.kind is Dependence.SPARSE for layer in readers):
                found.add(max(readers, key=lambda layer: layer.channels).name)
        return frozenset(found)


def _check_channels(name: str, channels: int) -> None:
    if channels < 1:
        raise ValueError(f"{name}: channels must be at least 1, not {channels}")


def _check_layer(layer: ChannelLayer, before: list[int]) -> None:
    """Check that a layer's sources, and their channels, are as many as its kind requires."""
    least, most = {Dependence.SUM: (2, None), Dependence.CONCATENATION: (1, None)}.get(layer.kind, (1, 1))
    if len(before) < least or (most is not None and len(before) > most):
        count = f"{least} or more" if most is None else "1"
        raise ValueError(f"{layer.name}: sources of a {layer.kind} layer must be {count}, not {len(before)}")
    if layer.kind is Dependence.SUM and set(before) != {layer.channels}:
        raise ValueError(f"{layer.name}: sources of a sum must have {layer.channels} channels each, not {before}")
    if layer.kind is Dependence.CONCATENATION and sum(before) != layer.channels:
        raise ValueError(f"{layer.name}: channels must be {sum(before)}, the sum of its sources', not {layer.channels}")
    end = layer.first + layer.channels
    if layer.first and layer.kind is not Dependence.SLICE:
        raise ValueError(f"{layer.name}: first must be 0 of a {layer.kind} layer, not {layer.first}")
    if layer.kind is Dependence.SLICE and not 0 <= layer.first < end <= before[0]:
        raise ValueError(
            f"{layer.name}: channels must be among its source's {before[0]}, not {layer.first} to {end - 1}"
        )
    if layer.kind is Dependence.CHANNELWISE and layer.channels % before[0]:
        raise ValueError(
            f"{layer.name}: channels must be a multiple of its source's {before[0]}, not {layer.channels}; "
            "if it mixes channels, it is a dense layer"
        )
