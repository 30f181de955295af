"""Consistent overhead byte stuffing: bytes without a zero, so that a zero can end a frame. Standard library only.

Source: S. Cheshire and M. Baker, Consistent Overhead Byte Stuffing, IEEE/ACM Transactions on Networking 7(2), 1999.
"""

from __future__ import annotations

#: The byte between frames, which no encoded frame contains.
DELIMITER = 0
#: Data bytes of a block, at most: its code is one more, and says that no zero follows.
BLOCK_BYTES = 254


def encode(data: bytes) -> bytes:
    """Encode a frame.

    Returns
    -------
    bytes
        Blocks of a code and ``code - 1`` bytes that are not zero. A zero follows each block, but for those with the
        code 255 and for the last one.
    """
    encoded = bytearray()
    parts = bytes(data).split(b"\0")
    for number, part in enumerate(parts, 1):
        for start in range(0, len(part), BLOCK_BYTES):
            block = part[start : start + BLOCK_BYTES]
            encoded += bytes([len(block) + 1]) + block
        # A whole block has no zero after it: the one that ends this part takes an empty block. So does nothing at all.
        if not part or (len(part) % BLOCK_BYTES == 0 and number < len(parts)):
            encoded.append(1)
    return bytes(encoded)


def encoded_bytes(length: int) -> int:
    """Bytes that a frame of ``length`` bytes has when it is encoded, at most."""
    return length + max(1, -(-length // BLOCK_BYTES))


def decode(encoded: bytes) -> bytes:
    """Decode what stands between two delimiters.

    Raises
    ------
    ValueError
        If it ends within a block, contains a zero or is empty.
    """
    if not encoded or DELIMITER in encoded:
        raise ValueError("encoded must be bytes without a zero, at least one")
    decoded = bytearray()
    at = 0
    while at < len(encoded):
        code = encoded[at]
        block = encoded[at + 1 : at + code]
        if len(block) != code - 1:
            raise ValueError(f"a block of {code - 1} bytes must be whole, and has {len(block)}")
        decoded += block
        at += code
        if code <= BLOCK_BYTES and at < len(encoded):
            decoded.append(0)
    return bytes(decoded)
