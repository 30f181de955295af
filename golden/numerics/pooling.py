"""Pooling of int8 codes.

An average pooling is a depthwise convolution of unit weights (``golden/numerics/convolution.py``), requantised with
:func:`average_multiplier`.

Source: ONNX Runtime, MLAS, ``qlgavgpool.cpp``.
"""

from __future__ import annotations

import numpy as np

from .convolution import Int8, Pads, Pair, patches


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
