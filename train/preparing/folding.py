"""Batch normalisation after fast pointwise convolutions, folded into their gains and biases."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import fx, nn

from ..layers.layer import FastPointwiseConv2d
from ..layers.tracing import trace


@dataclass(frozen=True)
class Folds:
    """The result of :func:`fold_batch_norms`.

    Attributes
    ----------
    folded : dict of str to str
        Names of folded normalisations, which are Identities now, by the names of the layers.
    kept : dict of str to str
        For each other layer, the reason why nothing was folded into it.
    """

    folded: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)


def fold_batch_norms(model: nn.Module) -> Folds:
    """Fold every batch normalisation that directly follows a fast pointwise convolution into it.

    They are found in a trace of the model, not by the order of its modules. A normalisation that is not a gain, or
    whose layer has another reader, is kept, and exported as an operator.

    Parameters
    ----------
    model : nn.Module
        A model trained in float, not calibrated yet, traceable by ``torch.fx``. It is changed in place.

    Returns
    -------
    Folds

    Raises
    ------
    ValueError
        If the model cannot be traced, or a layer is in fixed point.
    """
    layers = {name: one for name, one in model.named_modules() if isinstance(one, FastPointwiseConv2d)}
    for name, layer in layers.items():
        _check_float(name, layer)
    graph = trace(model, "call fold_batch_norm for each layer and its normalisation")
    calls: dict[str, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            calls.setdefault(str(node.target), []).append(node)
    found = Folds()
    for name, layer in layers.items():
        try:
            norm = _norm_after(model, name, calls)
            fold_batch_norm(layer, model.get_submodule(norm))
        except ValueError as error:
            found.kept[name] = str(error)
            continue
        model.set_submodule(norm, nn.Identity())
        found.folded[name] = norm
    return found


def _norm_after(model: nn.Module, name: str, calls: dict[str, list[fx.Node]]) -> str:
    """Return the name of the normalisation that is a layer's only reader, and is applied to nothing else."""
    own = calls.get(name, [])
    if len(own) != 1:
        raise ValueError(f"layer must be called once by the model, not {len(own)} times")
    readers = list(own[0].users)
    if len(readers) != 1:
        raise ValueError(
            f"layer must be read by a BatchNorm2d alone, not by {', '.join(map(str, readers)) or 'nothing'}"
        )
    (reader,) = readers
    target = str(reader.target)
    if reader.op != "call_module" or not isinstance(model.get_submodule(target), nn.BatchNorm2d):
        raise ValueError(
            f"layer must be read by a BatchNorm2d, not by {target if reader.op == 'call_module' else reader}"
        )
    if len(calls[target]) != 1:
        raise ValueError(f"norm must be called once by the model, not {len(calls[target])} times")
    return target


def _check_float(name: str, layer: FastPointwiseConv2d) -> None:
    if layer.fixed_point is not None:
        raise ValueError(f"{name} must be in float, not in fixed point, whose scales are of other results; fold first")


def fold_batch_norm(layer: FastPointwiseConv2d, norm: nn.BatchNorm2d) -> None:
    """Fold the batch normalisation after a layer into its gain and bias; an Identity may replace it then.

    Raises
    ------
    ValueError
        If the layer is in fixed point or has a ReLU, or the normalisation has other channels, has no statistics or
        scales a channel by zero or less, while requantisation needs a positive gain.
    """
    _check_float("layer", layer)
    if layer.relu:
        raise ValueError("layer must be without a ReLU, which stands between them; make it with relu=False")
    if norm.num_features != layer.pattern.outputs:
        raise ValueError(f"norm must be of {layer.pattern.outputs} channels, not {norm.num_features}")
    if norm.running_mean is None or norm.running_var is None:
        raise ValueError("norm must have running statistics; make it with track_running_stats=True")
    with torch.no_grad():
        factor = torch.rsqrt(norm.running_var + norm.eps)
        factor = factor if norm.weight is None else factor * norm.weight
        if not bool((factor > 0).all()):
            channel = int((factor <= 0).nonzero()[0, 0])
            raise ValueError(
                f"norm must scale channels by more than zero, not channel {channel} by {float(factor[channel]):.3g}; "
                "keep its weight positive while training, or train without it"
            )
        before = torch.zeros_like(layer.gain) if layer.bias is None else layer.bias
        shift = 0 if norm.bias is None else norm.bias
        bias = (before - norm.running_mean) * factor + shift
        layer.bias = nn.Parameter(bias)
        layer.gain.mul_(factor)
