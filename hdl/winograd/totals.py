"""Behind a column's adder tree: two totals of Winograd steps; one of all others."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..parts.pipeline import delay

__all__ = ["WinogradTotals"]


class WinogradTotals(wiring.Component):
    """Add up the sums of steps, and give the total of a window, or both of them, one after the other.

    Bit-exact with :func:`lutterfly.golden.numerics.winograd.outputs`: totals count twice what they give. The first one
    leaves out the second step of each group, the second one the first. Where windows follow one another, the first step
    of the next one does not touch the second total, which leaves then.

    Parameters
    ----------
    step : StructLayout
        With ``phase``, see :func:`.words.phased`.
    sum_bits, total_bits : int

    Members
    -------
    step : In(step), sum : In(signed(sum_bits))
    fired : Out(1), total : Out(signed(total_bits))
        Three cycles after the step that fires; for a window with two results, the second one a cycle later.
    """

    def __init__(self, *, step: data.StructLayout, sum_bits: int, total_bits: int):
        super().__init__(
            {
                "step": In(step),
                "sum": In(signed(sum_bits)),
                "fired": Out(1),
                "total": Out(signed(total_bits)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        is_outer = self.step.winograd & ~self.step.phase[1]
        value = delay(m, Mux(is_outer, self.sum << 1, self.sum), 1, name="value")
        step = delay(m, self.step, 1, name="step")

        first, second = (Signal.like(self.total, name=name, reset_less=True) for name in ("first", "second"))
        with m.If(step.valid & ~(step.winograd & (step.phase == 1))):
            m.d.sync += first.eq(Mux(step.clear, 0, first) + value)
        with m.If(step.valid & step.winograd & (step.phase != 0)):
            before = Mux(step.clear, 0, second)
            m.d.sync += second.eq(Mux(step.phase == 3, before - value, before + value))

        fires = step.valid & step.fire
        if "chain" in step.shape().members:
            fires &= ~step.chain
        fired = delay(m, fires, 1, name="fired")
        is_double = delay(m, step.winograd, 1, name="is_double")
        is_second = delay(m, fires & step.winograd & step.fields.winograd.further, 2, name="is_second")
        chosen = Mux(is_second, second, first)
        m.d.sync += self.total.eq(Mux(is_double | is_second, chosen >> 1, chosen))
        m.d.comb += self.fired.eq(delay(m, fired | is_second, 1, name="given"))
        return m
