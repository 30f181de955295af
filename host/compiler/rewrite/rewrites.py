"""The small rewritings of a graph before it is lowered: batch, tables, matrix products, borders and shuffles.

*Batch*: several samples in one inference share the weights that are loaded in every inference.

The samples of a network without feature maps are the rows of a map, and its layers are convolutions with a kernel of
1x1: nothing else changes.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np

from ....golden.config import Config
from ....golden.memories import LocalMemory
from ...graph import ChannelRule, Graph, Layer, Tensor, Window, copies, own_name
from ..lower.windows import border_classes
from ..network import CompileError, Network
from ..storage import capacity
from .permute import parts_of, reordered


def batched(graph: Graph, samples: int) -> Graph:
    """Return the graph for several samples at a time.

    Parameters
    ----------
    graph : Graph
        For one sample.
    samples : int

    Returns
    -------
    Graph
        The graph with tensors int8[samples, 1, channels], which are ONNX tensors with the samples along their first
        axis.

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


# Tables of concatenations become part of the layers that write their inputs.


def move_tables(plan: Network) -> Network:
    """Move the tables of each concatenation to the layers that write its inputs, where nothing else reads these.

    Two tables in a row become one. The tensor between the two is then in no memory, like that in front of any other
    table.
    """
    graph = plan.graph
    layers, tensors = list(graph.layers), dict(graph.tensors)
    reads = Counter([name for layer in layers for name in layer.inputs] + graph.outputs)
    writers = {layer.output: number for number, layer in enumerate(layers)}
    for index, layer in enumerate(layers):
        inputs, tables = list(layer.inputs), list(layer.input_tables)
        for at, (name, table) in enumerate(zip(inputs, tables, strict=True)):
            writer = writers.get(name)
            if table is None or reads[name] > 1 or writer is None or layers[writer].epilogue is None:
                continue
            inputs[at], tables[at] = own_name(f"{name} in {layer.output}", tensors), None
            target = tensors[layer.output]
            # The tensor has no view, as the model has its codes only as channels of the concatenation.
            tensors[inputs[at]] = dataclasses.replace(target, name=inputs[at], shape=tensors[name].shape, views=())
            layers[writer] = layers[writer].with_table(inputs[at], table)
        if inputs != list(layer.inputs):
            layers[index] = layer.with_input_tables(inputs, tables)
    return dataclasses.replace(plan, graph=dataclasses.replace(graph, layers=layers, tensors=tensors))


# Matrices, which are weights that are known at run time only, are put in the order in which the array reads them.

#: The element that stands for the code 0 in :func:`~.copies.arrange`.
_ZERO = -129


def arrange_matrices(plan: Network) -> Network:
    """Insert a layer before every product of two activations that puts the second one in the order of weight words.

    Its output is stored, and loaded into the weight memory without change.

    Raises
    ------
    CompileError
        If the layer needs too many pieces.
    """
    graph, layers = dataclasses.replace(plan.graph, tensors=dict(plan.graph.tensors)), []
    for layer in plan.graph.layers:
        layers += _arranged(graph, layer, plan.config) if layer.weight_place is not None else [layer]
    return dataclasses.replace(plan, graph=dataclasses.replace(graph, layers=layers))


def _arranged(graph: Graph, layer: Layer, config: Config) -> list[Layer]:
    source, array = graph.tensors[layer.inputs[1]], config.array
    matrix = own_name(f"{layer.output} weights", graph.tensors)
    (outputs, inputs), (columns, lanes) = layer.order.shape, (array.columns, array.lanes)
    tiles, steps = -(-outputs // columns), -(-inputs // lanes)
    padding = (0, tiles * columns - outputs), (0, steps * lanes - inputs)
    wanted = np.pad(layer.order, padding, constant_values=_ZERO).reshape(tiles, columns, steps, lanes)
    words = wanted.swapaxes(1, 2).reshape(tiles * steps, columns, lanes)
    arrangement = copies.arrange(layer.name, "weights", [source.name], matrix, [source.shape], words)
    if arrangement is None:
        raise CompileError(
            f"{layer.name}: {source.name} becomes weights in more than {copies.MOST_PIECES} pieces; let the "
            "elements that are added up lie side by side, or leave the product to the host"
        )
    graph.tensors[matrix] = dataclasses.replace(source, name=matrix, shape=words.shape, views=(), order=())
    # The present place of each element of the matrix.
    places = np.arange(words.size).reshape(tiles, steps, columns, lanes).swapaxes(1, 2)
    order = places.reshape(tiles * columns, -1)[:outputs, :inputs]
    return [arrangement, dataclasses.replace(layer, inputs=(layer.input, matrix), order=order)]


# Zero points of inputs become part of biases.


def normalise(plan: Network) -> Network:
    """Change all layers so that none subtracts a zero point from its input."""
    graph = plan.graph
    layers = [layer.normalised(graph.tensors[layer.input].zero_point) for layer in graph.layers]
    return dataclasses.replace(plan, graph=dataclasses.replace(graph, layers=layers))


# Max pooling with large windows is separated into one along columns and one along rows.


def separate(plan: Network) -> Network:
    """Replace each layer with separable windows by two, where that at least halves the steps, or where the step lists
    of all border classes would exceed their memory.

    The maximum of a window is that of its rows' maxima. The tensor in between has no views, as it is not the model's.
    """
    layers: list[Layer] = []
    tensors = dict(plan.graph.tensors)
    for layer in plan.graph.layers:
        name, source = own_name(f"{layer.output} along columns", tensors), tensors[layer.input]
        parts = layer.separated(name)
        if parts is None or not _is_worth_it(plan, layer):
            layers.append(layer)
            continue
        tensors[name] = Tensor(
            name,
            (*parts[0].window.output_size(*source.shape[:2]), source.shape[2]),
            source.scale,
            source.zero_point,
            views=(),
            bits=source.bits,
        )
        layers += parts
    return dataclasses.replace(plan, graph=dataclasses.replace(plan.graph, layers=layers, tensors=tensors))


def _is_worth_it(plan: Network, layer: Layer) -> bool:
    window, source = layer.window, plan.graph.tensors[layer.input]
    height, width, channels = source.shape
    rows, columns = window.output_size(height, width)
    if min(window.kernel) == 1:
        return False
    classes = border_classes(window, (height, width), range(rows), range(columns))
    lists = {(len(part.kernel_rows), len(part.kernel_columns)) for part in classes}
    if sum(map(math.prod, lists)) > capacity(plan.config, LocalMemory.LIST):
        return True
    joint = rows * columns * math.prod(window.kernel)
    separated = height * columns * window.kernel[1] + rows * columns * window.kernel[0]
    # There must be room for the tensor in between beside both others.
    between = dataclasses.replace(source, shape=(height, columns, channels)).size_bytes
    needed = between + max(source.size_bytes, plan.graph.tensors[layer.output].size_bytes)
    return 2 * separated <= joint and needed <= plan.config.memory.feature_bytes


# Shuffled channels keep the order in which they are copied as whole runs, or not at all, and readers follow.


def sort_shuffles(plan: Network) -> Network:
    """Keep the channels that an arrangement reads in their present order, wherever that order is free.

    Readers then have their weights in that order. A shuffle of all channels moves nothing any more, and one of some
    copies them in runs instead of one by one. Arrangements are processed in order, as a later one may read the channels
    of an earlier one.
    """
    graph, parts = plan.graph, parts_of(plan.graph)
    is_changed = False
    for layer in graph.layers:
        if layer.channel_rule(*graph.ends(layer)) is not ChannelRule.MOVED:
            continue
        # Moved channels are a single part; only joined channels, and those tied to them, are several.
        (part,), now = parts[layer.output], parts.order(layer.output)
        if part.is_fixed:
            continue
        part.order = layer.order_in_runs(graph.tensors[layer.output].shape, now, parts.order(layer.input))
        is_changed |= bool((part.order != now).any())
    return dataclasses.replace(plan, graph=reordered(graph, parts)) if is_changed else plan
