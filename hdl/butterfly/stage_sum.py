"""The end of a stage: the sum of a pair, rounded once and saturated."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.engines.fpc import ROUND_LATENCY
from ...golden.numerics.fpc import FRACTION_BITS, VALUE_BITS
from ..parts.pipeline import spread
from .pair_line import SETTING_LATENCY, values_layout

__all__ = ["StageSum", "sum_latency"]


def sum_latency(*, has_skip: bool) -> int:
    """Cycles from the terms to the values: add, round, add what is skipped, saturate."""
    return ROUND_LATENCY + has_skip + 1


def _differ(bits: Value) -> Value:
    return ~(bits.all() | ~bits.any())


class StageSum(wiring.Component):
    """Add own values and terms with a fraction, divide by one or two, round, add what a skip brings, and saturate.

    Bit-exact with :func:`lutterfly.golden.numerics.fpc.run_stages`, with a latency of :func:`sum_latency`.

    Parameters
    ----------
    lanes : int
    term_bits : int
        Of a term.
    has_own : bool
        Whether there are own values; else they are part of the terms.
    skip_bits : int
        Of what is added after the rounding; 0 if nothing is.

    Members
    -------
    terms : In(lanes x signed(term_bits))
        With ``FRACTION_BITS`` of fraction.
    own : In(lanes x signed(16)), if ``has_own``
    halves : In(1)
        Divide by two; stays while words are under way, and before for ``SETTING_LATENCY`` cycles.
    skipped : In(lanes x signed(skip_bits)), if there are any
        ``ROUND_LATENCY`` cycles after the terms.
    values : Out(lanes x signed(16))
    """

    def __init__(self, *, lanes: int, term_bits: int, has_own: bool, skip_bits: int = 0):
        self.lanes = lanes
        self.term_bits = term_bits
        self.has_own = has_own
        self.skip_bits = skip_bits
        values = values_layout(lanes)
        super().__init__(
            {
                "terms": In(data.ArrayLayout(signed(term_bits), lanes)),
                **({"own": In(values)} if has_own else {}),
                "halves": In(1),
                **({"skipped": In(data.ArrayLayout(signed(skip_bits), lanes))} if skip_bits else {}),
                "values": Out(values),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        halves = spread(m, self.halves, self.lanes, cycles=SETTING_LATENCY, name="halves")
        for lane in range(self.lanes):
            own = self.own[lane] if self.has_own else Const(0, signed(1))
            rounded, overflows = self._rounded(m, lane, self.terms[lane], own, halves[lane])
            if self.skip_bits:
                total = Signal.like(rounded + self.skipped[lane], name=f"with_skip_{lane}", reset_less=True)
                m.d.sync += total.eq(rounded + self.skipped[lane])
                rounded, overflows = total, _differ(total[VALUE_BITS - 1 :])
            is_negative = rounded[-1]
            limit = Cat(is_negative.replicate(VALUE_BITS - 1) ^ ((1 << VALUE_BITS - 1) - 1), is_negative)
            value = Signal(signed(VALUE_BITS), name=f"value_{lane}", reset_less=True)
            m.d.sync += value.eq(Mux(overflows, limit, rounded[:VALUE_BITS]))
            m.d.comb += self.values[lane].eq(value)
        return m

    def _rounded(self, m: Module, lane: int, term: Value, own: Value, halves: Value) -> tuple[Signal, Signal]:
        """The rounded sum in two cycles, and whether it needs more bits than a value has.

        To round half up is a carry into the sum; then a tie that has become odd loses its lowest bit. Halved, the carry
        is one, and the bit that falls off tells which ties there are.
        """
        whole, fraction = term[FRACTION_BITS:].as_signed(), term[:FRACTION_BITS]
        width = max(len(whole), len(own)) + 1
        total = Signal(signed(width), name=f"total_{lane}", reset_less=True)
        carried = Cat(fraction[-1] | halves, whole).as_signed()
        m.d.sync += total.eq((Cat(Const(1, 1), own).as_signed() + carried) >> 1)
        may_tie = Signal(name=f"may_tie_{lane}", reset_less=True)
        m.d.sync += may_tie.eq(~fraction[:-1].any() & (fraction[-1] ^ halves))

        rounded = Signal(signed(width), name=f"rounded_{lane}", reset_less=True)
        overflows = Signal(name=f"overflows_{lane}", reset_less=True)
        half = total >> 1
        lowest = Mux(halves, total[1] & ~(may_tie & ~total[0]), total[0] & ~may_tie)
        m.d.sync += [
            rounded.eq(Cat(lowest, Mux(halves, half, total)[1:width]).as_signed()),
            overflows.eq(Mux(halves, _differ(total[VALUE_BITS:]), _differ(total[VALUE_BITS - 1 :]))),
        ]
        return rounded, overflows
