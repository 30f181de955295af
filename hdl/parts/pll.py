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
    lead_ns : float
        The time by which a second clock is before ``clock_out``, if it is not 0.

    Members
    -------
    clock_in : In(1)
    clock_out : Out(1)
        Combinational from ``clock_in`` where there is no primitive.
    clock_early : Out(1), if there is a ``lead_ns``
        As fast as ``clock_out``, and before it; where there is no primitive, the same.
    locked : Out(1)
        Whether ``clock_out`` is steady; changes at any time.
    """

    def __init__(self, input_hz: int, output_hz: int, *, lead_ns: float = 0.0):
        self.input_hz, self.output_hz, self.lead_ns = input_hz, output_hz, lead_ns
        second = {"clock_early": Out(1)} if lead_ns else {}
        super().__init__({"clock_in": In(1), "clock_out": Out(1), **second, "locked": Out(1)})

    def elaborate(self, platform) -> Module:
        """Build it; ValueError if the family's PLL cannot make the clock."""
        m = Module()
        if not platform_of(platform).primitives.pll(m, self):
            m.d.comb += [self.clock_out.eq(self.clock_in), self.locked.eq(1)]
            if self.lead_ns:
                m.d.comb += self.clock_early.eq(self.clock_in)
        return m
