"""Convolution of int8 codes: the accumulators that ONNX Runtime's QLinearConv requantises."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[Any]
Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Pair = tuple[int, int]
Pads = tuple[int, int, int, int]


def convolve(
    codes: Int8,
    weights: Int8,
    bias: Int32,
    *,
    zero_point: int,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    groups: int = 1,
) -> Int32:
    """Convolve, with borders of the zero point.

    A fully connected layer is the convolution whose kernel covers the map, a depthwise one has a group for each channel
    of the input, and an average pooling is a depthwise convolution of unit weights.

    Parameters
    ----------
    codes : int8[height, width, channels]
    weights : int8[output channels, kernel rows, kernel columns, channels / groups]
    bias : int32[output channels]
    zero_point : int
        Of ``codes``.
    stride, dilation : (vertical, horizontal)
    pads : (top, left, bottom, right)
    groups : int
        The output channels of each group read only its share of the input channels.

    Returns
    -------
    int32[output rows, output columns, output channels]
        ``bias + sum((codes - zero_point) * weights)`` over the window, modulo 2**32.

    Raises
    ------
    TypeError
        If an array has another type.
    ValueError
        If shapes do not fit, the groups do not divide the channels, the kernel is larger than the map with its borders,
        or the zero point is not an int8 code.
    """
    codes, weights, bias = np.asarray(codes), np.asarray(weights), np.asarray(bias)
    _check(codes, weights, bias, groups)
    # The zero point is taken off the sums: borders hold it too, so all windows lose the same.
    sums = weights.sum(axis=(1, 2, 3), dtype=np.int64)
    kind, (_, rows, columns, channels) = _exact_type(weights), weights.shape
    found = patches(
        codes.astype(kind), kernel=(rows, columns), stride=stride, dilation=dilation, pads=pads, border=zero_point
    )
    kernels = weights.astype(kind)
    apart = channels == 1 < groups
    total = _apart(found, kernels, groups) if apart else _by_matrices(found, kernels, groups)
    return total.astype(np.int64).astype(np.int32) + (bias - zero_point * sums).astype(np.int32)


def _check(codes: Codes, weights: Codes, bias: Codes, groups: int) -> None:
    for name, array, dtype in (("codes", codes, np.int8), ("weights", weights, np.int8), ("bias", bias, np.int32)):
        if array.dtype != dtype:
            raise TypeError(f"{name} must be {np.dtype(dtype)}, not {array.dtype}")
    outputs, *_, channels = weights.shape
    if groups < 1 or outputs % groups:
        raise ValueError(f"groups must divide the {outputs} output channels, not {groups}")
    if codes.shape[-1] != channels * groups:
        raise ValueError(f"codes must have the {channels * groups} channels of weights, not {codes.shape[-1]}")
    if bias.shape != (outputs,):
        raise ValueError(f"bias must have the shape ({outputs},), not {bias.shape}")


def _exact_type(weights: Int8) -> type[np.float32 | np.float64]:
    """A type that adds up products with codes without rounding, in whatever order BLAS does."""
    greatest = 128 * int(np.abs(weights, dtype=np.int32).sum(axis=(1, 2, 3)).max(initial=0))
    # float64 would round sums of more than 2**38 products.
    return np.float32 if greatest <= 1 << 24 else np.float64


def _by_matrices(found: Codes, kernels: Codes, groups: int) -> Codes:
    """Sums [output rows, output columns, output channels] of all groups, a matrix product each."""
    height, width, rows, columns, _ = found.shape
    taken = found.reshape(height * width, rows * columns, groups, -1).transpose(2, 0, 1, 3)
    matrices = taken.reshape(groups, height * width, -1)
    by_group = kernels.reshape(groups, len(kernels) // groups, -1).transpose(0, 2, 1)
    total = matrix_product(matrices, by_group)
    return total.transpose(1, 0, 2).reshape(height, width, -1)


def matrix_product(left: Codes, right: Codes) -> Codes:
    """Multiply matrices whose sums the type holds exactly.

    Parameters
    ----------
    left : float[..., rows, terms]
        Integers.
    right : float[..., terms, columns]
        Integers.

    Returns
    -------
    float[..., rows, columns]

    Raises
    ------
    FloatingPointError
        If a sum is not a finite number: no integers lead to it.
    """
    # BLAS computes on lanes of a vector that belong to no element, whatever they hold: the flag of an invalid operation
    # says nothing about the sums, and warned of right ones (numpy issue 24067 is a case). So the sums are looked at.
    with np.errstate(invalid="ignore"):
        product = left @ right
    if not np.isfinite(product).all():
        raise FloatingPointError("a matrix product of integers is not finite: report this with the versions of numpy")
    return product


def _apart(found: Codes, kernels: Codes, groups: int) -> Codes:
    """The same where each group has one input channel: matrices would be single columns."""
    height, width, rows, columns, _ = found.shape
    # [kernel rows, kernel columns, groups, output channels of a group]
    taps = kernels.reshape(groups, -1, rows, columns).transpose(2, 3, 0, 1)
    if height * width < rows * columns:
        total = np.einsum("hwrcg,rcgo->hwgo", found, taps)
    else:
        total = np.zeros((height, width, *taps.shape[2:]), found.dtype)
        for row in range(rows):
            for column in range(columns):
                total += found[:, :, row, column, :, np.newaxis] * taps[row, column]
    return total.reshape(height, width, -1)


def patches(codes: Codes, *, kernel: Pair, stride: Pair, dilation: Pair, pads: Pads, border: int) -> Codes:
    """What the window sees at each position.

    Parameters
    ----------
    codes : int8[height, width, channels]
        Codes, in whatever type.
    kernel, stride, dilation : (vertical, horizontal)
    pads : (top, left, bottom, right)
    border : int
        Code of the borders.

    Returns
    -------
    int8[output rows, output columns, kernel rows, kernel columns, channels]
        A view of the type of ``codes``: not to be written.

    Raises
    ------
    ValueError
        If the kernel is larger than the map with its borders, a size is out of range, or the border is not an
        int8 code.
    """
    if not -128 <= border <= 127:
        raise ValueError(f"border must be between -128 and 127, not {border}")
    sizes = (("kernel", kernel, 1), ("stride", stride, 1), ("dilation", dilation, 1), ("pads", pads, 0))
    for name, value, least in sizes:
        if min(value) < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")
    top, left, bottom, right = pads
    height, width, channels = codes.shape
    padded = np.full((top + height + bottom, left + width + right, channels), border, codes.dtype)
    padded[top : top + height, left : left + width] = codes
    extent = tuple(d * (size - 1) + 1 for size, d in zip(kernel, dilation, strict=True))
    if extent[0] > padded.shape[0] or extent[1] > padded.shape[1]:
        raise ValueError(
            f"kernel must be at most the map with its borders {padded.shape[:2]}, not {extent} with its dilation"
        )
    counts = ((whole - part) // step + 1 for whole, part, step in zip(padded.shape, extent, stride, strict=False))
    down, along, between = padded.strides
    return np.lib.stride_tricks.as_strided(
        padded,
        (*counts, *kernel, channels),
        (stride[0] * down, stride[1] * along, dilation[0] * down, dilation[1] * along, between),
        writeable=False,
    )
