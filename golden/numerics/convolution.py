"""Convolution of int8 codes: the accumulators that ONNX Runtime's QLinearConv requantises."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
    for name, array, dtype in (("codes", codes, np.int8), ("weights", weights, np.int8), ("bias", bias, np.int32)):
        if array.dtype != dtype:
            raise TypeError(f"{name} must be {np.dtype(dtype)}, not {array.dtype}")
    outputs, rows, columns, channels = weights.shape
    if groups < 1 or outputs % groups:
        raise ValueError(f"groups must divide the {outputs} output channels, not {groups}")
    if codes.shape[-1] != channels * groups:
        raise ValueError(f"codes must have the {channels * groups} channels of weights, not {codes.shape[-1]}")
    if bias.shape != (outputs,):
        raise ValueError(f"bias must have the shape ({outputs},), not {bias.shape}")
    found = patches(codes, kernel=(rows, columns), stride=stride, dilation=dilation, pads=pads, border=zero_point)
    height, width = found.shape[:2]
    # Exact: a product has at most 15 bits, and float64 adds 2**37 of them without rounding. BLAS makes it fast.
    taken = found.reshape(height * width, rows * columns, groups, channels).transpose(2, 0, 1, 3)
    matrices = taken.reshape(groups, height * width, -1).astype(np.float64) - zero_point
    kernels = weights.reshape(groups, outputs // groups, -1).transpose(0, 2, 1).astype(np.float64)
    total = (matrices @ kernels).astype(np.int64).transpose(1, 0, 2).reshape(height, width, outputs)
    return (total + bias).astype(np.int32)


def patches(codes: Int8, *, kernel: Pair, stride: Pair, dilation: Pair, pads: Pads, border: int) -> Int8:
    """What the window sees at each position.

    Parameters
    ----------
    codes : int8[height, width, channels]
    kernel, stride, dilation : (vertical, horizontal)
    pads : (top, left, bottom, right)
    border : int
        Code of the borders.

    Returns
    -------
    int8[output rows, output columns, kernel rows, kernel columns, channels]
        A view where possible: not to be written.

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
    padded = np.pad(codes, ((top, bottom), (left, right), (0, 0)), constant_values=np.int8(border))
    (sv, sh), (dv, dh) = stride, dilation
    extent = dv * (kernel[0] - 1) + 1, dh * (kernel[1] - 1) + 1
    if extent[0] > padded.shape[0] or extent[1] > padded.shape[1]:
        raise ValueError(
            f"kernel must be at most the map with its borders {padded.shape[:2]}, not {extent} with its dilation"
        )
    windows = np.lib.stride_tricks.sliding_window_view(padded, extent, axis=(0, 1))
    return windows[::sv, ::sh, :, ::dv, ::dh].transpose(0, 1, 3, 4, 2)
