"""Bitstreams of ECP5 as files: which FPGA one is for.

Source: Lattice FPGA-TN-02039 (sysCONFIG): comments, preamble, commands with three operands before their data.
"""

from __future__ import annotations

from ...boards import PARTS, Board

#: Comments stand before it, between FF 00 and FF.
_PREAMBLE = bytes.fromhex("ffffbdb3")
_COMMENTS = bytes.fromhex("ff00")
#: Comments are a line or two.
_MOST_COMMENTS = 4096
#: Commands, and how many bytes of data follow their operands: padding, reset of the checksum, IDCODE.
_PAD, _RESET_CRC, _VERIFY_ID = 0xFF, 0x3B, 0xE2
_OPERANDS, _IDCODE_BYTES = 3, 4


def idcode_of(data: bytes) -> int:
    """The IDCODE that a bitstream begins with.

    Raises
    ------
    ValueError
        If it is no bitstream of an ECP5, or says none.
    """
    begin = data.find(_PREAMBLE, 0, _MOST_COMMENTS)
    if not data.startswith((_COMMENTS, _PREAMBLE)) or begin < 0:
        raise ValueError("it must begin as a bitstream of an ECP5 does, and does not")
    at = begin + len(_PREAMBLE)
    while at < len(data) and data[at] in (_PAD, _RESET_CRC):
        at += 1 if data[at] == _PAD else 1 + _OPERANDS
    code = data[at + 1 + _OPERANDS :][:_IDCODE_BYTES]
    if data[at : at + 1] != bytes([_VERIFY_ID]) or len(code) < _IDCODE_BYTES:
        raise ValueError("it must say which FPGA it is for, and does not: it is damaged")
    return int.from_bytes(code, "big")


def check_board(name: str, data: bytes, board: Board) -> None:
    """Raise a ValueError, which names file and remedy, unless ``data`` is a bitstream for the board's FPGA."""
    try:
        found = idcode_of(data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}; build one with lutterfly bitstream --board {board.name}") from None
    if found != board.part.idcode:
        other = next((part.name for part in PARTS.values() if part.idcode == found), f"IDCODE {found:#010x}")
        raise ValueError(
            f"{name}: must be a bitstream for {board.part.name}, the FPGA of {board.name}, not for {other}; "
            f"build one with lutterfly bitstream --board {board.name}"
        )
