"""Where a group of results goes."""

from amaranth.hdl import unsigned
from amaranth.lib import data

from ...golden import isa
from ..parts.isa import INDEX_BITS

__all__ = ["Place"]


class Place(data.Struct):
    """Where a group goes. Groups are collected to ``columns`` bytes; ``write`` marks the one that completes such a
    piece. A group of a whole finish (``is_whole``) is all lanes, and a piece.

    ``address`` and ``count`` are those of the piece, ``count`` in results; ``packed``: each of them is a bit. Where a
    piece is less than a byte of these, ``bit`` is where it begins in it. ``finish`` marks the last group of a command.
    """

    valid: unsigned(1)
    write: unsigned(1)
    finish: unsigned(1)
    is_whole: unsigned(1)
    packed: unsigned(1)
    bit: unsigned(3)
    slot: unsigned(6)
    address: unsigned(isa.LOCAL_BITS)
    count: unsigned(7)
    index: unsigned(INDEX_BITS)
