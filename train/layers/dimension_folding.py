"""Dimension folding in training: filter and input are folded in the forward pass, with the original layer's gradients.

Source: *Data processing apparatus and method for executing a neural network model*. The splits are those of
:mod:`lutterfly.golden.connections.dimension_folding`.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional


def fold_filter(weight: torch.Tensor, folds: tuple[int, int]) -> torch.Tensor:
    """Move kernel rows and columns into the input channels.

    Parameters
    ----------
    weight : float[outputs, inputs, kernel_height, kernel_width]
    folds : (int, int)
        Kernel rows and columns that become channels (nh, nw). A kernel that is not a multiple is padded with zeros.

    Returns
    -------
    float[outputs, nh * nw * inputs, kernel_height', kernel_width']
        The folded filter, in whose channels the old channels change fastest, then the columns.
    """
    outputs, inputs, *kernel = weight.shape
    (height, rows), (width, columns) = ((-(-size // n), n) for size, n in zip(kernel, folds, strict=True))
    padded = functional.pad(weight, (0, width * columns - kernel[1], 0, height * rows - kernel[0]))
    parts = padded.reshape(outputs, inputs, height, rows, width, columns)
    return parts.permute(0, 3, 5, 1, 2, 4).reshape(outputs, rows * columns * inputs, height, width)


def fold_input(
    values: torch.Tensor, kernel: tuple[int, int], stride: tuple[int, int], folds: tuple[int, int]
) -> torch.Tensor:
    """Fold a feature map like a filter; where strides are not multiples of the folds, folded pixels overlap.

    Parameters
    ----------
    values : float[batch, inputs, height, width]
        The feature map, padded already.
    kernel, stride : (int, int)
        Kernel and stride of the layer before folding.
    folds : (int, int)

    Returns
    -------
    float[batch, nh * nw * inputs, height', width']
    """
    height, width = (
        # The range is from the first row of the first window to the last one, padding included, of the last window.
        (length - size) // step * step + -(-size // n) * n
        for length, size, step, n in zip(values.shape[2:], kernel, stride, folds, strict=True)
    )
    missing = max(width - values.shape[3], 0), max(height - values.shape[2], 0)
    values = functional.pad(values, (0, missing[0], 0, missing[1]))[:, :, :height, :width]
    for axis, (step, n) in enumerate(zip(stride, folds, strict=True), 2):
        values = values.unfold(axis, n, math.gcd(step, n))
    batch, inputs, height, width, rows, columns = values.shape
    return values.permute(0, 4, 5, 1, 2, 3).reshape(batch, rows * columns * inputs, height, width)


def folded_conv2d(
    values: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    stride: tuple[int, int],
    folds: tuple[int, int],
) -> torch.Tensor:
    """Compute ``conv2d(values, weight, bias, stride)`` with the folded filter and input.

    Parameters
    ----------
    values : float[batch, inputs, height, width]
    weight : float[outputs, inputs, kernel_height, kernel_width]
    bias : float[outputs], optional
    stride, folds : (int, int)

    Returns
    -------
    float[batch, outputs, ...]
        The same numbers: the sums have additional zeros, and another order.
    """
    kernel = weight.shape[2], weight.shape[3]
    shared = [math.gcd(step, n) for step, n in zip(stride, folds, strict=True)]
    return functional.conv2d(
        fold_input(values, kernel, stride, folds),
        fold_filter(weight, folds),
        bias,
        stride=[step // every for step, every in zip(stride, shared, strict=True)],
        # Folded pixels closer than the kernel's steps overlap; dilation skips those between.
        dilation=[n // every for n, every in zip(folds, shared, strict=True)],
    )
