"""The sending half of a UART: bytes of eight bits, lowest first, between a start bit and a stop bit."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.link import frames
from .bit_timer import last_cycle

__all__ = ["UartTransmitter"]

_BITS = 10


class UartTransmitter(wiring.Component):
    """Send a byte in the time of ten bits, the next one two cycles later if it is there; no combinational path.

    The times of single bits are whole cycles; those of a byte together are as long as ``bit_time`` says, to a cycle.

    Members
    -------
    input : In(stream of 8 bits)
    bit_time : In(16)
        In sixteenths of a cycle, see :mod:`lutterfly.golden.link.frames`; a byte has that of the cycle before it is
        taken, to its end.
    tx : Out(1)
        High while nothing is sent.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "input": In(stream.Signature(8)),
                "bit_time": In(range(frames.MOST_BIT_TIME + 1)),
                "tx": Out(1, init=1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bits, bits_left = Signal(_BITS - 1, reset_less=True), Signal(range(_BITS))
        busy, bit_time = Signal(), Signal.like(self.bit_time, reset_less=True)
        ends = last_cycle(m, bit_time, ceil_log2(frames.PARTS), begins=~busy)
        m.d.comb += self.input.ready.eq(~busy)
        is_over = busy & ends & (bits_left == 0)
        with m.If(~busy | is_over):
            m.d.sync += bit_time.eq(self.bit_time)
        with m.If(~busy):
            m.d.sync += [bits.eq(Cat(self.input.payload, Const(1, 1))), bits_left.eq(_BITS - 1)]
            with m.If(self.input.valid):
                m.d.sync += [busy.eq(1), self.tx.eq(0)]
        with m.Elif(ends):
            m.d.sync += [Cat(self.tx, bits).eq(Cat(bits, Const(1, 1))), bits_left.eq(bits_left - 1)]
            with m.If(is_over):
                m.d.sync += busy.eq(0)
        return m
