"""Replacement of pointwise convolutions by fast ones, and parameter groups of an optimiser."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from torch import nn

from ...golden.config import Config
from ...host.compiler import check_pattern
from ...host.files.configuration import find_config
from ..layers.binary import BinaryLayer
from ..layers.layer import FastPointwiseConv2d


def replace_pointwise(
    model: nn.Module,
    *,
    config: str | Path | Config | None = None,
    least_channels: int = 16,
    exclude: Iterable[str] = (),
    **settings: object,
) -> list[str]:
    """Replace the pointwise convolutions of a model by fast ones, with new weights.

    Every ``Conv2d`` with the kernel 1x1, the stride 1, one group and no padding is replaced.

    Parameters
    ----------
    model : nn.Module
        The model, changed in place, or not at all in case of an error.
    config : str, Path or Config, optional
        The preset, file or configuration that is to run it: models that it cannot run are refused before any training.
    least_channels : int
        Convolutions with fewer input or output channels are not replaced, as there is little to gain.
    exclude : iterable of str
        Names of modules that are not replaced.
    **settings
        Settings of :class:`FastPointwiseConv2d`: direction, densities ... With ``skips="ends"`` each has a skip from
        its first to its last stage.

    Returns
    -------
    list of str
        Names of the replaced modules.

    Raises
    ------
    ValueError
        If a name in ``exclude`` is not a module of the model, the settings do not fit a convolution's channels, or the
        configuration cannot run a replacement.
    """
    accelerator = None if config is None else find_config(config)
    excluded, modules = set(exclude), dict(model.named_modules())
    unknown = sorted(excluded - set(modules))
    if unknown:
        raise ValueError(f"exclude must be names of modules, and {unknown[0]!r} is none")
    replacing: dict[str, FastPointwiseConv2d] = {}
    for name, module in modules.items():
        if name in excluded or not is_pointwise(module):
            continue
        if min(module.in_channels, module.out_channels) < least_channels:
            continue
        try:
            replacing[name] = make_fast(module, **settings)
            if accelerator is not None:
                check_pattern(replacing[name].pattern, accelerator)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    for name, fast in replacing.items():
        model.set_submodule(name, fast)
    return list(replacing)


def is_pointwise(module: nn.Module) -> bool:
    """Return whether a module is a convolution that a fast one can replace."""
    return (
        isinstance(module, nn.Conv2d)
        and (module.kernel_size, module.stride, module.groups) == ((1, 1), (1, 1), 1)
        and module.padding in ((0, 0), "valid", "same")
    )


def make_fast(module: nn.Conv2d, **settings: object) -> FastPointwiseConv2d:
    """Create the fast pointwise convolution for a convolution's channels."""
    channels = module.in_channels, module.out_channels
    if settings.get("skips") == "ends":
        settings = settings | {"skips": [(0, (max(channels) - 1).bit_length() - 1)]}
    fast = FastPointwiseConv2d(*channels, bias=module.bias is not None, **settings)
    return fast.to(module.weight.device, module.weight.dtype)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Return groups for an optimiser: weight decay for all but fast pointwise convolutions and weights of binary
    layers.

    A weight of the dense matrix is a product of one weight of each stage: decay would pull it to zero with the power of
    the stages. Of a binary layer's weight only the sign counts.
    """
    exempt = {id(parameter) for parameter in _exempt(model)}
    others = [parameter for parameter in model.parameters() if id(parameter) not in exempt]
    groups = [{"params": others, "weight_decay": weight_decay}]
    return [*groups, {"params": list(_exempt(model)), "weight_decay": 0.0}]


def _exempt(model: nn.Module) -> Iterator[nn.Parameter]:
    for module in model.modules():
        if isinstance(module, FastPointwiseConv2d):
            yield from module.parameters()
        elif isinstance(module, BinaryLayer):
            yield module.weight
