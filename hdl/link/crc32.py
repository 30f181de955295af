"""CRC-32 as zlib has it, a byte each cycle.

Source: polynomial and bit order of IEEE 802.3, 3.2.9; reflected, as in RFC 1952, section 8.
"""

from __future__ import annotations

from functools import reduce
from operator import xor

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RESIDUE", "Crc32"]

_BITS = 32
_POLYNOMIAL = 0xEDB8_8320
#: What :attr:`Crc32.value` is after any bytes and their CRC, lowest byte first.
RESIDUE = 0x2144_DF1C


def _step_bits() -> list[list[int]]:
    """Of each bit of the state after a byte, the bits that it is the sum of: 0 to 31 of the state before, 32 to 39 of
    the byte."""
    state = [1 << bit for bit in range(_BITS)]
    for bit in range(8):
        low = state[0] ^ 1 << _BITS + bit
        state = [*state[1:], 0]
        state = [value ^ low if _POLYNOMIAL >> position & 1 else value for position, value in enumerate(state)]
    return [[bit for bit in range(_BITS + 8) if value >> bit & 1] for value in state]


class Crc32(wiring.Component):
    """Sum up a byte each cycle, with a latency of one cycle; no combinational path.

    Bit-exact with :func:`zlib.crc32`.

    Members
    -------
    clear : In(1)
        Begin again; goes before ``valid``.
    valid : In(1), byte : In(8)
    value : Out(32)
        Of the bytes since ``clear``.
    """

    def __init__(self) -> None:
        super().__init__({"clear": In(1), "valid": In(1), "byte": In(8), "value": Out(_BITS)})

    def elaborate(self, platform) -> Module:
        m = Module()
        state = Signal(_BITS, init=(1 << _BITS) - 1)
        source = Cat(state, self.byte)
        with m.If(self.clear):
            m.d.sync += state.eq(Const(-1, _BITS))
        with m.Elif(self.valid):
            m.d.sync += state.eq(Cat(reduce(xor, (source[bit] for bit in bits)) for bits in _step_bits()))
        m.d.comb += self.value.eq(~state)
        return m
