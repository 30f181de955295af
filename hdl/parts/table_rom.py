"""A transfer table as a component of its own: codes in, codes out, by streams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from amaranth.hdl import Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.transfer.tables import HalfTable, check_entries, halve
from .device import RAM_LATENCY, Rom
from .pipeline import delay

__all__ = ["FABRIC_BITS", "TableRom"]

#: Larger tables lie in block RAM. In the fabric, one of this size takes a few hundred look-up tables, and would leave
#: most of a block RAM empty.
FABRIC_BITS = 4096


class TableRom(wiring.Component):
    """Look one code up each cycle, with a latency of ``latency`` cycles; the pipeline stops while a result waits.

    Where half of a table gives all of it, half is stored; that takes a register before the memory, which folds the
    code, and one after it. ``codes.ready`` depends combinationally on ``results.ready``, and on no other input; results
    are
    registers.

    Parameters
    ----------
    table : sequence of int
        The entries of ``2**bits`` codes in order, from the least integer of their type.
    is_signed : bool
        Whether codes are two's complement.
    result : Shape
        The shape of the results.
    may_halve : bool
        If False, the whole table is stored.
    is_block : bool or None
        Whether the memory is block RAM; by default its size decides.

    Attributes
    ----------
    half : HalfTable or None
        The stored half, if half is stored; see :func:`lutterfly.golden.transfer.tables.halve`.
    stored_entries, latency : int

    Members
    -------
    codes : In(stream)
        A stream of ``signed(bits)`` or ``unsigned(bits)``.
    results : Out(stream)
        A stream of ``result``.

    Raises
    ------
    ValueError
        If the number of entries is not a power of two, or an entry does not have the shape.
    """

    def __init__(
        self,
        table: Sequence[int],
        *,
        is_signed: bool,
        result: Shape,
        may_halve: bool = True,
        is_block: bool | None = None,
    ):
        bits = ceil_log2(check_entries(len(table)))
        self.table = np.array(table, np.int64)
        self.is_signed = is_signed
        self.result = result
        low, high = (-1 << result.width - 1, 1 << result.width - 1) if result.signed else (0, 1 << result.width)
        for entry in (int(self.table.min()), int(self.table.max())):
            if not low <= entry < high:
                raise ValueError(f"entries must be between {low} and {high - 1}, not {entry}")
        self.half: HalfTable | None = halve(self.table) if may_halve else None
        self.stored_entries = len(self.table) >> (self.half is not None)
        self.is_block = self.stored_entries * result.width > FABRIC_BITS if is_block is None else is_block
        self.latency = RAM_LATENCY + (2 if self.half else 0)
        super().__init__(
            {
                "codes": In(stream.Signature(Shape(bits, is_signed))),
                "results": Out(stream.Signature(result)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # The pipeline moves as one: a result that waits holds up all that follows it.
        advance = Signal()
        m.d.comb += [advance.eq(~self.results.valid | self.results.ready), self.codes.ready.eq(advance)]
        valid: Value = self.codes.valid
        with m.If(advance):
            for stage in range(self.latency):
                later = Signal(name=f"valid_{stage}")
                m.d.sync += later.eq(valid)
                valid = later
        m.d.comb += self.results.valid.eq(valid)

        stored = self._by_bits() if self.half is None else self.half.stored
        mask = (1 << self.result.width) - 1
        m.submodules.rom = rom = Rom(
            width=self.result.width, words=[int(entry) & mask for entry in stored], is_block=self.is_block
        )
        m.d.comb += rom.enable.eq(advance)
        word = rom.read_data.as_signed() if self.result.signed else rom.read_data
        with m.If(advance):
            if self.half is None:
                m.d.comb += rom.read_address.eq(self.codes.payload)
                result = word
            else:
                result = self._folded(m, self.half, rom, word)
        m.d.comb += self.results.payload.eq(result)
        return m

    def _by_bits(self) -> np.ndarray:
        """Return the table indexed by the bits of the codes: in two's complement, negative codes come last."""
        return np.roll(self.table, len(self.table) // 2) if self.is_signed else self.table

    def _folded(self, m: Module, half: HalfTable, rom: Rom, word: Value) -> Signal:
        """Fold codes into distances from the middle, and unfold stored entries into results."""
        code = self.codes.payload.as_unsigned()
        distance = code[:-1]
        is_below = code[-1] == self.is_signed
        address = Signal.like(rom.read_address, reset_less=True)
        other, middle = Signal(reset_less=True), Signal(reset_less=True)
        m.d.sync += [
            address.eq(Mux(is_below, -distance, distance)),
            other.eq(is_below == half.is_upper),
            middle.eq(~is_below & (distance == 0)),
        ]
        m.d.comb += rom.read_address.eq(address)
        other, middle = (
            delay(m, flag, RAM_LATENCY, name=name) for flag, name in ((other, "other"), (middle, "middle"))
        )
        result = Signal(self.result, reset_less=True)
        m.d.sync += result.eq(Mux(middle, half.middle, Mux(other, _opposite(half, word), word)))
        return result


def _opposite(half: HalfTable, word: Value) -> Value:
    """Compute the entry at the same distance on the other side."""
    if half.total is None:
        return word
    entry: Value = half.total - word
    # There are comparisons only where entries can saturate.
    if half.total - max(half.stored) < half.low:
        entry = Mux(entry < half.low, Const(half.low), entry)
    if half.total - min(half.stored) > half.high:
        entry = Mux(entry > half.high, Const(half.high), entry)
    return entry
