"""The channel graph of a model in PyTorch, read from a symbolic trace of it."""

from __future__ import annotations

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from ...golden.connections.channel_graph import ChannelGraph, ChannelLayer, Dependence
from ..layers.binary import BinaryLayer
from ..layers.layer import FastPointwiseConv2d
from ..layers.sparse import SparseConv2d
from ..layers.tracing import trace
from .channel_operations import (
    check_parts,
    is_parted,
    is_tensor,
    operation_kind,
    part,
    parted,
    reshaping_kind,
    shape,
    softmax_kind,
    tensors,
)

_DENSE = (nn.Linear, BinaryLayer, FastPointwiseConv2d)
_CHANNELWISE = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.Dropout, nn.Dropout2d, nn.Identity, nn.Upsample, nn.ZeroPad2d),
    *(nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.AvgPool2d, nn.MaxPool2d),
    *(nn.ELU, nn.GELU, nn.Hardsigmoid, nn.Hardswish, nn.LeakyReLU, nn.PReLU, nn.ReLU, nn.ReLU6, nn.SiLU, nn.Sigmoid),
    nn.Tanh,
)
_SOFTMAX = (nn.Softmax, nn.LogSoftmax)
_REMEDY = "write the ChannelGraph by hand"


def channel_graph(model: nn.Module, sample: torch.Tensor) -> ChannelGraph:
    """Describe a model: its layers by the names of their modules, sparse convolutions as sparse layers.

    Parameters
    ----------
    model : nn.Module
        A model with one input and one output, traceable by ``torch.fx``. It may have convolutions with one group or
        with a group for each input channel, fully connected layers, operations on each channel by itself (pooling,
        means of rows and columns, normalisation, activations, dropout, resizing, products with constants, reshapes
        that keep channels together), softmax, sums, concatenations and chunks of channels.
    sample : float[batch, channels, ...]
        An input, for the shapes.

    Returns
    -------
    ChannelGraph

    Raises
    ------
    ValueError
        If the model cannot be traced, an operation is none of those, or a sparse convolution is called twice.
    """
    graph = trace(model, _REMEDY)
    traced = fx.GraphModule(model, graph)
    modes = [(module, module.training) for module in model.modules()]
    with torch.no_grad():
        # In evaluation batch normalisation does not change its statistics.
        ShapeProp(traced.eval()).propagate(sample)
    for module, is_training in modes:
        module.training = is_training
    names: dict[fx.Node, str] = {}
    inputs, layers, outputs = {}, [], ()
    for node in graph.nodes:
        if node.op == "placeholder":
            names[node] = node.name
            inputs[node.name] = shape(node)[1]
        elif node.op == "output":
            outputs = tuple(names[source] for source in node.all_input_nodes)
        elif is_parted(node):
            check_parts(node)
        elif is_tensor(node) and (node.op == "call_module" or parted(node) or tensors(node, names)):
            # All other nodes are sizes, or are computed from constants.
            layers.append(_layer(node, model, names))
    return ChannelGraph(inputs, tuple(layers), outputs)


def _layer(node: fx.Node, model: nn.Module, names: dict[fx.Node, str]) -> ChannelLayer:
    """Return the layer of a node, and keep its name."""
    is_module = node.op == "call_module"
    name = str(node.target) if is_module else node.name
    if name in names.values():
        if isinstance(model.get_submodule(name), SparseConv2d):
            raise ValueError(f"{name} must be called once by the model, not again; give each call its own layer")
        name = node.name
    names[node] = name
    if source := parted(node):
        kind, first = part(node, source)
        return ChannelLayer(name, kind, (names[source.args[0]],), shape(node)[1], first)
    read = tensors(node, names)
    kind = _module_kind(name, model.get_submodule(str(node.target)), node) if is_module else operation_kind(node, read)
    return ChannelLayer(name, kind, tuple(names[one] for one in read), shape(node)[1])


def _module_kind(name: str, module: nn.Module, node: fx.Node) -> Dependence:
    if isinstance(module, SparseConv2d):
        return Dependence.SPARSE
    if isinstance(module, nn.Conv2d):
        if module.groups not in (1, module.in_channels):
            raise ValueError(f"{name}: groups must be 1 or {module.in_channels}, one a channel, not {module.groups}")
        return Dependence.DENSE if module.groups == 1 else Dependence.CHANNELWISE
    if isinstance(module, _DENSE):
        return Dependence.DENSE
    if isinstance(module, _CHANNELWISE):
        return Dependence.CHANNELWISE
    if isinstance(module, nn.Flatten | nn.Unflatten):
        return reshaping_kind(name, shape(node.args[0]), shape(node))
    if isinstance(module, _SOFTMAX):
        return softmax_kind(name, module.dim, len(shape(node)))
    raise ValueError(f"{name}: module must be one that channel_graph knows, not {type(module).__name__}; {_REMEDY}")
