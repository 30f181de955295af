"""Elements: how many bytes a tensor's elements take, wherever they lie. Standard library only."""

from __future__ import annotations

#: Bits of a code.
CODE_BITS = 8

#: Bits of a binary value.
BINARY_BITS = 1


def run_bytes(elements: int, bits: int) -> int:
    """Bytes that elements of so many bits take which lie side by side; the last one may be taken in part."""
    return -(-elements * bits // 8)


def tensor_bytes(shape: tuple[int, int, int], bits: int = CODE_BITS) -> int:
    """Bytes of a tensor (height, width, channels) whose pixels lie side by side, each from the beginning of a byte."""
    height, width, channels = shape
    return height * width * run_bytes(channels, bits)
