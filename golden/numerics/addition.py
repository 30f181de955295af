"""Sum of two quantised tensors through two tables in fixed point, with the bytes of ONNX Runtime's QLinearAdd.

Source: ONNX Runtime, MLAS, ``qladd.cpp``: with ``ra = sa / sy`` and ``rb = sb / sy`` in float32,
``fixed = f32(zy - f32(fma(ra, za, f32(rb * zb))))`` and ``y = rint(fma(a, ra, fma(b, rb, fixed)))``.

The elements of uint8 tensors are greater by 128 than their codes, and float32's rounding depends on that. So their
tables give the uint8 element, and :data:`UNSIGNED_OFFSET` is added after the rounding to get its code.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..elements import ADDEND_BITS
from ..isa import TABLE_BYTES
from .convolution import Int8
from .requant import MANTISSA_BITS, SUM_FRACTION_BITS, Int64, pack_parameters, requantise_sum

#: Most fraction bits of a table's entry.
MOST_FRACTION = 32
#: The int8 code of an element of a uint8 tensor is the element plus this.
UNSIGNED_OFFSET = -128

_CODES = np.arange(-128, 128)
#: Every pair of codes: int8[256, 256] for each operand.
PAIRS: tuple[Int8, Int8] = (
    np.repeat(_CODES.astype(np.int8), len(_CODES)).reshape(-1, len(_CODES)),
    np.tile(_CODES.astype(np.int8), (len(_CODES), 1)),
)


def sum_tables(
    scales: tuple[float, float, float], zero_points: tuple[int, int, int], *, unsigned: bool = False
) -> tuple[Int64, Int64, int]:
    """Make the tables from which a sum is computed.

    Parameters
    ----------
    scales : (first operand, second operand, result)
        float32 values.
    zero_points : (first operand, second operand, result)
        int8 codes.
    unsigned : bool
        The tensors of the model are uint8; :func:`add` then needs the offset :data:`UNSIGNED_OFFSET`.

    Returns
    -------
    first, second : int64[256]
        The addend of each code, in units of ``2**-fraction``, indexed by the code plus 128; all zero points are in
        ``second``.
    fraction : int
        Fraction bits, as many as the bits of an entry allow.
    """
    offset = -UNSIGNED_OFFSET if unsigned else 0
    (first_zero, second_zero, result_zero) = (zero + offset for zero in zero_points)
    first_scale, second_scale, result_scale = (np.float32(scale) for scale in scales)
    first_ratio, second_ratio = np.float64(first_scale / result_scale), np.float64(second_scale / result_scale)
    # A fused multiply-add rounds once; float64 is exact enough here to round once as well.
    zeros = np.float32(first_ratio * first_zero + np.float64(np.float32(second_ratio * second_zero)))
    fixed = np.float64(np.float32(result_zero - zeros))
    elements: npt.NDArray[np.float64] = (_CODES + offset).astype(np.float64)
    first = elements * first_ratio
    second = (elements * second_ratio + fixed).astype(np.float32).astype(np.float64)
    largest = np.abs(first[[0, -1], None] + second[None, [0, -1]]).max()
    largest = max(largest, np.abs(first).max(), np.abs(second).max())
    fraction = MOST_FRACTION
    while largest * 2.0**fraction >= 2 ** (ADDEND_BITS - 1) - 4:
        fraction -= 1
    return np.rint(first * 2.0**fraction).astype(np.int64), np.rint(second * 2.0**fraction).astype(np.int64), fraction


def add(
    first_codes: Int8,
    second_codes: Int8,
    first: Int64,
    second: Int64,
    fraction: int,
    *,
    offset: int = 0,
    low: int = -128,
    high: int = 127,
) -> Int8:
    """Add two tensors.

    Parameters
    ----------
    first_codes, second_codes : int8[...]
        Arrays of one shape.
    first, second : int64[256]
        Tables of at most ``ADDEND_BITS`` bits, indexed by the code plus 128.
    fraction : int
        Fraction bits of their entries.
    offset : int
        Added after the rounding: 0, or :data:`UNSIGNED_OFFSET`.
    low, high : int
        int8 codes, ``low <= high``.

    Returns
    -------
    int8[...]
        ``clip(rint(f32((first[a + 128] + second[b + 128]) * 2**-fraction)) + offset, low, high)``, halves to even in
        both roundings.

    Raises
    ------
    TypeError
        If the codes are not int8 or the tables not int64.
    ValueError
        If the shapes differ, or a table, the fraction or a limit is out of range.
    """
    for name, array, dtype in (
        ("first_codes", first_codes, np.int8),
        ("second_codes", second_codes, np.int8),
        ("first", first, np.int64),
        ("second", second, np.int64),
    ):
        if array.dtype != dtype:
            raise TypeError(f"{name} must be {np.dtype(dtype)}, not {array.dtype}")
    if first_codes.shape != second_codes.shape:
        raise ValueError(
            f"second_codes must have the shape of first_codes {first_codes.shape}, not {second_codes.shape}"
        )
    _check_tables(first, second, fraction)
    words, tables = np.stack((first_codes, second_codes), axis=-2), np.stack((first, second))
    parameters = sum_parameters(fraction)
    return requantise_sum(add_words(words, tables), parameters, offset, low, high)


def add_words(words: Int8, tables: Int64) -> Int64:
    """Return the sum of two table entries for each lane.

    Parameters
    ----------
    words : int8[..., 2, lanes]
        The operands' codes.
    tables : int64[2, 256]
        One table for each operand, indexed by the code plus 128; only the low ``ADDEND_BITS`` bits of an entry count,
        in two's complement.

    Returns
    -------
    int64[..., lanes]

    Raises
    ------
    TypeError
        If ``words`` is not int8 or ``tables`` not int64.
    ValueError
        If there are not two operands.
    """
    words, tables = np.asarray(words), np.asarray(tables)
    if words.dtype != np.int8:
        raise TypeError(f"words must be int8, not {words.dtype}")
    if tables.dtype != np.int64:
        raise TypeError(f"tables must be int64, not {tables.dtype}")
    if words.shape[-2] != 2:
        raise ValueError(f"words must be those of 2 operands, not {words.shape[-2]}")
    unused = 64 - ADDEND_BITS
    first, second = tables << unused >> unused
    index = words.astype(np.int64) + 128
    return first[index[..., 0, :]] + second[index[..., 1, :]]


def sum_parameters(fraction: int) -> npt.NDArray[np.uint64]:
    """Return uint64[1], the parameter word with which the requantiser reads sums with ``fraction`` fraction bits."""
    return pack_parameters(np.zeros(1, np.int32), np.full(1, 2.0 ** (SUM_FRACTION_BITS - fraction), np.float32))


def _check_tables(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64], fraction: int) -> None:
    limit = 1 << ADDEND_BITS - 1
    for name, table in (("first", first), ("second", second)):
        if table.shape != (TABLE_BYTES,):
            raise ValueError(f"{name} must have the shape ({TABLE_BYTES},), not {table.shape}")
        if table.min() < -limit or table.max() >= limit:
            raise ValueError(f"{name} must have entries of {ADDEND_BITS} bits")
    if not 0 <= fraction <= MOST_FRACTION:
        raise ValueError(f"fraction must be between 0 and {MOST_FRACTION}, not {fraction}")


# The difference of two quantised tensors is a sum of entries of two tables too, with the bytes of ONNX Runtime.
#
# Source: ONNX Runtime computes ``y = rint(f32(f32(sa * (a - za)) - f32(sb * (b - zb))) / sy) + zy``, each step in
# float32. Two tables that are added up give nearly that; where a pair of codes would be rounded in another way, an
# entry is moved until it is not.

#: Most rounds of moving entries, and most pairs that may be wrong before one: more of them are no matter of rounding.
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
        As those of :func:`sum_tables`.
    None if no tables were found.
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
    """Return the tables of both operands' rounded addends, and the number of fraction bits."""
    first_scale, second_scale, result_scale = (float(np.float32(scale)) for scale in scales)
    first = (_CODES - zero_points[0]) * (first_scale / result_scale)
    second = (zero_points[1] - _CODES) * (second_scale / result_scale)
    largest = max(np.abs(one).max() for one in (first, second, first[[0, -1], None] + second[[0, -1]]))
    fraction = MOST_FRACTION
    # One bit is left free, as moved entries may grow.
    while fraction and largest * 2.0 ** (fraction + 1) >= 1 << ADDEND_BITS - 1:
        fraction -= 1
    return np.rint(first * 2.0**fraction).astype(np.int64), np.rint(second * 2.0**fraction).astype(np.int64), fraction


def _missing(total: int, code: int, fraction: int) -> int:
    """Return the least addend that makes a sum round to a code, and a little more: the distance to the interval's near
    edge."""
    below = total < code << fraction
    edge = (2 * code - 1 if below else 2 * code + 1) << fraction >> 1
    beyond = max(abs(total) >> MANTISSA_BITS, 1)
    return edge - total + (beyond if below else -beyond)
