"""The effect on channels of functions and methods in a trace; both forms of an operation have one name."""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch.fx.passes.shape_prop import TensorMetadata
from torch.nn import functional

from ...golden.connections.channel_graph import Dependence

_REMEDY = "write the ChannelGraph by hand"
#: Operations by the names of their methods.
_CHANNELWISE = {
    "adaptive_avg_pool2d": functional.adaptive_avg_pool2d,
    "avg_pool2d": functional.avg_pool2d,
    "clamp": torch.clamp,
    "contiguous": None,
    "dropout": functional.dropout,
    "gelu": functional.gelu,
    "hardswish": functional.hardswish,
    "interpolate": functional.interpolate,
    "leaky_relu": functional.leaky_relu,
    "max_pool2d": functional.max_pool2d,
    "relu6": functional.relu6,
    "silu": functional.silu,
}
_RESHAPING = ("flatten", "reshape", "squeeze", "unsqueeze", "view")
_SOFTMAX = ("log_softmax", "softmax")
_SUMS = ("add", "iadd", "isub", "sub")
_PRODUCTS = ("div", "imul", "itruediv", "mul", "truediv")
_PARTS = ("chunk", "split")
#: Modules in which functions are searched by those names.
_HOMES = (torch, functional, operator)


def _operation(node: fx.Node) -> str | None:
    """Return the name of a known operation."""
    if node.op == "call_method":
        return str(node.target).rstrip("_")
    if node.op != "call_function":
        return None
    known = ("cat", "concat", "mean", "relu", "sigmoid", "tanh", *_RESHAPING, *_SOFTMAX, *_SUMS, *_PRODUCTS, *_PARTS)
    for name in known:
        if any(getattr(home, name, None) is node.target for home in _HOMES):
            return name
    return next((name for name, function in _CHANNELWISE.items() if function is node.target), None)


def is_tensor(node: fx.Node) -> bool:
    """Return whether the result of a node is a tensor."""
    return isinstance(node.meta.get("tensor_meta"), TensorMetadata)


def shape(node: fx.Node) -> tuple[int, ...]:
    """Return the shape of a node's result."""
    return tuple(node.meta["tensor_meta"].shape)


def tensors(node: fx.Node, names: dict[fx.Node, str]) -> list[fx.Node]:
    """Return the inputs of a node that are tensors, each as often as it is read."""
    given = [*node.args, *node.kwargs.values()]
    listed = [one for item in given for one in (item if isinstance(item, list | tuple) else [item])]
    return [one for one in listed if isinstance(one, fx.Node) and one in names]


def operation_kind(node: fx.Node, read: list[fx.Node]) -> Dependence:
    """Return the kind of a function or a method.

    Raises
    ------
    ValueError
        If it is not known, or mixes channels in another way than all kinds.
    """
    name = _operation(node)
    if name in ("cat", "concat"):
        dim = _argument(node, 1, "dim", 0)
        if dim % len(shape(node)) == 1:
            return Dependence.CONCATENATION
    elif name in _SUMS or name in _PRODUCTS:
        # Broadcasting with a constant may add channels, or move them to another axis.
        before, after = shape(read[0]), shape(node)
        if len(read) == 1 and (len(before), before[:2]) == (len(after), after[:2]):
            return Dependence.CHANNELWISE
        if name in _SUMS and len(read) > 1 and all(shape(one)[1] == shape(node)[1] for one in read):
            return Dependence.SUM
        if len(read) > 1 and name in _PRODUCTS:
            raise ValueError(f"{node.name}: product must be of a tensor and a constant, not of two tensors; {_REMEDY}")
    elif name == "mean":
        return _mean_kind(node, len(shape(read[0])))
    elif name in _RESHAPING:
        return reshaping_kind(node.name, shape(read[0]), shape(node))
    elif name in _SOFTMAX:
        return softmax_kind(node.name, _argument(node, 1, "dim", None), len(shape(node)))
    elif name in _CHANNELWISE or name in ("relu", "sigmoid", "tanh"):
        return Dependence.CHANNELWISE
    what = getattr(node.target, "__name__", node.target)
    raise ValueError(f"{node.name}: operation must be one that channel_graph knows, not {what}; {_REMEDY}")


def reshaping_kind(name: str, before: tuple[int, ...], after: tuple[int, ...]) -> Dependence:
    """Return the kind of a reshape: each channel becomes one channel, or several adjacent ones.

    Raises
    ------
    ValueError
        If a channel of the result has elements of several channels.
    """
    if len(after) > 1 and after[0] == before[0] and not after[1] % before[1]:
        return Dependence.CHANNELWISE
    raise ValueError(
        f"{name}: shape must keep the batch and the elements of each channel together, "
        f"not be {list(after)} of {list(before)}; {_REMEDY}"
    )


def softmax_kind(name: str, dim: int | None, rank: int) -> Dependence:
    """Return the kind of a softmax: over channels results depend on all, over rows or columns on their own channel.

    Raises
    ------
    ValueError
        If it is over the samples, or its axis is not given.
    """
    if dim is None or dim % rank == 0:
        raise ValueError(f"{name}: dim of a softmax must be given, and not be the batch's, not {dim}; {_REMEDY}")
    return Dependence.DENSE if dim % rank == 1 else Dependence.CHANNELWISE


def _mean_kind(node: fx.Node, rank: int) -> Dependence:
    dims = _argument(node, 1, "dim", None)
    listed = [dims] if isinstance(dims, int) else dims or []
    if not listed or any(dim % rank < 2 for dim in listed):
        raise ValueError(f"{node.name}: dim of a mean must be of rows and columns, not {dims}; {_REMEDY}")
    return Dependence.CHANNELWISE


def is_parted(node: fx.Node) -> bool:
    """Return whether a node is a chunk or a split, whose parts are tensors."""
    return _operation(node) in _PARTS


def parted(node: fx.Node) -> fx.Node | None:
    """Return the chunk or split of which a node is a part."""
    is_part = node.target is operator.getitem and isinstance(node.args[0], fx.Node) and is_parted(node.args[0])
    return node.args[0] if is_part else None


def check_parts(node: fx.Node) -> None:
    """Check that all parts are read: channels of the others would be dead.

    Raises
    ------
    ValueError
        With the first part that is not.
    """
    count = len(node.meta["tensor_meta"])
    read = {reader.args[1] % count for reader in node.users if reader.target is operator.getitem}
    for number in sorted(set(range(count)) - read):
        raise ValueError(f"{node.name}: parts must all be read, and part {number} of {count} is not; leave it out")


def part(node: fx.Node, source: fx.Node) -> tuple[Dependence, int]:
    """Return the kind of a part of a chunk or split, and its first channel."""
    pieces = [tuple(meta.shape) for meta in source.meta["tensor_meta"]]
    dim = _argument(source, 2, "dim", 0) % len(pieces[0])
    if dim == 0:
        raise ValueError(f"{source.name}: parts must be of channels, rows or columns, not of the batch; {_REMEDY}")
    if dim > 1:
        return Dependence.CHANNELWISE, 0
    return Dependence.SLICE, sum(piece[1] for piece in pieces[: node.args[1] % len(pieces)])


def _argument(node: fx.Node, position: int, name: str, default: object) -> object:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)
