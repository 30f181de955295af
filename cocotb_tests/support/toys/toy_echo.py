"""A core with a serial port that does little: what boards are tried with."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Echo(wiring.Component):
    """Send back what comes, a clock later; the lights are those of a counter."""

    def __init__(self) -> None:
        super().__init__({"rx": In(1), "tx": Out(1, init=1), "busy": Out(1), "error": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        count = Signal(24)
        m.d.sync += [self.tx.eq(self.rx), count.eq(count + 1)]
        m.d.comb += [self.busy.eq(count[-1]), self.error.eq(count[-2])]
        return m
