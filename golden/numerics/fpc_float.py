"""Fast pointwise convolution in float32: the bytes of ``fpc.py``, many times as fast.

The specification is in integers, as the accelerator computes. This is for graphs that are evaluated without it. Every
number here is a multiple of 2**-7 below 2**17 in magnitude, so that float32 holds it exactly: a product is one of 16
bits by 8 bits, two of them are added up, and at most a value of 16 bits is added for each skip once they are rounded.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .convolution import Int8
from .fpc import GREATEST_VALUE, LEAST_VALUE, Finish, Stages
from .requant import requantise_float

Float32 = npt.NDArray[np.float32]

#: So many values at a time: they stay in a processor's cache, and a stage takes longer than its calls.
_VALUES = 1 << 15


def fast_pointwise_float(codes: Int8, zero_point: int, stages: Stages, finish: Finish) -> Int8:
    """A fast pointwise convolution.

    Parameters
    ----------
    codes : int8[..., inputs]
    zero_point : int
        Of ``codes``.
    stages : Stages
    finish : Finish
        Of as many channels as the pattern has outputs.

    Returns
    -------
    int8[..., outputs]
        See :func:`.functions.fast_pointwise`.
    """
    pixels = codes.reshape(-1, codes.shape[-1])
    result = np.empty((len(pixels), len(finish.bias)), np.int8)
    count = max(1, _VALUES // stages.pattern.width)
    for first in range(0, len(pixels), count):
        part = slice(first, first + count)
        result[part] = _of_pixels(pixels[part], zero_point, stages, finish)
    return result.reshape(*codes.shape[:-1], -1)


def _of_pixels(codes: Int8, zero_point: int, stages: Stages, finish: Finish) -> Int8:
    """The codes int8[pixels, outputs] of int8[pixels, inputs]; between, a row is a channel of all pixels."""
    pattern = stages.pattern
    values = np.zeros((pattern.width, len(codes)), np.float32)
    values[: pattern.inputs] = codes.T
    values[: pattern.inputs] -= zero_point
    values *= 1 << stages.input_shift
    # Whole arrays: numpy's extremes take four times as long with a number.
    least, greatest = (np.full(values.shape, limit, np.float32) for limit in (LEAST_VALUE, GREATEST_VALUE))
    entering = [values]
    for stage, (partners, own, cross) in enumerate(stages.float_weights):
        before = entering[-1]
        total = before.take(partners, axis=0)
        if cross is not None:
            total *= cross
        total += before if own is None else before * own
        np.rint(total, out=total)
        for first, last in pattern.skips:
            if last == stage:
                total += entering[first]
        np.maximum(total, least, out=total)
        entering.append(np.minimum(total, greatest, out=total))
    kept = entering[-1][: pattern.outputs]
    kept += finish.bias[:, np.newaxis]
    return requantise_float(kept, finish.scale[:, np.newaxis], finish.zero_point, finish.low, finish.high).T
