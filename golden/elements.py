"""Widths of elements, totals and addends, and how many bytes elements take."""

from __future__ import annotations

#: Bits of a code.
CODE_BITS = 8

#: Bits of a binary value.
BINARY_BITS = 1

#: Bits of a code less another code.
DIFFERENCE_BITS = 9

#: Bits of narrow results, of what a whole finish takes, and of the factors of those who borrow multipliers.
NARROW_BITS = 16

#: Bits of each of two addends that a finish may give the requantiser in place of accumulator and bias.
ADDEND_BITS = 36


def run_bytes(elements: int, bits: int) -> int:
    """Bytes that a number of adjacent elements takes, given the bits of each; the last byte may be used in part."""
    return -(-elements * bits // 8)


def tensor_bytes(shape: tuple[int, int, int], bits: int = CODE_BITS) -> int:
    """Bytes of a tensor (height, width, channels) whose pixels lie side by side, each from the beginning of a byte."""
    height, width, channels = shape
    return height * width * run_bytes(channels, bits)
