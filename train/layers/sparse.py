"""Convolutions with a connection pattern, as a mask on the parameter tensor.

Source: "Sparse channel connectivity", on patterns as masks of the parameters.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import nn

from ...golden.connections.patterns import ConnectionPattern


class SparseConv2d(nn.Conv2d):
    """A ``Conv2d`` whose weights between unconnected channels are 0, all connected at first.

    An unconnected weight is 0 in the parameter, in the forward pass and in an exported file; so is its gradient.
    Optimisers that change nothing without a gradient, weight decay and momentum included, leave it and their own state
    for it at 0.

    Parameters
    ----------
    in_channels, out_channels, kernel_size
        See ``Conv2d``.
    **settings
        Settings of ``Conv2d``: stride, padding, bias ... There is one group.

    Attributes
    ----------
    connected : bool[out_channels, in_channels, 1, 1]
        The pattern; ``state_dict`` has it.
    dense_gradient : float[out_channels, in_channels, height, width] or None
        The sum of the gradients of all weights, unconnected ones included, since it was last cleared; None until
        :meth:`record_gradients`.

    Raises
    ------
    ValueError
        If there is more than one group.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, int], **settings: object
    ) -> None:
        if settings.get("groups", 1) != 1:
            raise ValueError(f"groups must be 1, not {settings['groups']}; use Conv2d")
        super().__init__(in_channels, out_channels, kernel_size, **settings)
        connected = torch.ones(out_channels, in_channels, 1, 1, dtype=torch.bool, device=self.weight.device)
        self.register_buffer("connected", connected)
        self.register_buffer("dense_gradient", None)
        self.register_load_state_dict_post_hook(lambda layer, _: layer.clear_unconnected())

    @property
    def connections(self) -> np.ndarray:
        """Bool[in_channels, out_channels], as in a :class:`.ConnectionPattern`."""
        return self.connected[:, :, 0, 0].cpu().numpy().T

    def connect(self, pattern: ConnectionPattern) -> None:
        """Set the pattern. Weights that it does not connect become 0; those that it adds are 0 already.

        Raises
        ------
        ValueError
            If it has other channels.
        """
        channels = self.in_channels, self.out_channels
        if (pattern.inputs, pattern.outputs) != channels:
            raise ValueError(f"pattern must be of {channels} channels, not {(pattern.inputs, pattern.outputs)}")
        self.connected.copy_(torch.from_numpy(pattern.connections.T.copy())[:, :, None, None])
        self.clear_unconnected()

    def clear_unconnected(self) -> None:
        """Set unconnected weights to 0, which is needed only after the parameter was changed by hand."""
        with torch.no_grad():
            self.weight.masked_fill_(~self.connected, 0)

    def record_gradients(self) -> None:
        """Add the gradients of all weights from now on, in :attr:`dense_gradient`."""
        self.dense_gradient = torch.zeros_like(self.weight, requires_grad=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map float[batch, in_channels, height, width] to float[batch, out_channels, ...]."""
        if torch.compiler.is_exporting():
            # The parameter has its zeros, so the file has a constant: quantisers do not see weights through an
            # operator.
            return super().forward(values)
        # A product would give 0 * inf = nan.
        weight = torch.where(self.connected, self.weight, 0)
        if self.dense_gradient is not None and weight.requires_grad:
            weight.register_hook(self._record)
        return self._conv_forward(values, weight, self.bias)

    def _record(self, gradient: torch.Tensor) -> None:
        self.dense_gradient.add_(gradient)

    def extra_repr(self) -> str:
        """Return the layer's parameters as text."""
        return f"{super().extra_repr()}, density={float(self.connected.float().mean()):.4g}"


def replace_convolutions(model: nn.Module, *, exclude: Iterable[str] = ()) -> list[str]:
    """Replace the convolutions of a model by sparse ones with the same weights, all connected still.

    Every ``Conv2d`` with one group is replaced. The model must not be one itself.

    Parameters
    ----------
    model : nn.Module
        The model, changed in place; make its optimiser afterwards.
    exclude : iterable of str
        Names of modules that are not replaced.

    Returns
    -------
    list of str
        Names of the replaced modules.

    Raises
    ------
    ValueError
        If a name in ``exclude`` is not a module of the model.
    """
    excluded, modules = set(exclude), dict(model.named_modules())
    unknown = sorted(excluded - set(modules))
    if unknown:
        raise ValueError(f"exclude must be names of modules, and {unknown[0]!r} is none")
    # A subclass has a forward pass of its own.
    names = [
        name
        for name, module in modules.items()
        if type(module) is nn.Conv2d and module.groups == 1 and name and name not in excluded
    ]
    for name in names:
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, _sparse_twin(modules[name]))
    return names


def _sparse_twin(module: nn.Conv2d) -> SparseConv2d:
    settings = ("stride", "padding", "dilation", "padding_mode")
    layer = SparseConv2d(
        module.in_channels,
        module.out_channels,
        module.kernel_size,
        bias=module.bias is not None,
        **{name: getattr(module, name) for name in settings},
    ).to(module.weight.device, module.weight.dtype)
    layer.weight, layer.bias = module.weight, module.bias
    return layer.train(module.training)
