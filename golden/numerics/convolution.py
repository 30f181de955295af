"""Convolution of int8 codes: the accumulators that ONNX Runtime's QLinearConv requantises."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[Any]
Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
#: Integers, whatever the type.
Totals = npt.NDArray[np.int32 | np.int64 | np.float32 | np.float64]
Pair = tuple[int, int]
Pads = tuple[int, int, int, int]

#: float32 holds every integer up to this one.
EXACT_IN_FLOAT32 = 1 << 24


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
    kernels = Kernels(np.asarray(weights), np.asarray(bias), groups).without(zero_point)
    total = kernels.totals(np.asarray(codes), border=zero_point, stride=stride, dilation=dilation, pads=pads)
    return total.astype(np.int64).astype(np.int32)


class Kernels:
    """Weights with their bias, and what need not be computed anew for each map.

    Parameters
    ----------
    weights : int8[output channels, kernel rows, kernel columns, channels / groups]
    bias : int32[output channels]
    groups : int

    Raises
    ------
    TypeError, ValueError
        As :func:`convolve`.
    """

    def __init__(self, weights: Int8, bias: Int32, groups: int = 1):
        _check_type(weights=(weights, np.int8), bias=(bias, np.int32))
        outputs, rows, columns, channels = weights.shape
        if groups < 1 or outputs % groups:
            raise ValueError(f"groups must divide the {outputs} output channels, not {groups}")
        if bias.shape != (outputs,):
            raise ValueError(f"bias must have the shape ({outputs},), not {bias.shape}")
        self.weights, self.bias, self.groups, self._kernel = weights, bias, groups, (rows, columns)
        products = 128 * np.abs(weights, dtype=np.int32).sum(axis=(1, 2, 3), dtype=np.int64)
        greatest = int((products + np.abs(bias, dtype=np.int64)).max(initial=0))
        # In whatever order BLAS adds up, no sum of products with codes, and none with the bias, is beyond ``greatest``:
        # so the type holds each exactly. float64 would round sums of more than 2**38 products.
        self._kind = np.float32 if greatest <= EXACT_IN_FLOAT32 else np.float64
        self._wraps = greatest >= 1 << 31
        self._floats = weights.astype(self._kind)
        self._is_apart = channels == 1 < groups

    def without(self, zero_point: int) -> Kernels:
        """The kernels whose totals of codes are those of codes less a zero point, where the border is that too."""
        if zero_point == 0:
            return self
        sums = self.weights.sum(axis=(1, 2, 3), dtype=np.int64)
        return Kernels(self.weights, (self.bias - zero_point * sums).astype(np.int32), self.groups)

    def totals(self, codes: Int8, *, border: int, stride: Pair, dilation: Pair, pads: Pads) -> Totals:
        """What the accumulators hold at last, for a map with a border of a code.

        Parameters
        ----------
        codes : int8[height, width, channels]
        border : int
        stride, dilation : (vertical, horizontal)
        pads : (top, left, bottom, right)

        Returns
        -------
        float32, float64 or int32[output rows, output columns, output channels]
            ``bias + sum(codes * weights)`` over the window, modulo 2**32. Integers, whatever the type.

        Raises
        ------
        TypeError, ValueError
            As :func:`convolve`.
        """
        _check_type(codes=(codes, np.int8))
        channels = self.weights.shape[-1] * self.groups
        if codes.shape[-1] != channels:
            raise ValueError(f"codes must have the {channels} channels of weights, not {codes.shape[-1]}")
        found = patches(
            codes, kernel=self._kernel, stride=stride, dilation=dilation, pads=pads, border=border, kind=self._kind
        )
        total = _apart(found, self._floats, self.groups) if self._is_apart else self._by_matrices(found)
        if self._wraps:
            return total.astype(np.int64).astype(np.int32) + self.bias
        total += self.bias
        return total

    def _by_matrices(self, found: Codes) -> Codes:
        """Sums [output rows, output columns, output channels] of all groups, a matrix product each."""
        (height, width, rows, columns, _), groups = found.shape, self.groups
        taken = found.reshape(height * width, rows * columns, groups, -1).transpose(2, 0, 1, 3)
        matrices = taken.reshape(groups, height * width, -1)
        by_group = self._floats.reshape(groups, len(self.weights) // groups, -1).transpose(0, 2, 1)
        total = matrix_product(matrices, by_group)
        return total.transpose(1, 0, 2).reshape(height, width, -1)


def _check_type(**arrays: tuple[Codes, type]) -> None:
    for name, (array, dtype) in arrays.items():
        if array.dtype != dtype:
            raise TypeError(f"{name} must be {np.dtype(dtype)}, not {array.dtype}")


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
    _touch_buffer()
    # BLAS computes on lanes of a vector that belong to no element, whatever they hold: the flag of an invalid operation
    # says nothing about the sums, and warned of right ones (numpy issue 24067 is a case). So the sums are looked at.
    with np.errstate(invalid="ignore"):
        product = left @ right
    if not np.isfinite(product).all():
        raise FloatingPointError("a matrix product of integers is not finite: report this with the versions of numpy")
    return product


@functools.cache
def _touch_buffer() -> None:
    """Have OpenBLAS write to the whole buffer that it copies blocks of matrices to, once in a process.

    Its kernels fetch ahead, beyond what they have written. On a processor of AMD (family 23) this costs so much where
    pages of the buffer have never been touched that products take three times as long. Blocks have up to 320 rows.
    """
    np.ones((32, 400), np.float32) @ np.ones((400, 400), np.float32)


def _apart(found: Codes, kernels: Codes, groups: int) -> Codes:
    """Sums as of matrices, where each group has one input channel: matrices would be single columns."""
    height, width, rows, columns, _ = found.shape
    # [kernel rows, kernel columns, groups, output channels of a group]
    taps = kernels.reshape(groups, -1, rows, columns).transpose(2, 3, 0, 1)
    if height * width < rows * columns:
        return np.einsum("hwrcg,rcgo->hwgo", found, taps).reshape(height, width, -1)
    # Inner loops are as long as a row, where they can be.
    taps = np.ascontiguousarray(np.broadcast_to(taps[:, :, np.newaxis], (rows, columns, width, *taps.shape[2:])))
    total = found[:, :, 0, 0, :, np.newaxis] * taps[0, 0]
    product = np.empty_like(total)
    for row, column in list(np.ndindex(rows, columns))[1:]:
        total += np.multiply(found[:, :, row, column, :, np.newaxis], taps[row, column], out=product)
    return total.reshape(height, width, -1)


def patches(
    codes: Codes,
    *,
    kernel: Pair,
    stride: Pair,
    dilation: Pair,
    pads: Pads,
    border: int,
    kind: npt.DTypeLike = np.int8,
) -> Codes:
    """What the window sees at each position.

    Parameters
    ----------
    codes : int8[height, width, channels]
    kernel, stride, dilation : (vertical, horizontal)
    pads : (top, left, bottom, right)
    border : int
        Code of the borders.
    kind : type
        Of the result.

    Returns
    -------
    kind[output rows, output columns, kernel rows, kernel columns, channels]
        A view: not to be written.

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
    padded = codes.astype(kind, order="C")
    if any(pads):
        padded = np.full((top + height + bottom, left + width + right, channels), border, kind)
        padded[top : top + height, left : left + width] = codes
    extent = tuple(d * (size - 1) + 1 for size, d in zip(kernel, dilation, strict=True))
    if extent[0] > padded.shape[0] or extent[1] > padded.shape[1]:
        raise ValueError(
            f"kernel must be at most the map with its borders {padded.shape[:2]}, not {extent} with its dilation"
        )
    counts = ((whole - part) // step + 1 for whole, part, step in zip(padded.shape, extent, stride, strict=False))
    down, along, between = padded.strides
    # What ``as_strided`` gives, in a tenth of its time.
    found = np.ndarray(
        (*counts, *kernel, channels),
        padded.dtype,
        padded,
        strides=(stride[0] * down, stride[1] * along, dilation[0] * down, dilation[1] * along, between),
    )
    found.flags.writeable = False
    return found


# Pooling of int8 codes.
#
# An average pooling is a depthwise convolution of unit weights (``golden/numerics/convolution.py``), requantised with
# :func:`average_multiplier`.
#
# Source: ONNX Runtime, MLAS, ``qlgavgpool.cpp``.


def pool_maximum(
    codes: Int8, *, kernel: Pair, stride: Pair = (1, 1), dilation: Pair = (1, 1), pads: Pads = (0, 0, 0, 0)
) -> Int8:
    """Take the greatest code of each window; borders never win.

    Parameters
    ----------
    codes : int8[height, width, channels]
    kernel, stride, dilation : (vertical, horizontal)
    pads : (top, left, bottom, right)

    Returns
    -------
    int8[output rows, output columns, channels]
        ``max(codes[window])``, with borders of -128.

    Raises
    ------
    TypeError
        If ``codes`` is not int8.
    ValueError
        If the kernel is larger than the map with its borders, or a size is out of range.
    """
    codes = np.asarray(codes)
    if codes.dtype != np.int8:
        raise TypeError(f"codes must be int8, not {codes.dtype}")
    return patches(codes, kernel=kernel, stride=stride, dilation=dilation, pads=pads, border=-128).max(axis=(2, 3))


def average_multiplier(input_scale: float, output_scale: float, elements: int) -> np.float32:
    """The scale from the sum of a window, less its zero points, to the code of its average.

    Parameters
    ----------
    input_scale, output_scale : float
        float32 values.
    elements : int
        Of a window.

    Returns
    -------
    float32
        ``input_scale / (output_scale * elements)``, rounded after each operation.
    """
    return np.float32(np.float32(input_scale) / np.float32(np.float32(output_scale) * np.float32(elements)))
