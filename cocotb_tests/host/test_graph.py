"""The graph between frontend and compiler: what its layers are called."""

from __future__ import annotations

from graphs import GraphMaker

from lutterfly.host.graph import Window


def test_convolutions_are_called_by_their_groups_and_windows() -> None:
    maker, same = GraphMaker((6, 6, 8)), Window((3, 3), pads=(1, 1, 1, 1))
    name = maker.depthwise(maker.convolution(maker.convolution("x", 8, same), 16, same, groups=2), same)
    graph = maker.finish(maker.convolution(name, 10, Window((6, 6))))
    kinds = [layer.kind(graph.tensors[layer.input].shape, graph.tensors[layer.output].shape) for layer in graph.layers]
    assert kinds == ["convolution", "grouped convolution", "depthwise", "fully connected"]
