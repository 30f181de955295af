"""Requantisation: accumulators to int8 codes, with the bits of ONNX Runtime's float32 arithmetic, in integers only.

Source: ONNX Runtime, MLAS, ``MlasRequantizeOutput``: bias, conversion to float32, float32 product, clamp, rounding half
to even.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..elements import ADDEND_BITS
from .convolution import Totals

#: Bits of a channel's parameters: bias [31:0], mantissa [55:32], exponent [61:56], zero [63:62].
MANTISSA_BITS = 24
MANTISSA_LSB = 32
EXPONENT_BITS = 6
EXPONENT_LSB = 56

#: Bits of sums of two addends, and their fraction bits.
SUM_BITS = ADDEND_BITS + 1
SUM_FRACTION_BITS = SUM_BITS - 32

#: Range of exponents. With a greater one (scales below 2**-32) the product with any accumulator rounds to zero; with a
#: smaller one (scales from 2**10 on) the product with any accumulator but zero is beyond every int8 code.
_LEAST_EXPONENT, _GREATEST_EXPONENT = 14, 55

Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]


def encode_scale(multiplier: npt.NDArray[np.float32]) -> tuple[Int64, Int64]:
    """Split scales into mantissa and exponent.

    Parameters
    ----------
    multiplier : float32[...]
        Scales, finite and not negative.

    Returns
    -------
    mantissa : int64[...]
        0, or at least 2**23 and less than 2**24.
    exponent : int64[...]
        6 bits. ``multiplier == mantissa * 2**-exponent``; but below 2**-32 the mantissa is 0, and from 2**10 on the
        scale is 2**9; neither changes any result.

    Raises
    ------
    TypeError
        If ``multiplier`` is not float32.
    ValueError
        If a scale is negative, infinite or not a number.
    """
    multiplier = np.asarray(multiplier)
    _check_dtype("multiplier", multiplier, np.float32)
    bad = multiplier[~(np.isfinite(multiplier) & (multiplier >= 0))]
    if bad.size:
        raise ValueError(f"multiplier must be finite and not negative, not {bad.flat[0]}")
    fraction, power = np.frexp(multiplier.astype(np.float64))
    mantissa = (fraction * (1 << MANTISSA_BITS)).astype(np.int64)
    exponent = MANTISSA_BITS - power.astype(np.int64)
    zero = (mantissa == 0) | (exponent > _GREATEST_EXPONENT)
    large = exponent < _LEAST_EXPONENT
    mantissa = np.where(zero, 0, np.where(large, 1 << MANTISSA_BITS - 1, mantissa))
    exponent = np.where(zero, 0, np.where(large, _LEAST_EXPONENT, exponent))
    return mantissa, exponent


def pack_parameters(bias: Int32, multiplier: npt.NDArray[np.float32]) -> UInt64:
    """Pack bias and scale of each channel into the 64 bits that the parameter memory holds.

    Parameters
    ----------
    bias : int32[channels]
    multiplier : float32[channels]
        See :func:`encode_scale`.

    Returns
    -------
    uint64[channels]
        Little-endian in memory (``.astype("<u8").tobytes()``).

    Raises
    ------
    TypeError
        If ``bias`` is not int32 or ``multiplier`` not float32.
    ValueError
        If the shapes differ, or a scale is negative or not finite.
    """
    bias = np.asarray(bias)
    _check_dtype("bias", bias, np.int32)
    mantissa, exponent = encode_scale(multiplier)
    if bias.shape != mantissa.shape:
        raise ValueError(f"bias must have the shape of multiplier {mantissa.shape}, not {bias.shape}")
    words = bias.view(np.uint32).astype(np.int64) | mantissa << MANTISSA_LSB | exponent << EXPONENT_LSB
    return words.view(np.uint64)


def unpack_parameters(parameters: UInt64) -> tuple[Int32, Int64, Int64]:
    """Return bias int32[...], mantissa int64[...] and exponent int64[...] of packed parameters."""
    parameters = np.asarray(parameters)
    _check_dtype("parameters", parameters, np.uint64)
    words = parameters.view(np.int64)
    return (
        words.astype(np.int32),
        words >> MANTISSA_LSB & (1 << MANTISSA_BITS) - 1,
        words >> EXPONENT_LSB & (1 << EXPONENT_BITS) - 1,
    )


def requantise(acc: Int32, parameters: UInt64, zero_point: int, low: int = -128, high: int = 127) -> Int8:
    """Add the bias, scale, round, add the zero point and clamp.

    Parameters
    ----------
    acc : int32[..., channels]
        Accumulators.
    parameters : uint64[channels]
        From :func:`pack_parameters`.
    zero_point, low, high : int
        int8 codes, ``low <= high``.

    Returns
    -------
    int8[..., channels]
        ``clip(rint(f32(acc + bias) * scale) + zero_point, low, high)`` with a sum modulo 2**32, a float32 product, and
        halves rounded to even everywhere.

    Raises
    ------
    TypeError
        If ``acc`` is not int32 or ``parameters`` not uint64.
    ValueError
        If the zero point or a limit is not an int8 code, or ``low`` is above ``high``.
    """
    acc = np.asarray(acc)
    _check_dtype("acc", acc, np.int32)
    _check_codes(zero_point=zero_point, low=low, high=high)
    bias, mantissa, exponent = unpack_parameters(parameters)
    total = (acc.astype(np.int64) + bias).astype(np.int32).astype(np.int64)
    return _scale(total, mantissa, exponent, zero_point, low, high)


def requantise_sum(total: Int64, parameters: UInt64, zero_point: int, low: int = -128, high: int = 127) -> Int8:
    """Requantise sums of two addends, which are multiples of ``2**-SUM_FRACTION_BITS`` and have no bias.

    Parameters
    ----------
    total : int64[..., channels]
        Sums of ``SUM_BITS`` bits.
    parameters : uint64[channels]
        Parameters whose scales are powers of two; the biases are ignored.
    zero_point, low, high : int

    Returns
    -------
    int8[..., channels]
        ``clip(rint(f32(total * 2**-SUM_FRACTION_BITS) * scale) + zero_point, low, high)``.

    Raises
    ------
    TypeError, ValueError
        As :func:`requantise`; also if ``total`` has more bits.
    """
    total = np.asarray(total)
    _check_dtype("total", total, np.int64)
    _check_codes(zero_point=zero_point, low=low, high=high)
    limit = 1 << SUM_BITS - 1
    if total.size and not -limit <= total.min() <= total.max() < limit:
        raise ValueError(f"total must be between {-limit} and {limit - 1}, not {np.abs(total).max()}")
    _, mantissa, exponent = unpack_parameters(parameters)
    return _scale(total, mantissa, exponent + SUM_FRACTION_BITS, zero_point, low, high)


def _scale(total: Int64, mantissa: Int64, exponent: Int64, zero_point: int, low: int, high: int) -> Int8:
    """Return ``clip(rint(f32(total) * mantissa * 2**-exponent) + zero_point, low, high)``, rounded as float32 is."""
    # float32 keeps 24 significant bits of the sum and of the product: a product just below a half becomes the half.
    magnitude, magnitude_drop = _round_significant(np.abs(total))
    product, product_drop = _round_significant(magnitude * mantissa)
    # The product is 0 or has at least 24 bits: it saturates without a shift, and vanishes when shifted by 25 bits.
    shift = np.clip(exponent - magnitude_drop - product_drop, 0, MANTISSA_BITS + 1)
    rounded = np.sign(total) * _shift_right(product, shift)
    return np.clip(rounded + zero_point, low, high).astype(np.int8)


def _round_significant(value: Int64) -> tuple[Int64, Int64]:
    """Round to 24 significant bits: ``rounded * 2**dropped``. From 0 to 2**53 frexp gives the number of bits."""
    bits = np.frexp(value.astype(np.float64))[1].astype(np.int64)
    dropped = np.maximum(bits - MANTISSA_BITS, 0)
    return _shift_right(value, dropped), dropped


def _shift_right(value: Int64, shift: Int64) -> Int64:
    """``value / 2**shift`` rounded to the nearest integer, halves to even, for values that are not negative."""
    quotient = value >> shift
    twice_rest = (value - (quotient << shift)) << 1
    unit = np.int64(1) << shift
    return quotient + ((twice_rest > unit) | ((twice_rest == unit) & (quotient & 1 == 1)))


def _check_codes(*, zero_point: int, low: int, high: int) -> None:
    for name, value in (("zero_point", zero_point), ("low", low), ("high", high)):
        if not -128 <= value <= 127:
            raise ValueError(f"{name} must be between -128 and 127, not {value}")
    if low > high:
        raise ValueError(f"low must be at most high ({high}), not {low}")


def _check_dtype(name: str, array: np.ndarray, dtype: type) -> None:
    if array.dtype != dtype:
        raise TypeError(f"{name} must be {np.dtype(dtype)}, not {array.dtype}")


# Requantisation in float32, as ONNX Runtime computes it, has the same bytes and is several times as fast.
#
# The accelerator has no float arithmetic and is tested against the integer functions above. These serve graphs that are
# evaluated without it.


def requantise_float(
    total: Totals,
    multiplier: npt.NDArray[np.float32],
    zero_point: int,
    low: int = -128,
    high: int = 127,
    *,
    overwrite: bool = False,
) -> npt.NDArray[np.int8]:
    """Scale, round, add the zero point and clamp.

    Parameters
    ----------
    total : int32, int64, float32 or float64[..., channels]
        Sums with their bias, which are integers in any type.
    multiplier : float32[channels]
        Scales, finite and not negative; any shape that broadcasts to that of ``total``.
    zero_point, low, high : int
        int8 codes, ``low <= high``.
    overwrite : bool
        Whether ``total`` may be written to, which takes less time.

    Returns
    -------
    int8[..., channels]
        ``clip(rint(f32(total) * multiplier) + zero_point, low, high)`` with a float32 product and halves to even.

    Raises
    ------
    TypeError
        If an array has another type.
    """
    if total.dtype not in (np.int32, np.int64, np.float32, np.float64):
        raise TypeError(f"total must be int32, int64, float32 or float64, not {total.dtype}")
    if multiplier.dtype != np.float32:
        raise TypeError(f"multiplier must be float32, not {multiplier.dtype}")
    # A product may be infinite, which is clamped as well, or vanish.
    with np.errstate(over="ignore", under="ignore"):
        scaled = total.astype(np.float32, copy=not overwrite)
        scaled *= multiplier
    np.rint(scaled, out=scaled)
    if zero_point:
        scaled += np.float32(zero_point)
    return scaled.clip(low, high, out=scaled).astype(np.int8)
