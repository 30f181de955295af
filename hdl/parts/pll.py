"""The clock of an FPGA board, made from its oscillator."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .pipeline import platform_of

__all__ = ["Pll"]


class Pll(wiring.Component):
    """Make a clock, and signal when it is steady.

    With a family's primitives (:class:`.pipeline.Primitives`) it is the family's PLL. Without, the clock passes
    unchanged, and is steady from the start: a simulation has no time but the clock's edges.

    Parameters
    ----------
    input_hz, output_hz : int
        The oscillator's clock, and the one to make.

    Members
    -------
    clock_in : In(1)
    clock_out : Out(1)
        Combinational from ``clock_in`` where there is no primitive.
    locked : Out(1)
        Whether ``clock_out`` is steady; changes at any time.
    """

    def __init__(self, input_hz: int, output_hz: int):
        self.input_hz, self.output_hz = input_hz, output_hz
        super().__init__({"clock_in": In(1), "clock_out": Out(1), "locked": Out(1)})

    def elaborate(self, platform) -> Module:
        """Build it; ValueError if the family's PLL cannot make the clock."""
        m = Module()
        if not platform_of(platform).primitives.pll(m, self):
            m.d.comb += [self.clock_out.eq(self.clock_in), self.locked.eq(1)]
        return m
