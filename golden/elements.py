"""Widths of elements, totals and addends, and how many bytes elements take."""

from __future__ import annotations

#: Bits of a code.
CODE_BITS = 8

#: Bits of a binary value.
BINARY_BITS = 1

#: Bits of a code less another code.
DIFFERENCE_BITS = 9

#: Bits of narrow results, of the input of a whole epilogue, and of the factors of units that borrow multipliers.
NARROW_BITS = 16

#: Bits of each of two addends that an epilogue may give the requantiser in place of accumulator and bias.
ADDEND_BITS = 36


def run_bytes(elements: int, bits: int) -> int:
    """Return the bytes that adjacent elements take, given the bits of each; the last byte may be used in part."""
    return -(-elements * bits // 8)


def tensor_bytes(shape: tuple[int, int, int], bits: int = CODE_BITS) -> int:
    """Return the bytes of a tensor (height, width, channels) in which each pixel begins at a byte."""
    height, width, channels = shape
    return height * width * run_bytes(channels, bits)
