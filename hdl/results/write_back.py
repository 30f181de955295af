"""Write-back: collect groups of results to pieces of ``columns`` bytes, or of as many bits, and write them."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.machine.write_back import packs
from ...golden.units import ErrorCode, Unit
from ..engines.engine import codes_layout, has_whole_epilogue
from ..memories.feature_memory import feature_write_layout
from ..parts.isa import ErrorReport, report_error
from ..parts.pipeline import Assertions
from .group_walk import GroupTarget

__all__ = ["WRITE_BACK_LATENCY", "WriteBack"]

#: Cycles from the group that completes a piece to its write.
WRITE_BACK_LATENCY = 2


class WriteBack(wiring.Component):
    """Take a group each cycle and write a piece when it is complete, ``WRITE_BACK_LATENCY`` cycles later.

    A packed result is written as a bit, 1 where the value is not negative, and zeros follow to the end of the byte. A
    piece that is less than a byte is written with the earlier bits of that byte.

    Parameters
    ----------
    config : Config

    Members
    -------
    place : In(GroupTarget), values : In(requant_lanes x 8)
        A group and its destination.
    whole_codes : In(codes_layout), if the configuration has a whole epilogue
        A group that is all lanes.
    halt : In(1)
        Write nothing more.
    write_valid : Out(1), write : Out(feature write)
        A write to the feature memory.
    no_write : Out(1)
        The complement of ``write_valid``.
    done : Out(1)
        High with the last write of a command.
    error : Out(ErrorReport)
    """

    def __init__(self, config: Config):
        self.config = config
        self.lanes = config.array.requant_lanes
        self.has_whole = has_whole_epilogue(config)
        self.packs = packs(config)
        super().__init__(
            {
                "place": In(GroupTarget),
                "values": In(data.ArrayLayout(unsigned(8), self.lanes)),
                **({"whole_codes": In(codes_layout(config.array.lanes))} if self.has_whole else {}),
                "halt": In(1),
                "write_valid": Out(1),
                "no_write": Out(1, init=1),
                "write": Out(feature_write_layout(config)),
                "done": Out(1),
                "error": Out(ErrorReport),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        slots = self.config.array.columns // self.lanes
        piece = Signal(data.ArrayLayout(self.values.shape(), slots), reset_less=True)
        with m.Switch(self.place.slot):
            for slot in range(slots):
                with m.Case(slot):
                    m.d.sync += piece[slot].eq(self.values)
        place = Signal(GroupTarget, reset_less=True)
        size = self.place.count
        if self.packs:
            size = Mux(self.place.packed, (self.place.count + 7) >> 3, self.place.count)
        count = Signal.like(self.write.count, name="size", reset_less=True)
        end, outside = Signal(isa.LOCAL_BITS + 1, reset_less=True), Signal()
        m.d.sync += [place.eq(self.place), count.eq(size), end.eq(self.place.address + size)]
        # One comparator: a piece that begins outside also ends outside.
        m.d.comb += outside.eq(end > self.config.memory.feature_bytes)

        checks = Assertions(m, platform)
        writes = place.valid & place.write & ~outside & ~self.halt
        write = Signal.like(self.write, reset_less=True)
        m.d.comb += self.write.eq(write)
        m.d.sync += [
            write.address.eq(place.address),
            write.count.eq(count),
            write.data.eq(self._bytes(m, checks, piece, place)),
            self.write_valid.eq(writes),
            # It is a register of its own, with wires of its own.
            self.no_write.eq(~writes),
            self.done.eq(place.valid & place.finish & ~outside & ~self.halt),
            report_error(self.error, ErrorCode.ADDRESS_RANGE, Unit.WRITE_BACK, place.index, place.address),
            self.error.valid.eq(place.valid & place.write & outside),
        ]
        checks.never(
            self.write_valid & ((self.write.count == 0) | (self.write.count > self.config.array.lanes)),
            "write back: a piece of no byte, or of more than there are lanes",
        )
        checks.never(
            self.place.valid & (self.place.count <= self.place.slot << ceil_log2(self.lanes)),
            "write back: a group after the end of its piece",
        )
        return m

    def _bytes(self, m: Module, checks: Assertions, piece: Signal, place: Signal) -> Value:
        """Return the bytes to write: a collected piece, its bits, or a whole result."""
        written: Value = piece.as_value()
        if self.packs:
            written = Mux(place.packed, self._bits(m, checks, piece, place), written)
        if self.has_whole:
            whole = Signal.like(self.whole_codes, name="whole", reset_less=True)
            m.d.sync += whole.eq(self.whole_codes)
            written = Mux(place.is_whole, whole, written)
        return written

    def _bits(self, m: Module, checks: Assertions, piece: Signal, place: Signal) -> Value:
        """Return the bits of a piece, at their place in its bytes."""
        signs = piece.as_value()[7::8]
        bits = Cat(~sign & (place.count > number) for number, sign in enumerate(signs))
        if len(bits) >= 8:
            return bits
        before, joined = Signal(8, reset_less=True), Signal(8)
        m.d.comb += joined.eq((bits << place.bit) | Mux(place.bit == 0, 0, before))
        with m.If(place.valid & place.write):
            m.d.sync += before.eq(joined)
        if checks.wanted:
            index = Signal.like(place.index, name="index_before")
            with m.If(place.valid & place.write):
                m.d.sync += index.eq(place.index)
            checks.never(
                place.valid & place.write & place.packed & (place.bit != 0) & (index != place.index),
                "write back: a piece is joined to the bits of another command",
            )
        return joined
