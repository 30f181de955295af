"""Fast pointwise convolution in integers: a butterfly of stages between the codes of two feature maps.

The values between stages have 16 bits. A code enters as ``(code - zero_point) << input_shift``. A stage rounds the sum
of its two products once, half to even, adds the values of skips, and saturates once; the finish requantises the first
values to codes. Every sum stays below 2**24 in magnitude, so float32 computes the same.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from .convolution import Int8, Int32
from .fpc_layer import FRACTION_BITS, GREATEST_VALUE, LEAST_VALUE, MOST_FINISH_SHIFT, Finish, Int16, Stages
from .requant import requantise


def fast_pointwise(codes: Int8, zero_point: int, stages: Stages, finish: Finish) -> Int8:
    """A fast pointwise convolution: :func:`enter`, every :func:`run_stages`, :func:`requantise_values`.

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

    Raises
    ------
    TypeError, ValueError
        As these functions; also if the finish is of other channels.
    """
    outputs = stages.pattern.outputs
    if len(finish.bias) != outputs:
        raise ValueError(f"bias must be of {outputs} outputs, not {len(finish.bias)}")
    values = run_stages(enter(codes, zero_point, stages), stages)
    return requantise_values(values[..., :outputs], finish)


def enter(codes: Int8, zero_point: int, stages: Stages) -> Int16:
    """Turn codes into values: ``(code - zero_point) << input_shift``, and zero beyond the last channel.

    Returns
    -------
    int16[..., width]

    Raises
    ------
    TypeError
        If ``codes`` is not int8.
    ValueError
        If its channels are not the pattern's inputs, or the zero point is no int8 code.
    """
    codes, pattern = np.asarray(codes), stages.pattern
    if codes.dtype != np.int8:
        raise TypeError(f"codes must be int8, not {codes.dtype}")
    if not codes.ndim or codes.shape[-1] != pattern.inputs:
        raise ValueError(f"codes must have {pattern.inputs} channels, not the shape {codes.shape}")
    if not -128 <= zero_point <= 127:
        raise ValueError(f"zero_point must be between -128 and 127, not {zero_point}")
    values = np.zeros((*codes.shape[:-1], pattern.width), np.int16)
    values[..., : pattern.inputs] = (codes.astype(np.int16) - zero_point) << stages.input_shift
    return values


def run_stages(values: Int16, stages: Stages) -> Int16:
    """All stages.

    Parameters
    ----------
    values : int16[..., width]
    stages : Stages

    Returns
    -------
    int16[..., width]
        After the last stage. Each gives for every index i, with D its pair distance,
        ``saturate(rint((own[i] * value[i] + cross[i] * value[i ^ D]) / 2**(6 + growth_shift)) + skipped)``; halves go
        to even, and ``skipped`` is the sum of the skips that end there.

    Raises
    ------
    TypeError
        If ``values`` is not int16.
    ValueError
        If their last axis is not the pattern's width.
    """
    values, pattern = np.asarray(values), stages.pattern
    if values.dtype != np.int16:
        raise TypeError(f"values must be int16, not {values.dtype}")
    if not values.ndim or values.shape[-1] != pattern.width:
        raise ValueError(f"values must have {pattern.width} channels, not the shape {values.shape}")
    entering, indices = [values], np.arange(pattern.width)
    for stage, distance in enumerate(pattern.distances):
        before = entering[-1].astype(np.int32)
        total = stages.own[stage] * before + stages.cross[stage] * before[..., indices ^ distance]
        result = round_shift(total, FRACTION_BITS + stages.growth_shifts[stage])
        for first, last in pattern.skips:
            if last == stage:
                result += entering[first]
        entering.append(np.clip(result, LEAST_VALUE, GREATEST_VALUE).astype(np.int16))
    return entering[-1]


def requantise_values(values: Int16, finish: Finish) -> Int8:
    """Requantise values as every sum is requantised, see :func:`~lutterfly.golden.numerics.requant.requantise`.

    Parameters
    ----------
    values : int16[..., outputs]
    finish : Finish

    Returns
    -------
    int8[..., outputs]
    """
    return requantise(values.astype(np.int32), finish.parameters, finish.zero_point, finish.low, finish.high)


def shift_values(values: Int16, finish: Finish) -> Int8:
    """The codes of :func:`requantise_values` without a multiplication, where the scale is a power of two.

    Raises
    ------
    ValueError
        If :attr:`Finish.shift` is None.
    """
    if finish.shift is None:
        raise ValueError(
            f"scale must be 2**-k for all channels, k from 0 to {MOST_FINISH_SHIFT}, "
            f"not from {finish.scale.min()} to {finish.scale.max()}"
        )
    rounded = round_shift(values.astype(np.int32) + finish.bias, finish.shift)
    return np.clip(rounded + finish.zero_point, finish.low, finish.high).astype(np.int8)


def round_shift(total: Int32, shift: int) -> Int32:
    """``total / 2**shift`` rounded to the nearest integer, halves to even."""
    quotient = total >> shift
    twice_rest = (total - (quotient << shift)) << 1
    unit = 1 << shift
    return quotient + ((twice_rest > unit) | ((twice_rest == unit) & (quotient & 1 == 1)))


def dense_matrix(stages: Stages) -> npt.NDArray[np.object_]:
    """The matrix that the stages compute without rounding and saturation, without the shift of the codes.

    Returns
    -------
    Fraction[outputs, inputs]
    """
    pattern, indices = stages.pattern, np.arange(stages.pattern.width)
    # Integers over one power of two: fractions would look for common divisors in every product.
    entering, bits = [np.eye(pattern.width, dtype=object)], [0]
    for stage, distance in enumerate(pattern.distances):
        own, cross = (weights.astype(object)[:, np.newaxis] for weights in (stages.own[stage], stages.cross[stage]))
        bits.append(bits[-1] + FRACTION_BITS + stages.growth_shifts[stage])
        result = own * entering[-1] + cross * entering[-1][indices ^ distance]
        for first, last in pattern.skips:
            if last == stage:
                result = result + entering[first] * (1 << bits[-1] - bits[first])
        entering.append(result)
    kept = entering[-1][: pattern.outputs, : pattern.inputs]
    return np.vectorize(lambda numerator: Fraction(int(numerator), 1 << bits[-1]), otypes=[object])(kept)
