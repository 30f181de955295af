"""Product of two quantised tensors, with the bytes of ONNX Runtime's QLinearMul.

Source: ONNX Runtime, MLAS, ``qlmul.cpp``: with ``s = f32(f32(sa * sb) / sy)``,
``y = rint(f32(f32((a - za) * (b - zb) * s) + zy))``.

The requantiser rounds before it adds a zero point, and not after. So a product has fraction bits, and the bias can hold
the zero point, or part of it; see :func:`product_scaling`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .addition import PAIRS
from .requant import Int8, Int32, pack_parameters, requantise

#: Fraction bits of a product.
PRODUCT_FRACTION_BITS = 14

#: Range of the search for scale and bias, in units of their last places.
_SCALE_STEPS, _BIAS_STEPS = 3, 4
#: A product closer than this to a half, in codes, may be rounded in another way.
_NEAR = 2.0**-13


@dataclass(frozen=True, slots=True)
class ProductScaling:
    """The requantisation of products, ``clip(rint((product + bias) * scale) + zero_point)``, see
    :func:`.requant.requantise`.

    Attributes
    ----------
    bias : int
        An int32.
    scale : numpy.float32
    zero_point : int
        An int8 code.
    """

    bias: int
    scale: np.float32
    zero_point: int

    @property
    def parameters(self) -> npt.NDArray[np.uint64]:
        """The parameter word, uint64[1]."""
        return pack_parameters(np.full(1, self.bias, np.int32), np.full(1, self.scale, np.float32))


def products(first: Int8, second: Int8, first_zero_point: int, second_zero_point: int) -> Int32:
    """Return products of codes less their zero points.

    Parameters
    ----------
    first, second : int8[...]
        Arrays whose shapes broadcast.
    first_zero_point, second_zero_point : int
        Zero points, int8 codes.

    Returns
    -------
    int32[...]
        ``(first - first_zero_point) * (second - second_zero_point) * 2**PRODUCT_FRACTION_BITS``, at most 2**30.

    Raises
    ------
    TypeError
        If an array is not int8.
    """
    for name, array in (("first", first), ("second", second)):
        if array.dtype != np.int8:
            raise TypeError(f"{name} must be int8, not {array.dtype}")
    factor = first.astype(np.int32) - np.int32(first_zero_point)
    return (factor * (second.astype(np.int32) - np.int32(second_zero_point))) << PRODUCT_FRACTION_BITS


def multiply(
    first: Int8,
    second: Int8,
    zero_points: tuple[int, int],
    scaling: ProductScaling,
    *,
    low: int = -128,
    high: int = 127,
) -> Int8:
    """Multiply two tensors.

    Parameters
    ----------
    first, second : int8[...]
        Arrays whose shapes broadcast.
    zero_points : (first operand, second operand)
    scaling : ProductScaling
    low, high : int
        int8 codes, ``low <= high``.

    Returns
    -------
    int8[...]

    Raises
    ------
    TypeError
        If the codes are not int8.
    ValueError
        If a zero point or a limit is not an int8 code, or the scale is out of range.
    """
    totals = products(first, second, *zero_points)
    return requantise(totals, scaling.parameters, scaling.zero_point, low, high)


def product_scaling(
    scales: tuple[float, float, float], zero_points: tuple[int, int, int], expected: Int8
) -> ProductScaling | None:
    """Find a scaling that gives these codes for every pair of codes.

    The zero point is added before the rounding, as a bias, or after it, or in parts before and after; scale and bias
    may be a few units of their last places off. Candidates are tried on products near a half first, and then on all
    pairs.

    Parameters
    ----------
    scales, zero_points : (first operand, second operand, result)
        float32 values, and int8 codes.
    expected : int8[256, 256]
        The code of each pair, indexed by both codes plus 128.

    Returns
    -------
    ProductScaling or None
        None if no candidate gives the codes.
    """
    first_scale, second_scale, result_scale = (np.float32(scale) for scale in scales)
    scale, result_zero_point = np.float32(np.float32(first_scale * second_scale) / result_scale), zero_points[2]
    totals = products(*PAIRS, zero_points[0], zero_points[1]).reshape(-1)
    codes, low, high = expected.reshape(-1), int(expected.min()), int(expected.max())
    values = totals * (float(scale) * 2.0**-PRODUCT_FRACTION_BITS) + result_zero_point
    is_near = np.abs(values - np.floor(values) - 0.5) < _NEAR
    if not np.array_equal(np.clip(np.rint(values), low, high)[~is_near], codes[~is_near]):
        return None
    is_near &= (values > low - 1) & (values < high + 1)
    for scaling in _scalings(scale, result_zero_point, int(np.abs(totals).max())):
        given = scaling.parameters, scaling.zero_point, low, high
        if np.array_equal(requantise(totals[is_near], *given), codes[is_near]) and np.array_equal(
            requantise(totals, *given), codes
        ):
            return scaling
    return None


def _scalings(scale: np.float32, zero_point: int, largest: int) -> Iterator[ProductScaling]:
    """Yield candidates whose sums fit 32 bits, the plainest first."""
    for after in sorted(range(-128, 128), key=lambda code: (code not in (zero_point, 0), abs(code))):
        before = zero_point - after
        for step in sorted(range(-_SCALE_STEPS, _SCALE_STEPS + 1), key=abs):
            near = (np.float32(scale).view(np.int32) + np.int32(step)).view(np.float32)
            middle = round(before * 2.0**PRODUCT_FRACTION_BITS / float(near)) if near > 0 else 0
            unit = max(abs(middle) >> 26, 1)
            for more in sorted(range(-_BIAS_STEPS, _BIAS_STEPS + 1), key=abs) if before else (0,):
                bias = middle + more * unit
                if abs(bias) + largest < 1 << 31:
                    yield ProductScaling(bias, np.float32(near * np.float32(2.0**-PRODUCT_FRACTION_BITS)), after)
