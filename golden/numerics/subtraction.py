"""Difference of two quantised tensors through two tables in fixed point, with the bytes of ONNX Runtime.

Source: ONNX Runtime computes ``y = rint(f32(f32(sa * (a - za)) - f32(sb * (b - zb))) / sy) + zy``, each step in
float32. Two tables that are added up give nearly that; where a pair of codes would be rounded in another way, an entry
is moved until it is not.
"""

from __future__ import annotations

import numpy as np

from ..elements import ADDEND_BITS
from .addition import MOST_FRACTION, PAIRS, add
from .convolution import Int8
from .requant import MANTISSA_BITS, Int64

_CODES = np.arange(-128, 128)
#: How often entries are moved, and how many pairs may be wrong before: more are no matter of rounding.
_ROUNDS, _MOST_WRONG = 60, 2000


def difference_tables(
    scales: tuple[float, float, float], zero_points: tuple[int, int, int], expected: Int8
) -> tuple[Int64, Int64, int] | None:
    """Find tables whose sum gives these codes for every pair of codes.

    Parameters
    ----------
    scales, zero_points : (first operand, second operand, result)
        float32 values, and int8 codes; that of the result is the offset of :func:`.addition.add`.
    expected : int8[256, 256]
        The code of each pair, indexed by both codes plus 128.

    Returns
    -------
    first, second : int64[256]
    fraction : int
        As :func:`.addition.sum_tables` gives them.
    None if nothing that was tried does.
    """
    first, second, fraction = _plain_tables(scales, zero_points)
    offset, low, high = zero_points[2], int(expected.min()), int(expected.max())
    for turn in range(_ROUNDS):
        found = add(*PAIRS, first, second, fraction, offset=offset, low=low, high=high)
        wrong = np.argwhere(found != expected)
        if len(wrong) == 0:
            return first, second, fraction
        if len(wrong) > _MOST_WRONG:
            return None
        for row, column in wrong.tolist():
            moved = _missing(int(first[row] + second[column]), int(expected[row, column]) - offset, fraction)
            if turn % 2:
                first[row] += moved
            else:
                second[column] += moved
    return None


def _plain_tables(scales: tuple[float, float, float], zero_points: tuple[int, int, int]) -> tuple[Int64, Int64, int]:
    """What both operands contribute, with as many bits after the point as entries have."""
    first_scale, second_scale, result_scale = (float(np.float32(scale)) for scale in scales)
    first = (_CODES - zero_points[0]) * (first_scale / result_scale)
    second = (zero_points[1] - _CODES) * (second_scale / result_scale)
    largest = max(np.abs(one).max() for one in (first, second, first[[0, -1], None] + second[[0, -1]]))
    fraction = MOST_FRACTION
    # What is moved may grow beyond it.
    while fraction and largest * 2.0 ** (fraction + 1) >= 1 << ADDEND_BITS - 1:
        fraction -= 1
    return np.rint(first * 2.0**fraction).astype(np.int64), np.rint(second * 2.0**fraction).astype(np.int64), fraction


def _missing(total: int, code: int, fraction: int) -> int:
    """What a sum lacks so that it rounds to a code: to the near edge of what does, and a little beyond it."""
    below = total < code << fraction
    edge = (2 * code - 1 if below else 2 * code + 1) << fraction >> 1
    beyond = max(abs(total) >> MANTISSA_BITS, 1)
    return edge - total + (beyond if below else -beyond)
