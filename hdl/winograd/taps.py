"""In front of a column's multipliers: sums of the weights of Winograd steps; all others pass."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.numerics.winograd import WEIGHT_BITS, WORD_BITS
from ..parts.pipeline import delay
from .words import TAP_CONTROL

__all__ = ["WinogradTaps"]


class WinogradTaps(wiring.Component):
    """Make the factors that come of the weights of groups of four steps.

    Bit-exact with :func:`lutterfly.golden.numerics.winograd.transform_taps`: the first two weights of a group pass and
    are added up; the last two are added to their sum, and subtracted from it. So the weight memory has bytes, and a sum
    is made where it is used.

    Parameters
    ----------
    lanes : int

    Members
    -------
    control : In(TAP_CONTROL), weights : In(lanes x signed(8))
    taps : Out(lanes x signed(10))
        A cycle later.
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__(
            {
                "control": In(TAP_CONTROL),
                "weights": In(data.ArrayLayout(signed(8), lanes)),
                "taps": Out(data.ArrayLayout(signed(WEIGHT_BITS), lanes)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        control = self.control
        for lane in range(self.lanes):
            weight = self.weights[lane]
            outer = Signal(signed(WORD_BITS), name=f"outer_{lane}", reset_less=True)
            kept = (outer.as_unsigned() & control.keeps.replicate(WORD_BITS)).as_signed()
            added = (weight.as_unsigned() & control.adds.replicate(8)).as_signed()
            taken = (outer.as_unsigned() & control.takes.replicate(WORD_BITS)).as_signed()
            m.d.sync += outer.eq(kept + added)
            tap = Mux(control.subtracts, taken - weight, taken + weight)
            m.d.comb += self.taps[lane].eq(delay(m, tap[:WEIGHT_BITS].as_signed(), 1, name=f"tap_{lane}"))
        return m
