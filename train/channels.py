"""The channel graph of a model in PyTorch, read from a symbolic trace of it."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional

from ..golden.channel_graph import ChannelGraph, ChannelLayer, Kind
from .binary import BinaryLayer
from .layer import FastPointwiseConv2d
from .sparse import SparseConv2d
from .tracing import trace

_DENSE = (nn.Linear, BinaryLayer, FastPointwiseConv2d)
_CHANNELWISE = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.Dropout, nn.Dropout2d, nn.Flatten, nn.Identity, nn.ZeroPad2d),
    *(nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.AvgPool2d, nn.MaxPool2d),
    *(nn.ELU, nn.GELU, nn.Hardsigmoid, nn.Hardswish, nn.LeakyReLU, nn.PReLU, nn.ReLU, nn.ReLU6, nn.SiLU, nn.Sigmoid),
    nn.Tanh,
)
_CHANNELWISE_FUNCTIONS = (
    *(functional.adaptive_avg_pool2d, functional.avg_pool2d, functional.dropout, functional.max_pool2d),
    *(functional.gelu, functional.hardswish, functional.leaky_relu, functional.relu, functional.relu6),
    *(functional.silu, torch.flatten, torch.relu, torch.sigmoid, torch.tanh),
)
_CHANNELWISE_METHODS = ("contiguous", "flatten", "relu", "sigmoid", "tanh")
_SUMS = (operator.add, operator.iadd, torch.add)
_REMEDY = "write the ChannelGraph by hand"


def channel_graph(model: nn.Module, sample: torch.Tensor) -> ChannelGraph:
    """Describe a model: its layers by the names of their modules, sparse convolutions as sparse layers.

    Parameters
    ----------
    model : nn.Module
        With one input and one output, traceable by ``torch.fx``. It may have convolutions with one group or with a
        group for each input channel, fully connected layers, what works on each channel by itself (pooling,
        normalisation, activations, dropout, flattening), sums and concatenations of channels.
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
        # In evaluation batch normalisation leaves its statistics alone.
        ShapeProp(traced.eval()).propagate(sample)
    for module, is_training in modes:
        module.training = is_training
    names: dict[fx.Node, str] = {}
    inputs, layers, outputs = {}, [], ()
    for node in graph.nodes:
        if node.op == "placeholder":
            names[node] = node.name
            inputs[node.name] = _channels(node)
        elif node.op == "output":
            outputs = tuple(names[source] for source in node.all_input_nodes)
        else:
            layers.append(_layer(node, model, names))
    return ChannelGraph(inputs, tuple(layers), outputs)


def _layer(node: fx.Node, model: nn.Module, names: dict[fx.Node, str]) -> ChannelLayer:
    """The layer that a node is; its name is kept."""
    is_module = node.op == "call_module"
    name = str(node.target) if is_module else node.name
    if name in names.values():
        if isinstance(model.get_submodule(name), SparseConv2d):
            raise ValueError(f"{name} must be called once by the model, not again; give each call its own layer")
        name = node.name
    kind = _module_kind(name, model.get_submodule(str(node.target))) if is_module else _function_kind(node)
    names[node] = name
    sources = tuple(names[source] for source in _operands(node, kind))
    return ChannelLayer(name, kind, sources, _channels(node))


def _module_kind(name: str, module: nn.Module) -> Kind:
    if isinstance(module, SparseConv2d):
        return Kind.SPARSE
    if isinstance(module, nn.Conv2d):
        if module.groups not in (1, module.in_channels):
            raise ValueError(f"{name}: groups must be 1 or {module.in_channels}, one a channel, not {module.groups}")
        return Kind.DENSE if module.groups == 1 else Kind.CHANNELWISE
    if isinstance(module, _DENSE):
        return Kind.DENSE
    if isinstance(module, _CHANNELWISE):
        return Kind.CHANNELWISE
    raise ValueError(f"{name}: module must be one that channel_graph knows, not {type(module).__name__}; {_REMEDY}")


def _function_kind(node: fx.Node) -> Kind:
    target: Callable[..., object] | str = node.target
    if node.op == "call_function" and target in _SUMS:
        return Kind.SUM if len([one for one in node.args if isinstance(one, fx.Node)]) > 1 else Kind.CHANNELWISE
    axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    if node.op == "call_function" and target in (torch.cat, torch.concat) and axis == 1:
        return Kind.CONCATENATION
    if (node.op == "call_function" and target in _CHANNELWISE_FUNCTIONS) or (
        node.op == "call_method" and target in _CHANNELWISE_METHODS
    ):
        return Kind.CHANNELWISE
    what = getattr(target, "__name__", target)
    raise ValueError(f"{node.name}: operation must be one that channel_graph knows, not {what}; {_REMEDY}")


def _operands(node: fx.Node, kind: Kind) -> list[fx.Node]:
    """Tensors that a node reads, one as often as it is read."""
    if kind is Kind.CONCATENATION:
        return list(node.args[0])
    return [one for one in node.args if isinstance(one, fx.Node)] or list(node.kwargs.values())[:1]


def _channels(node: fx.Node) -> int:
    return int(node.meta["tensor_meta"].shape[1])
