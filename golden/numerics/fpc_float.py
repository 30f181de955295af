"""Fast pointwise convolution in float32: the bytes of ``fpc.py``, many times as fast.

The specification is in integers, as the accelerator computes; this module serves graphs that are evaluated without
it. Every number here is a multiple of 2**-7 below 2**17 in magnitude, so that float32 holds it exactly: a product is
one of 16 bits by 8 bits, two of them are added up, and a value of 16 bits is added for each skip after the rounding.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .fpc import GREATEST_VALUE, LEAST_VALUE, FpcEpilogue, Stages
from .planes import Int8, memory_order
from .requant import requantise_float

Float32 = npt.NDArray[np.float32]

#: Values that are computed at a time: few enough for a processor's cache, enough to outweigh the calls of a stage.
_VALUES = 1 << 15


def fast_pointwise_float(codes: Int8, zero_point: int, stages: Stages, epilogue: FpcEpilogue) -> Int8:
    """Compute a fast pointwise convolution.

    Parameters
    ----------
    codes : int8[..., inputs]
        Input codes; fastest where the pixels of a channel lie side by side in memory.
    zero_point : int
        Zero point of ``codes``.
    stages : Stages
    epilogue : FpcEpilogue
        Epilogue of as many channels as the pattern has outputs.

    Returns
    -------
    int8[..., outputs]
        As those of :func:`.fpc.fast_pointwise`.
    """
    # The pixels in the order of memory, whatever order their axes have.
    axes, pattern = memory_order(codes[..., 0]), stages.pattern
    pixels = codes.transpose(-1, *axes).reshape(codes.shape[-1], -1)
    result = np.empty((len(epilogue.bias), pixels.shape[1]), np.int8)
    count = min(max(1, _VALUES // pattern.width), max(1, pixels.shape[1]))
    # The inputs of a stage are needed until the next stage is computed, unless a skip connection reads them. The last
    # buffer is for products.
    buffers = np.empty(((pattern.stages + 1 if pattern.skips else 2) + 1, pattern.width * count), np.float32)
    for first in range(0, pixels.shape[1], count):
        part = slice(first, first + count)
        result[:, part] = _of_pixels(pixels[:, part], zero_point, stages, epilogue, buffers)
    return result.reshape(-1, *(codes.shape[axis] for axis in axes)).transpose(*np.argsort(axes) + 1, 0)


def _of_pixels(codes: Int8, zero_point: int, stages: Stages, epilogue: FpcEpilogue, buffers: Float32) -> Int8:
    """Return the codes int8[outputs, pixels] for int8[inputs, pixels]."""
    pattern = stages.pattern
    shape = pattern.width, codes.shape[1]
    *entering, product = (buffer[: shape[0] * shape[1]].reshape(shape) for buffer in buffers)
    values = entering[0]
    values[: pattern.inputs] = codes
    values[: pattern.inputs] -= zero_point
    values[pattern.inputs :] = 0
    if stages.input_shift:
        values *= 1 << stages.input_shift
    greatest, is_clipped = [255.0 * (1 << stages.input_shift)], False
    for stage, (partners, own, cross, scale, growth) in enumerate(stages.float_weights):
        before, total = values, entering[(stage + 1) % len(entering)]
        # Rows that are copied take less time than rows that are read in another order. (Where an index may be wrong,
        # numpy copies to another array first.)
        before.take(partners, axis=0, out=total, mode="clip")
        if cross is not None:
            total *= cross
        total += before if own is None else np.multiply(before, own, out=product)
        if scale != 1:
            total *= scale
        np.rint(total, out=total)
        most = growth * greatest[-1] + 1
        for first, last in pattern.skips:
            if last == stage:
                total += entering[first]
                most += greatest[first]
        # Values need no clipping as long as they cannot reach the limits. Where their bound does, their actual maximum
        # often shows that some stages more need none.
        if most > GREATEST_VALUE and not is_clipped:
            most = float(max(-total.min(), total.max()))
            is_clipped = most > GREATEST_VALUE
        if most > GREATEST_VALUE:
            total.clip(LEAST_VALUE, GREATEST_VALUE, out=total)
        greatest.append(min(most, -LEAST_VALUE))
        values = total
    kept = values[: pattern.outputs]
    kept += epilogue.bias.astype(np.float32)[:, np.newaxis]
    return requantise_float(
        kept, epilogue.scale[:, np.newaxis], epilogue.zero_point, epilogue.low, epilogue.high, overwrite=True
    )
