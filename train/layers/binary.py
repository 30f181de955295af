"""Binary layers to train: signs of activations and weights, gradients straight through them, batch normalisation.

In training the layers normalise their inner products by the batch; in evaluation they have what the accelerator has,
an integer bias for each channel, so that their signs are those of the exported file.

Source: "Binarized Neural Networks" (Courbariaux et al., 2016), for the gradient of a sign and the clipping of weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ...golden.numerics.binary import signs

#: Bias of a channel that is always +1, as no inner product reaches it.
ALWAYS = 1 << 30


class _Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, values: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(values)
        return torch.where(values >= 0, 1.0, -1.0).to(values.dtype)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
        (values,) = ctx.saved_tensors
        return gradient * (values.abs() <= 1)


def sign(values: torch.Tensor) -> torch.Tensor:
    """Return +1 for each value that is not negative, else -1; the gradient is that of the identity from -1 to 1, else
    0."""
    return _Sign.apply(values)


@dataclass(frozen=True, eq=False)
class Folded:
    """A layer in the accelerator's form.

    Attributes
    ----------
    weights : int8[outputs, inputs, ...]
        Weights, +1 and -1; negated where batch normalisation has a negative factor.
    bias : int32[outputs]
    scale : float32[outputs] or None
        ``(product + bias) * scale`` is the result; None where that is a sign.
    """

    weights: np.ndarray
    bias: np.ndarray
    scale: np.ndarray | None


class BinaryLayer(nn.Module):
    """Base class of the layers: weights, batch normalisation, and their folded form in evaluation."""

    def __init__(self, shape: tuple[int, ...], norm: nn.Module, *, signs: bool) -> None:
        super().__init__()
        self.signs = signs
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-1, 1))
        self.norm = norm

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map float[batch, inputs, ...] to +1 and -1, or real numbers, float[batch, outputs, ...]."""
        if self.training:
            result = self.norm(self.products(sign(values), sign(self.weight)))
            return sign(result) if self.signs else result
        folded = self.fold()
        spread = (-1, *[1] * (self.weight.ndim - 2))
        sums = self.products(sign(values), values.new_tensor(folded.weights))
        sums = sums + values.new_tensor(folded.bias).reshape(spread)
        return sign(sums) if self.signs else sums * values.new_tensor(folded.scale).reshape(spread)

    def products(self, values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return inner products of +1 and -1."""
        raise NotImplementedError

    def fold(self) -> Folded:
        """Fold the batch normalisation into thresholds, or into biases and scales."""
        norm, weights = self.norm, signs(self.weight.detach().cpu().numpy())
        gamma, beta, mean, variance = (
            tensor.detach().cpu().numpy().astype(np.float64)
            for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var)
        )
        factor = gamma / np.sqrt(variance + norm.eps)
        offset = beta - factor * mean
        # (product + exact) * |factor| is the normalised product, of negated weights where the factor is negative.
        exact = np.divide(offset, np.abs(factor), out=np.where(offset >= 0, np.inf, -np.inf), where=factor != 0)
        is_constant = np.abs(exact) > ALWAYS
        exact = np.where(is_constant, np.where(offset >= 0, ALWAYS, -ALWAYS), exact)
        weights[factor < 0] *= -1
        if self.signs:
            # This is not negative from the whole number on at which the normalised product is not.
            return Folded(weights, np.floor(exact).astype(np.int32), None)
        scale = np.where(is_constant, np.abs(offset) / ALWAYS, np.abs(factor)).astype(np.float32)
        # The bias is a float32 number, so that PyTorch adds the same.
        return Folded(weights, np.rint(exact).astype(np.float32).astype(np.int32), scale)


class BinaryConv2d(BinaryLayer):
    """A convolution of signs with signs, and batch normalisation.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size : int
    stride, padding, dilation : int
    pad_value : int
        The value of padding: +1, -1, or 0 for none.
    signs : bool
        Whether the result is +1 and -1, or the normalised product.

    Raises
    ------
    ValueError
        If the pad value is another one.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        pad_value: int = 1,
        signs: bool = True,
    ) -> None:
        if pad_value not in (1, -1, 0):
            raise ValueError(f"pad_value must be +1, -1 or 0, not {pad_value}")
        shape = (out_channels, in_channels, kernel_size, kernel_size)
        super().__init__(shape, nn.BatchNorm2d(out_channels), signs=signs)
        self.stride, self.padding, self.dilation, self.pad_value = stride, padding, dilation, pad_value

    def products(self, values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return inner products, with padding."""
        bordered = functional.pad(values, [self.padding] * 4, value=float(self.pad_value))
        return functional.conv2d(bordered, weights, stride=self.stride, dilation=self.dilation)

    @property
    def geometry(self) -> dict[str, object]:
        """The geometry for the ONNX function."""
        pairs = {"strides": (self.stride,) * 2, "dilations": (self.dilation,) * 2}
        return pairs | {"pads": (self.padding,) * 4, "pad_value": self.pad_value}

    def extra_repr(self) -> str:
        """Return the parameters of the layer as text."""
        outputs, inputs, size, _ = self.weight.shape
        return f"{inputs}, {outputs}, {size}, padding={self.padding} of {self.pad_value:+}, signs={self.signs}"


class BinaryLinear(BinaryLayer):
    """Inner products of signs with signs, and batch normalisation.

    Parameters
    ----------
    in_features, out_features : int
    signs : bool
        Whether the result is +1 and -1, or the normalised product.
    """

    def __init__(self, in_features: int, out_features: int, *, signs: bool = True) -> None:
        super().__init__((out_features, in_features), nn.BatchNorm1d(out_features), signs=signs)

    def products(self, values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return inner products for each sample."""
        return functional.linear(values, weights)

    @property
    def geometry(self) -> dict[str, object]:
        """The geometry for the ONNX function, which is empty."""
        return {}

    def extra_repr(self) -> str:
        """Return the parameters of the layer as text."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}, signs={self.signs}"


def clip_weights(model: nn.Module) -> None:
    """Clip the weights of all binary layers to -1 to 1, after each step of an optimiser.

    Beyond these limits their signs would get no gradient.
    """
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, BinaryLayer):
                module.weight.clamp_(-1, 1)
