"""The sending half of a UART: bytes of eight bits, lowest first, between a start bit and a stop bit."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.link import rates
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
        In sixteenths of a cycle, see :mod:`lutterfly.golden.link.rates`; it may change while nothing is sent.
    tx : Out(1)
        High while nothing is sent.
    busy : Out(1)
        High from the cycle after a byte is taken to the end of its stop bit.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "input": In(stream.Signature(8)),
                "bit_time": In(range(rates.MOST_BIT_TIME + 1)),
                "tx": Out(1, init=1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bits, bits_left = Signal(_BITS - 1, reset_less=True), Signal(range(_BITS))
        ends = last_cycle(m, self.bit_time, ceil_log2(rates.PARTS), begins=~self.busy)
        m.d.comb += self.input.ready.eq(~self.busy)
        with m.If(~self.busy):
            m.d.sync += [bits.eq(Cat(self.input.payload, Const(1, 1))), bits_left.eq(_BITS - 1)]
            with m.If(self.input.valid):
                m.d.sync += [self.busy.eq(1), self.tx.eq(0)]
        with m.Elif(ends):
            m.d.sync += [Cat(self.tx, bits).eq(Cat(bits, Const(1, 1))), bits_left.eq(bits_left - 1)]
            with m.If(bits_left == 0):
                m.d.sync += self.busy.eq(0)
        return m
