"""Networks of channels for tests: random ones, and liveness by walking single connections."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from lutterfly.golden.connections.channel_graph import ChannelGraph, ChannelLayer, Dependence

#: Name of the tensor and number of the channel.
Channel = tuple[str, int]


@st.composite
def graphs(draw: st.DrawFn, most: int = 20) -> ChannelGraph:
    """Up to ten layers of all kinds, branches and sums included; what nothing reads is an output."""
    inputs = {f"input{i}": draw(st.integers(1, most)) for i in range(draw(st.integers(1, 2)))}
    channels, layers = dict(inputs), []
    for number in range(draw(st.integers(1, 10))):
        kind = draw(st.sampled_from([Dependence.SPARSE, *Dependence]))
        source = draw(st.sampled_from(sorted(channels)))
        sources, width = (source,), draw(st.integers(1, most))
        if kind is Dependence.SUM:
            equal = sorted(name for name in channels if channels[name] == channels[source])
            sources = (source, *draw(st.lists(st.sampled_from(equal), min_size=1, max_size=2)))
            width = channels[source]
        elif kind is Dependence.CONCATENATION:
            sources = (source, *draw(st.lists(st.sampled_from(sorted(channels)), max_size=2)))
            width = sum(channels[name] for name in sources)
        elif kind is Dependence.CHANNELWISE:
            width = channels[source] * draw(st.integers(1, 2))
        elif kind is Dependence.SLICE:
            # The other channels have a slice too, or nothing would read them.
            width, whole = draw(st.integers(1, channels[source])), channels[source]
            if width < whole:
                layers.append(ChannelLayer(f"rest{number}", kind, sources, whole - width, width))
                channels[layers[-1].name] = whole - width
        layers.append(ChannelLayer(f"layer{number}", kind, sources, width))
        channels[layers[-1].name] = width
    read = {source for layer in layers for source in layer.sources}
    return ChannelGraph(inputs, tuple(layers), tuple(name for name in channels if name not in read))


def edges(graph: ChannelGraph, connections: Mapping[str, np.ndarray]) -> set[tuple[Channel, Channel]]:
    """Every single connection of a network, one channel to another."""
    channels, found = graph.channels, set()
    for layer in graph.layers:
        offset = 0
        for source in layer.sources:
            for i in range(channels[source]):
                if layer.kind is Dependence.SPARSE:
                    after = [o for o in range(layer.channels) if connections[layer.name][i, o]]
                elif layer.kind is Dependence.DENSE:
                    after = list(range(layer.channels))
                elif layer.kind is Dependence.CHANNELWISE:
                    times = layer.channels // channels[source]
                    after = list(range(i * times, (i + 1) * times))
                elif layer.kind is Dependence.SLICE:
                    after = [i - layer.first] if layer.first <= i < layer.first + layer.channels else []
                else:
                    after = [offset + i]
                found |= {((source, i), (layer.name, o)) for o in after}
            offset += channels[source] if layer.kind is Dependence.CONCATENATION else 0
    return found


def walk(starts: set[Channel], steps: set[tuple[Channel, Channel]]) -> set[Channel]:
    """All channels that some steps lead to."""
    after: dict[Channel, list[Channel]] = {}
    for first, second in steps:
        after.setdefault(first, []).append(second)
    found, waiting = set(starts), list(starts)
    while waiting:
        for channel in after.get(waiting.pop(), []):
            if channel not in found:
                found.add(channel)
                waiting.append(channel)
    return found


def live_channels(graph: ChannelGraph, connections: Mapping[str, np.ndarray]) -> tuple[set[Channel], set[Channel]]:
    """Those that an input reaches, and those that reach a prediction."""
    channels, steps = graph.channels, edges(graph, connections)
    reached = walk({(name, i) for name in graph.inputs for i in range(channels[name])}, steps)
    ends = {(name, i) for name in graph.outputs for i in range(channels[name])}
    return reached, walk(ends, {(second, first) for first, second in steps})
