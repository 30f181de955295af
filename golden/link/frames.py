"""Frames of the link: a header, data and a CRC-32, encoded without zeros, and a zero after them.

Little-endian: ``sequence`` (2 bytes), ``operation`` (1), ``status`` (1, zero in requests), ``address`` (4), ``length``
(4), the data, and zlib's CRC-32 of all that (4).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from . import cobs
from .operations import IDENTITY, MAX_DATA, Operation, Status

_HEADER = struct.Struct("<HBBII")
#: Bytes before the data, and after it.
HEADER_BYTES, CRC_BYTES = _HEADER.size, 4
#: Bytes of a frame before it is encoded.
LEAST_BYTES = HEADER_BYTES + CRC_BYTES
MOST_BYTES = LEAST_BYTES + MAX_DATA
#: Bytes of a frame on the line, its delimiter included, at most.
MOST_ENCODED_BYTES = cobs.encoded_bytes(MOST_BYTES) + 1
#: Where the fields of the header begin, and how many bytes they have.
FIELDS = {"sequence": (0, 2), "operation": (2, 1), "status": (3, 1), "address": (4, 4), "length": (8, 4)}
_WORD = struct.Struct("<I")
_IDENTITY = struct.Struct(f"<{len(IDENTITY)}I")


class DamagedFrameError(ValueError):
    """Bytes between two delimiters that are no frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A request or an answer.

    Attributes
    ----------
    sequence : int
        16 bits: the number of the request.
    operation : int
        An :class:`.Operation`, or a code that nobody knows.
    status : int
        A :class:`.Status`; zero in requests.
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
        """What the CRC is of.

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
        """What goes over the line, the delimiter after it included."""
        return cobs.encode(self.content() + _WORD.pack(self.crc)) + bytes([cobs.DELIMITER])

    @classmethod
    def decode(cls, encoded: bytes) -> Frame:
        """Read what stands between two delimiters.

        Raises
        ------
        DamagedFrameError
            If it is no frame, or its CRC is wrong.
        """
        try:
            whole = cobs.decode(encoded)
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
        """The answer to this request."""
        return Frame(self.sequence, self.operation, status, self.address, len(data), data)


#: The answer to a frame that is damaged.
NAK = Frame(0, Operation.NAK, Status.DAMAGED)


def pack_word(value: int) -> bytes:
    """A word of 32 bits as data."""
    return _WORD.pack(value)


def parse_word(data: bytes) -> int:
    """The word of 32 bits that the data is.

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
    """What IDENTIFY answers, see :data:`.operations.IDENTITY`."""

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
