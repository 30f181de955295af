"""Frames of the link: a header, data and a CRC-32, encoded without zeros and terminated by a zero.

Little-endian: ``sequence`` (2 bytes), ``operation`` (1), ``status`` (1), ``address`` (4), ``length`` (4), the data, and
zlib's CRC-32 of all that (4).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from .operations import IDENTITY, MAX_DATA, Operation, Status

# Consistent overhead byte stuffing: bytes without a zero, so that a zero can end a frame. Standard library only.
#
# Source: S. Cheshire and M. Baker, Consistent Overhead Byte Stuffing, IEEE/ACM Transactions on Networking 7(2), 1999.

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
        # No zero follows a block of full length, so the zero that ends this part takes an empty block, as does empty
        # data.
        if not part or (len(part) % BLOCK_BYTES == 0 and number < len(parts)):
            encoded.append(1)
    return bytes(encoded)


def encoded_bytes(length: int) -> int:
    """Return the greatest encoded size of a frame of ``length`` bytes."""
    return length + max(1, -(-length // BLOCK_BYTES))


def decode(encoded: bytes) -> bytes:
    """Decode the bytes between two delimiters.

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


_HEADER = struct.Struct("<HBBII")
#: Bytes before the data, and after it.
HEADER_BYTES, CRC_BYTES = _HEADER.size, 4
#: Bytes of a frame before it is encoded.
LEAST_BYTES = HEADER_BYTES + CRC_BYTES
MOST_BYTES = LEAST_BYTES + MAX_DATA
#: Bytes of a frame on the line, its delimiter included, at most.
MOST_ENCODED_BYTES = encoded_bytes(MOST_BYTES) + 1
#: Offset and size in bytes of each field of the header.
FIELDS = {"sequence": (0, 2), "operation": (2, 1), "status": (3, 1), "address": (4, 4), "length": (8, 4)}
_WORD = struct.Struct("<I")
_IDENTITY = struct.Struct(f"<{len(IDENTITY)}I")


class DamagedFrameError(ValueError):
    """The bytes between two delimiters are not a valid frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A request or an answer.

    Attributes
    ----------
    sequence : int
        16 bits: the number of the request.
    operation : int
        An :class:`.Operation`, or an unknown code.
    status : int
        A :class:`.Status`; in requests zero, or :data:`.operations.AFTER`.
    address, length : int
        32 bits each; ``length`` of an answer is that of its data.
    data : bytes
    """

    sequence: int
    operation: int
    status: int = Status.OK
    address: int = 0
    length: int = 0
    data: bytes = b""

    def content(self) -> bytes:
        """The bytes that the CRC covers.

        Raises
        ------
        ValueError
            If a field does not fit.
        """
        if len(self.data) > MAX_DATA:
            raise ValueError(f"data must be at most {MAX_DATA} bytes, not {len(self.data)}")
        for name, (_, size) in FIELDS.items():
            value = getattr(self, name)
            if not 0 <= value < 1 << 8 * size:
                raise ValueError(f"{name} must be between 0 and {(1 << 8 * size) - 1}, not {value}")
        return _HEADER.pack(self.sequence, self.operation, self.status, self.address, self.length) + self.data

    @property
    def crc(self) -> int:
        """CRC-32 of the content."""
        return zlib.crc32(self.content())

    def encode(self) -> bytes:
        """Return the bytes on the line, including the delimiter at the end."""
        return encode(self.content() + _WORD.pack(self.crc)) + bytes([DELIMITER])

    @classmethod
    def decode(cls, encoded: bytes) -> Frame:
        """Parse the bytes between two delimiters.

        Raises
        ------
        DamagedFrameError
            If it is no frame, or its CRC is wrong.
        """
        try:
            whole = decode(encoded)
        except ValueError as error:
            raise DamagedFrameError(str(error)) from error
        if not LEAST_BYTES <= len(whole) <= MOST_BYTES:
            raise DamagedFrameError(f"a frame must have {LEAST_BYTES} to {MOST_BYTES} bytes, not {len(whole)}")
        content, (crc,) = whole[:-CRC_BYTES], _WORD.unpack(whole[-CRC_BYTES:])
        if zlib.crc32(content) != crc:
            raise DamagedFrameError(f"the CRC must be {zlib.crc32(content):#010x}, not {crc:#010x}")
        sequence, operation, status, address, length = _HEADER.unpack_from(content)
        return cls(sequence, operation, status, address, length, content[HEADER_BYTES:])

    def answered(self, status: Status, data: bytes = b"") -> Frame:
        """Return the answer to this request."""
        return Frame(self.sequence, self.operation, status, self.address, len(data), data)


#: The answer to a frame that is damaged.
NAK = Frame(0, Operation.NAK, Status.DAMAGED)


def pack_word(value: int) -> bytes:
    """Encode a 32-bit word as data."""
    return _WORD.pack(value)


def parse_word(data: bytes) -> int:
    """Decode data that is one 32-bit word.

    Raises
    ------
    ValueError
        If the data has another length.
    """
    if len(data) != _WORD.size:
        raise ValueError(f"data must be {_WORD.size} bytes, not {len(data)}")
    (value,) = _WORD.unpack(data)
    return int(value)


@dataclass(frozen=True, slots=True)
class Identity:
    """The data of the answer to IDENTIFY, see :data:`.operations.IDENTITY`."""

    link_version: int
    clock_hz: int
    arena_bytes: int
    max_data: int
    cycles: int

    def pack(self) -> bytes:
        """The data of the answer."""
        return _IDENTITY.pack(*(getattr(self, name) for name in IDENTITY))

    @classmethod
    def parse(cls, data: bytes) -> Identity:
        """Read the data of an answer; words that a later version adds are ignored.

        Raises
        ------
        ValueError
            If there are too few.
        """
        if len(data) < _IDENTITY.size:
            raise ValueError(f"data must be at least {_IDENTITY.size} bytes, not {len(data)}")
        return cls(*_IDENTITY.unpack_from(data))


# Rates of the line: a bit's time, in sixteenths of a clock cycle. Standard library only.

#: Bits in a second after reset.
INITIAL_RATE = 115_200
#: Seconds without a good frame after which the hardware returns to the initial rate.
RATE_TIMEOUT_S = 1
#: The unit of a bit's time, in parts of a cycle: at 8 cycles a bit the rate is within 0.4 % of the one wanted.
PARTS = 16
#: Limits of a bit's time, in these parts: 8 cycles, which the receiver needs for its samples, and 16 bits.
LEAST_BIT_TIME = 8 * PARTS
MOST_BIT_TIME = (1 << 16) - 1


def bit_time(clock_hz: float, rate: float) -> int:
    """Return the duration of a bit at ``rate`` bits a second.

    Returns
    -------
    int
        In sixteenths of a cycle of a clock of ``clock_hz``.

    Raises
    ------
    ValueError
        If it is out of range.
    """
    parts = round(PARTS * clock_hz / rate)
    if not LEAST_BIT_TIME <= parts <= MOST_BIT_TIME:
        least, most = clock_hz * PARTS / MOST_BIT_TIME, clock_hz * PARTS / LEAST_BIT_TIME
        raise ValueError(
            f"rate must be between {least:.0f} and {most:.0f} bits a second at a clock of {clock_hz:.0f} Hz, "
            f"not {rate:.0f}"
        )
    return parts


def rate_timeout_cycles(clock_hz: float) -> int:
    """Return the cycles without a good frame after which the hardware returns to the initial rate."""
    return round(clock_hz * RATE_TIMEOUT_S)
