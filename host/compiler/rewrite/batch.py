"""Batch: several samples in one inference, which share the weights that are loaded in every inference.

The samples of a network without feature maps are the rows of a map, and its layers are convolutions with a kernel of
1x1: nothing else changes.
"""

from __future__ import annotations

import dataclasses

from ...graph import Graph, Tensor, Window
from ..data.errors import CompileError


def batched(graph: Graph, samples: int) -> Graph:
    """The graph for several samples at a time.

    Parameters
    ----------
    graph : Graph
        For one sample.
    samples : int

    Returns
    -------
    Graph
        Its tensors are int8[samples, 1, channels], and the ONNX tensors that they are those of the samples, one after
        the other along their first axis.

    Raises
    ------
    ValueError
        If ``samples`` is less than 1.
    CompileError
        If there are several and the network has feature maps.
    """
    if samples < 1:
        raise ValueError(f"batch must be at least 1, not {samples}")
    if samples == 1:
        return graph
    for layer in graph.layers:
        shapes = {graph.tensors[name].shape[:2] for name in (*layer.inputs, layer.output)}
        if shapes != {(1, 1)} or layer.window != Window((1, 1)):
            raise CompileError(
                f"{layer.name}: batch must be 1 for a network with feature maps, not {samples}; leave "
                "it out, and samples are run one by one"
            )
    return dataclasses.replace(
        graph, tensors={name: _batched(tensor, samples) for name, tensor in graph.tensors.items()}, batch=samples
    )


def _batched(tensor: Tensor, samples: int) -> Tensor:
    views = tuple(
        dataclasses.replace(view, shape=(samples * view.shape[0], *view.shape[1:]), axes=(0, 1, 2))
        for view in tensor.views
    )
    return dataclasses.replace(tensor, shape=(samples, *tensor.shape[1:]), views=views)
