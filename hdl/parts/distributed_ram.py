"""Words in distributed RAM, which are read in the cycle of their address."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Shape, ShapeLike, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .pipeline import copy_of

__all__ = ["BANK_WORDS", "DistributedRam"]

#: Words of a bank: the depth of a cell of look-up tables, or half of it, on all devices.
BANK_WORDS = 16


class DistributedRam(wiring.Component):
    """Keep words in banks of up to ``BANK_WORDS``. What is written takes the place of what was there in the cycle after
    its data.

    Where a word goes is told a cycle before the word itself, so that each bank has a register for whether it is
    written: a bank is many cells, and wires to them are long.

    Parameters
    ----------
    shape : ShapeLike
        Of a word.
    depth : int
        Words, a power of two, at least 2.
    copy : int
        0 or 1, see :func:`.pipeline.copy_of`: memories that are written alike have registers of their own.

    Members
    -------
    write_valid : In(1), write_address : In
        A cycle before ``write_data``.
    write_data : In(shape)
    read_address : In
    read_data : Out(shape)
        Of the same cycle.

    Raises
    ------
    ValueError
        If ``depth`` is none.
    """

    def __init__(self, shape: ShapeLike, *, depth: int, copy: int = 0):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two, at least 2, not {depth}")
        self.depth, self.copy = depth, copy
        address_bits = ceil_log2(depth)
        super().__init__(
            {
                "write_valid": In(1),
                "write_address": In(address_bits),
                "write_data": In(shape),
                "read_address": In(address_bits),
                "read_data": Out(shape),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        words = min(self.depth, BANK_WORDS)
        bits = ceil_log2(words)
        address = copy_of(self.write_address[:bits], self.copy, name="write_address", reset_less=True)
        m.d.sync += address.eq(self.write_address[:bits])
        found = []
        for number in range(self.depth // words):
            storage = memory.Memory(shape=Shape.cast(self.write_data.shape()).width, depth=words, init=[])
            m.submodules[f"bank_{number}"] = storage
            write, read = storage.write_port(), storage.read_port(domain="comb")
            is_written = copy_of(Signal(), self.copy, name=f"is_written_{number}", reset_less=True)
            m.d.sync += is_written.eq(self.write_valid & (self.write_address[bits:] == number))
            m.d.comb += [
                write.en.eq(is_written),
                write.addr.eq(address),
                write.data.eq(self.write_data),
                read.addr.eq(self.read_address[:bits]),
            ]
            found.append(read.data)
        m.d.comb += self.read_data.eq(Array(found)[self.read_address[bits:]])
        return m
